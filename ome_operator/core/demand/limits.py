"""Limit a size by the minimum and maximum of each role, by the capacity of the nodes, and by the budget of GPUs."""

import math
from collections.abc import Collection, Mapping, Sequence

from ome_operator.core.demand.estimate import NeededGroups
from ome_operator.core.demand.facts import DECODE, GROUPS, PREFILL, ROUTER, DemandSample, Fleet, GroupBounds, Targets
from ome_operator.core.demand.holds import HoldReason


def first_steps(need: NeededGroups, fleet: Fleet, roles: Collection[str]) -> NeededGroups:
    """Return the needed groups, limited for each role in `roles` to twice the number of groups that serve now. The estimate
    for these roles is derived from a single measurement and may be far too large. The added groups provide further
    measurements.
    """
    prefill, decode = (
        min(number, 2 * max(1, fleet.role(role).ready)) if number is not None and role in roles else number
        for role, number in zip(GROUPS, need, strict=True)
    )
    return NeededGroups(prefill, decode)


def limit_groups(need: NeededGroups, fleet: Fleet, targets: Targets) -> tuple[tuple[int, int], str]:
    """Return the permitted numbers of prefill and decode groups, and the reason (`HoldReason`) if fewer groups are permitted
    than needed ("" if as many are permitted). `need` must not contain None.
    """
    hold = ""
    size = list[int]()
    for role, number in zip(GROUPS, need, strict=True):
        bounds, room = targets.bounds[role], fleet.role(role).room
        asked = max((number or 0) + bounds.spare, bounds.low)
        if asked > bounds.high:
            asked, hold = bounds.high, HoldReason.MAXIMUM
        if room is not None and asked > room:
            asked, hold = max(room, bounds.low), HoldReason.NO_ROOM
        size.append(asked)
    found = limit_to_budget((size[0], size[1]), fleet, targets)
    return found, HoldReason.BUDGET if found != tuple(size) else hold


def at_maximum(need: NeededGroups, targets: Targets) -> dict[str, int]:
    """Return the maximum of each role whose needed groups, including spare groups, exceed the maximum."""
    wanted = {role: (number or 0) + targets.bounds[role].spare for role, number in zip(GROUPS, need, strict=True)}
    return {role: targets.bounds[role].high for role in GROUPS if wanted[role] > targets.bounds[role].high}


def limit_to_budget(wanted: tuple[int, int], fleet: Fleet, targets: Targets) -> tuple[int, int]:
    """Return the numbers of groups that the budget permits. Groups are subtracted from `wanted` one by one, from the role
    that still has the larger fraction of its wanted groups, so that both roles can serve about the same fraction of the
    demand. Each role keeps its minimum, and at least one group.
    """
    size = dict(zip(GROUPS, wanted, strict=True))
    while _beyond_budget(size, fleet, targets):
        givers = [role for role in GROUPS if size[role] > max(1, targets.bounds[role].low)]
        if not givers:
            break
        parts = {role: size[role] / max(1, want) for role, want in zip(GROUPS, wanted, strict=True)}
        size[max(givers, key=lambda role: parts[role])] -= 1
    return size[PREFILL], size[DECODE]


def grow_groups(present: tuple[int, int], wanted: tuple[int, int], fleet: Fleet, targets: Targets) -> tuple[int, int]:
    """Return the numbers of groups after this step: the present numbers, increased towards `wanted` as far as the budget of
    GPUs permits.

    Groups that are no longer needed are removed one at a time. Until they are gone, the budget may permit fewer new groups
    than wanted. The role that lacks the larger fraction of its groups comes first.
    """
    size = dict(zip(GROUPS, present, strict=True))
    aim = dict(zip(GROUPS, wanted, strict=True))
    while lacking := [role for role in GROUPS if size[role] < aim[role]]:
        role = min(lacking, key=lambda role: size[role] / aim[role])
        size[role] += 1
        if _beyond_budget(size, fleet, targets):
            size[role] -= 1
            aim[role] = size[role]
    return size[PREFILL], size[DECODE]


def raise_to_minimum(present: tuple[int, int], fleet: Fleet, targets: Targets) -> tuple[int, int]:
    """Return the present numbers of groups, increased to the minimum of each role as far as the budget of GPUs permits."""
    prefill, decode = (max(have, targets.bounds[role].low) for role, have in zip(GROUPS, present, strict=True))
    return grow_groups(present, (prefill, decode), fleet, targets)


def _beyond_budget(size: Mapping[str, int], fleet: Fleet, targets: Targets) -> bool:
    return targets.gpus is not None and sum(fleet.role(role).gpus * size[role] for role in GROUPS) > targets.gpus


def routers(samples: Sequence[DemandSample], targets: Targets, present: int) -> int:
    """Return the number of routers for the largest number of requests in flight in the samples, within the bounds; `present`
    if this number is unknown, or if routers are not scaled.
    """
    bounds = targets.bounds.get(ROUTER, GroupBounds(present, present))
    flights = [one.in_flight for one in samples if one.in_flight is not None]
    asked = math.ceil(max(flights) / targets.in_flight_of_a_router) if targets.in_flight_of_a_router and flights else present
    return bounds.clamp(asked)
