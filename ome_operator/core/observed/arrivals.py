"""Read from the reports of routers' registries when requests arrived while a service has no groups, and when its engines
generate tokens after it was woken (docs/scaling.md, "Zero and back").
"""

from collections.abc import Iterable
from typing import NamedTuple

from ome_operator.core.observed.telemetry import RouterReport, WorkRates

APART = 10.0
"""Minimum number of seconds between two reconciliations that are triggered because requests arrive at the same router while
it has no engine."""


class Arrivals(NamedTuple):
    """What the routers of a service report about arriving requests. Times are in seconds since the epoch, by the clock of
    this process.
    """

    unserved_at: float | None = None
    """Time of the last request that arrived while its router had no engine to send it to; None if none is known."""
    token_at: float | None = None
    """Time of the newest reading in which an engine had generated tokens; None if none is known."""


NO_ARRIVALS = Arrivals()


def arrivals(reports: Iterable[RouterReport]) -> Arrivals:
    """Return the arrivals of a service from the reports of its routers. No report may be outdated."""
    reports = [*reports]
    times = [report.unserved_at for report in reports if report.unserved_at is not None]
    works = (leader.work for report in reports for leader in report.leaders.values() if leader.work is not None)
    return Arrivals(max(times, default=None), max((work.at for work in works if _has_tokens(work)), default=None))


def _has_tokens(work: WorkRates) -> bool:
    return bool(work.rates.get("outputTokens") or work.histograms.get("firstToken"))


def last_unserved_time(before: float | None, after: float | None) -> float | None:
    """Return the time of the last request that no engine could serve, for the next reconciliation. `before` is the time that
    was used last, and `after` is the time that was just read. The result is `before` if `after` is None or differs from
    `before` by less than `APART` seconds, and `after` otherwise.

    The times are calculated from ages, so two readings of the same time differ by a second or two. Many requests must not
    cause many reconciliations.
    """
    if before is None or after is None:
        return before if after is None else after
    return after if abs(after - before) >= APART else before
