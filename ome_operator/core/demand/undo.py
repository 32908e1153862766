"""Go back to the size before the last decision (`ome scale SERVICE --undo`, docs/demand.md)."""

from collections.abc import Mapping, Sequence
from typing import Any

from ome_operator import keys
from ome_operator.core.demand.facts import DECODE, PREFILL, ROUTER
from ome_operator.core.demand.limits import limit_to_budget
from ome_operator.core.demand.task import DemandTask

NAMES = ("prefill", "decode", "routers")
"""The numbers of a size in the order in which they are written."""
MOST = 1000
"""Largest number of groups or routers that is accepted in the annotation that `ome scale --undo` writes."""

Size = tuple[int, int, int]
"""The numbers of prefill groups, decode groups and routers."""


def text(size: Size) -> str:
    """Return a size as it is written in the annotation of a service, such as `prefill=2,decode=1,routers=1`."""
    return ",".join(f"{name}={number}" for name, number in zip(NAMES, size, strict=True))


def size_of(written: str) -> Size | None:
    """Return the size in the value of the annotation; None if the value is not in the format of `text`, or if a number is 0
    or above `MOST`.
    """
    parts = dict(part.strip().partition("=")[::2] for part in written.split(","))
    if parts.keys() != {*NAMES} or not all(each.isascii() and each.isdigit() and len(each) <= 4 for each in parts.values()):
        return None
    prefill, decode, routers = (int(parts[name]) for name in NAMES)
    return (prefill, decode, routers) if all(0 < each <= MOST for each in (prefill, decode, routers)) else None


def size_before(decisions: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> tuple[Size, str] | None:
    """Return the size before the last decision, and the time of the newest decision that had this size; None if the size
    before the last decision is not known.

    `decisions` and `wanted` are the fields of `status.scaling`; the newest decision is the last. Decisions with the present
    size are skipped, because they changed only the reason. Sizes that contain a 0 are also skipped.
    """
    present = size_in(wanted)
    for one in reversed(decisions):
        size = size_in(one)
        if size is not None and size != present and min(size) > 0:
            return size, str(one.get("time") or "")
    return None


def size_in(one: Mapping[str, Any]) -> Size | None:
    """Return the size in `one`, which is a decision or the field `wanted` of `status.scaling`; None if a number is
    missing.
    """
    numbers = [number for name in NAMES if type(number := one.get(name)) is int]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == len(NAMES) else None


def written_limits(size: Size, spec: Mapping[str, Any]) -> Size:
    """Return the size limited to `minReplicas` and `maxReplicas`, as far as the spec of the service sets them. Unlike
    `limit_to_bounds`, this function considers neither the budget of GPUs nor the bounds that a runtime sets, because it
    reads only the service.
    """
    found = []
    for number, component in zip(size, (keys.ENGINE, keys.DECODER, keys.ROUTER), strict=True):
        role = spec.get(component) or {}
        low, high = (role.get(field) for field in ("minReplicas", "maxReplicas"))
        least = max(number, low) if type(low) is int else number
        found.append(min(least, high) if type(high) is int else least)
    return found[0], found[1], found[2]


def limit_to_bounds(size: Size, task: DemandTask) -> Size:
    """Return the size, limited to the bounds of the roles and to the budget of GPUs. Minimums of the schedule are
    ignored.
    """
    roles = zip((PREFILL, DECODE, ROUTER), size, strict=True)
    prefill, decode, routers = (task.targets.bounds[role].clamp(number) for role, number in roles)
    return (*limit_to_budget((prefill, decode), task.fleet, task.targets), routers)
