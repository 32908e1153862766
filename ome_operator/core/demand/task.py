"""What a reconciliation tells the autoscaler of the class Demand about a service: what exists, and what its users want."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ome_operator.core.demand.facts import GROUPS, Fleet, GroupBounds, Targets

RECOMMEND, APPLY = "Recommend", "Apply"
"""The modes: the status shows the wanted size and nothing changes, or the service gets it."""


class PeakTime(NamedTuple):
    """A time of high demand that is known in advance, in UTC."""

    days: frozenset[int]
    """Days on which it begins; 0 is Monday."""
    start: int
    """Begin, in minutes after midnight."""
    end: int
    """End, in minutes after midnight. If it is not after `start`, the peak ends on the next day."""
    minimum: Mapping[str, int]
    """Role -> smallest number of groups meanwhile."""

    def covers(self, now: datetime) -> bool:
        """Return whether a time, in UTC, is within the peak."""
        minute, day = now.hour * 60 + now.minute, now.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        return (day in self.days and minute >= self.start) or ((day - 1) % 7 in self.days and minute < self.end)


class MeasuredStart(NamedTuple):
    """A group that serves, and how long its start took."""

    leader: str
    """UID of the pod of its leader."""
    ready: str
    """Time at which it served, in RFC 3339."""
    seconds: float
    """Seconds from the time at which it got a node until it served."""


class DemandTask(NamedTuple):
    """A service that is scaled with its demand."""

    mode: str
    """`RECOMMEND` or `APPLY`."""
    fleet: Fleet
    targets: Targets
    """The targets. The bounds of a role whose number somebody or something else sets are this number."""
    asked: tuple[int, int, int]
    """Prefill groups, decode groups and routers that the service is to have now."""
    peaks: tuple[PeakTime, ...] = ()
    priority: int = 0
    revision: str = ""
    """Name of the desired revision, of which new groups would be."""
    fits: bool = False
    """Whether new groups count as fitting on the nodes without a check."""
    starts: tuple[MeasuredStart, ...] = ()
    roles: Mapping[str, str] = {}
    """Role -> the component whose number of groups is decided, for the roles that are scaled."""
    problem: str = ""
    """Why the service cannot be scaled with its demand, and what to do; "" if it can. Then its size stays."""

    def targets_at(self, now: float) -> Targets:
        """Return the targets with the minimums that apply at a time in seconds since the epoch."""
        moment = datetime.fromtimestamp(now, UTC)
        bounds = dict(self.targets.bounds)
        for peak in self.peaks:
            for role in (role for role in GROUPS if peak.minimum.get(role) and peak.covers(moment)):
                low, high, spare = bounds[role]
                bounds[role] = GroupBounds(min(max(low, peak.minimum[role]), high), high, spare)
        return self.targets._replace(bounds=bounds)
