"""Add up, for each of the last days (UTC), the GPU-hours of a service, and how many of its requests met their target."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ome_operator.core.demand.facts import GROUPS, DemandSample, Fleet, SizeDecision

DAYS = 8
"""Number of days that are kept: the present day and seven days before it."""


class DaySums(NamedTuple):
    """The GPU-hours and the requests of a service on one day."""

    day: str
    """The date, such as 2026-11-28."""
    gpu_hours: float = 0.0
    """GPU-hours of the groups that existed during the day."""
    gpu_hours_wanted: float = 0.0
    """GPU-hours that the service would have used if it had always had the wanted size."""
    requests: float = 0.0
    """Number of requests for which it is known whether they met the target of the time to the first token."""
    met: float = 0.0
    """Number of the requests in `requests` that met the target."""
    met_wanted: float = 0.0
    """Upper bound of the number of requests that would have met the target if the service had always had the wanted size.
    While fewer groups than wanted existed, all requests are counted."""


_FIELDS = {
    "gpuHours": "gpu_hours",
    "gpuHoursWanted": "gpu_hours_wanted",
    "requests": "requests",
    "met": "met",
    "metWanted": "met_wanted",
}


def add_to_days(
    days: Sequence[DaySums], sample: DemandSample, fleet: Fleet, size_decision: SizeDecision, seconds: float
) -> tuple[DaySums, ...]:
    """Return the sums of the days `days` after the last `seconds` seconds have been added to them. In this time, the service
    had the load `sample`, the groups `fleet`, and the wanted size in `size_decision`.
    """
    today = datetime.fromtimestamp(sample.at, UTC).strftime("%Y-%m-%d")
    last = days[-1] if days and days[-1].day == today else DaySums(today)
    before = [day for day in days if day.day != today]
    hours = seconds / 3600
    judged = (sample.arrivals or 0.0) * seconds if sample.late is not None else 0.0
    met = judged * (1 - (sample.late or 0.0))
    lacking = any(fleet.role(role).existing_groups < size_decision.groups_of(role) for role in GROUPS)
    now = last._replace(
        gpu_hours=last.gpu_hours + hours * sum(fleet.role(role).gpus * fleet.role(role).existing_groups for role in GROUPS),
        gpu_hours_wanted=last.gpu_hours_wanted
        + hours * sum(fleet.role(role).gpus * size_decision.groups_of(role) for role in GROUPS),
        requests=last.requests + judged,
        met=last.met + met,
        met_wanted=last.met_wanted + (judged if lacking else met),
    )
    return (*before, now)[-DAYS:]


def to_status(days: Sequence[DaySums]) -> list[dict[str, Any]]:
    """Return the sums of the days in the form of the status."""
    return [
        {"day": day.day, **{name: _rounded(getattr(day, field)) for name, field in _FIELDS.items()}} for day in days[-DAYS:]
    ]


def from_status(stored: Any) -> tuple[DaySums, ...]:
    """Return the sums of the days from a stored status. Invalid entries are skipped, because users can edit the status."""
    found = []
    for one in stored if isinstance(stored, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("day"), str) and len(one["day"]) == 10:
            found.append(DaySums(one["day"], **{field: _number(one.get(name)) for name, field in _FIELDS.items()}))
    return tuple(found[-DAYS:])


def _number(value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if known else 0.0


def _rounded(value: float) -> float:
    found = round(value, 2)
    return int(found) if found == int(found) else found
