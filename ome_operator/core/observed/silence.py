"""Determine from the reports of routers' registries which leaders are silent, and which are paused (docs/telemetry.md). A
silent leader answers no probes of the registries; a paused leader reports that its generation is paused. Recovery uses
the result.

The report of a single registry does not suffice, because the network of the registry may have failed. A leader is silent
only if the registries of all routers of its revision report it as silent, and if none of these reports is old.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from ome_operator.core.observed.telemetry import RouterReport, is_fresh

JUST_STARTED = 60.0
"""Seconds after the start of a registry or of the operator in which reports that a leader is silent are ignored."""
AT_ONCE = 60.0
"""Seconds within which leaders of many services have to become silent for the operator to assume a common cause."""
SERVICES, SHARE = 3, 0.1
"""A common cause is assumed if leaders of more than `SERVICES` services, and of at least the share `SHARE` of all services,
become silent within `AT_ONCE` seconds."""


class Silence(NamedTuple):
    """What is known about a leader that answers no probes of the registries, or whose token generation is paused."""

    since: float | None
    """Time since which no registry has had an answer from the leader, in seconds since the epoch; None if the leader
    answers but its token generation is paused."""
    requests_fail: bool = False
    """Whether a router of the revision has answered requests with a status of 500 or more in the last minute."""
    hold: str = ""
    """Why groups whose leaders are silent are not recycled now, as a sentence; "" if they are recycled."""

    @property
    def is_paused(self) -> bool:
        """Whether the engine reports that its generation is paused."""
        return self.since is None


def silence_of(reports: Sequence[RouterReport | None], mark: str, now: float) -> Silence | None:
    """Return what is known about the leader with the mark `mark` (`names.public_digest` of its UID); None if it is not known
    to be silent or paused. `reports` has an entry for each router of the leader's revision: None for a router without a
    usable report.
    """
    known = [report for report in reports if report is not None and is_fresh(report.at, now)]
    leaders = [report.leaders[mark] for report in known if mark in report.leaders]
    if any(leader.is_paused for leader in leaders):
        return Silence(None)
    found = [leader.silence for leader in leaders if leader.silence is not None and is_fresh(leader.silence.at, now)]
    if not reports or len(found) < len(reports) or any((report.up_for or 0.0) < JUST_STARTED for report in known):
        return None
    works = [report.work for report in known if report.work is not None and is_fresh(report.work.at, now)]
    return Silence(max(each.since for each in found), any(work.rates.get("errors", 0.0) > 0 for work in works))


def hold_reason(silent: Collection[Collection[float]], up_for: float) -> str:
    """Return why groups whose leaders are silent are not recycled now, as a sentence; "" if they are recycled.

    `silent` contains, for each service whose routers report, the times since which its leaders are silent. `up_for` is the
    number of seconds since the operator began to request summaries from the routers.
    """
    if up_for < JUST_STARTED:
        return f"the operator has been requesting the routers' reports for less than {JUST_STARTED:.0f} s"
    most = max((_within(silent, since) for since in chain.from_iterable(silent)), default=0)
    if most > SERVICES and most >= SHARE * len(silent):
        return (
            f"leaders of {most} of {len(silent)} services stopped answering within {AT_ONCE:.0f} s, so a common cause is "
            "likely: check what these services share, such as the network"
        )
    return ""


def _within(silent: Iterable[Iterable[float]], begin: float) -> int:
    """Return the number of services with a leader that became silent within `AT_ONCE` seconds after `begin`."""
    return sum(any(begin <= since <= begin + AT_ONCE for since in times) for times in silent)
