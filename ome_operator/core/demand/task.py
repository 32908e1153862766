"""The description of a service that a reconciliation passes to the autoscaler of the class Demand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ome_operator.core.demand.facts import GROUPS, Fleet, GroupBounds, Targets

RECOMMEND, APPLY = "Recommend", "Apply"
"""The modes: with `RECOMMEND` the status only shows the wanted size; with `APPLY` the operator also applies it."""


class PeakTime(NamedTuple):
    """A time of high demand, or of no demand, that is known in advance. All its times are in UTC."""

    days: frozenset[int]
    """Days of the week on which the peak begins; 0 is Monday."""
    start: int
    """Time of day at which the peak begins, in minutes after midnight."""
    end: int
    """Time of day at which the peak ends, in minutes after midnight. If it is not after `start`, the peak ends on the next
    day."""
    minimum: Mapping[str, int]
    """Maps each role that has a minimum number of groups during this time to the minimum. If it is 0 for both roles, the
    service may have no groups.
    """

    def contains(self, now: datetime) -> bool:
        """Return whether a time, in UTC, is within the peak."""
        minute, day = now.hour * 60 + now.minute, now.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        return (day in self.days and minute >= self.start) or ((day - 1) % 7 in self.days and minute < self.end)


class MeasuredStart(NamedTuple):
    """A group that serves, and how long its start took."""

    leader: str
    """UID of the leader's pod."""
    ready: str
    """Time at which the group began to serve, in RFC 3339."""
    seconds: float
    """Seconds from the assignment of the leader's pod to a node (or, if unknown, its creation) until the group served."""


class DemandTask(NamedTuple):
    """A service that is scaled with its demand."""

    mode: str
    """`RECOMMEND` or `APPLY`."""
    fleet: Fleet
    targets: Targets
    """The targets. If a person or another autoscaler sets the number of groups of a role, this number is both the minimum
    and the maximum of the role."""
    asked: tuple[int, int, int]
    """Numbers of prefill groups, decode groups and routers that the service should have at present, before the next
    decision."""
    peaks: tuple[PeakTime, ...] = ()
    priority: int = 0
    revision: str = ""
    """Name of the desired revision, to which new groups would belong."""
    fits: bool = False
    """Whether the operator assumes that new groups fit on the nodes, and does not check it."""
    starts: tuple[MeasuredStart, ...] = ()
    roles: Mapping[str, str] = {}
    """Maps each role that is scaled to the name of its component."""
    undone: tuple[int, int, int] | None = None
    """The size that somebody restored with `ome scale --undo`. The service keeps it until somebody runs `ome scale
    --resume`. None if nobody has restored a size."""
    back: tuple[int, int] | None = None
    """Numbers of prefill and decode groups that the service had before its schedule removed all groups; None if the
    schedule has not done so."""
    problem: str = ""
    """Why the service cannot be scaled with its demand, with a remedy; "" if it can be. A service that cannot be scaled
    keeps its size."""

    def rests_at(self, now: float) -> bool:
        """Return whether the schedule permits at the time `now`, in seconds since the epoch, that the service has no groups:
        the minimum of both roles is 0, in the schedule and in the bounds.
        """
        moment = datetime.fromtimestamp(now, UTC)
        asked = [peak.minimum for peak in self.peaks if peak.contains(moment)]
        return all(
            self.targets.bounds[role].low == 0 and {minimum[role] for minimum in asked if role in minimum} == {0}
            for role in GROUPS
        )

    def targets_at(self, now: float) -> Targets:
        """Return the targets with the minimums of the peaks that cover the time `now`, in seconds since the epoch."""
        moment = datetime.fromtimestamp(now, UTC)
        bounds = dict(self.targets.bounds)
        for peak in self.peaks:
            for role in (role for role in GROUPS if peak.minimum.get(role) and peak.contains(moment)):
                low, high, spare = bounds[role]
                bounds[role] = GroupBounds(min(max(low, peak.minimum[role]), high), high, spare)
        return self.targets._replace(bounds=bounds)
