"""Decide which of the gangs that wait for nodes are admitted. The functions are pure: their input is the claims of all
services of an operator.

The decision is stateless. Capacity is promised to an admitted gang until all of its pods are bound to nodes, for at most the
time limit of a placement attempt. The gangs that wait are considered in the order of their standing (how much promised
capacity they left unused), then of their priority, then of their waiting time. A gang that fits may be admitted before a
gang that does not fit, but not before a gang that will fit once the present attempts have ended. For gangs that have waited
for half an hour, nodes are kept free in rotation: for one gang at a time, eight minutes of every 32.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from ome_operator.core.placement import timing
from ome_operator.core.placement.claims import (
    GOOD,
    Claim,
    is_contested,
    keeps_promise,
    unclaimed_nodes,
    waiting_order,
    with_capacity,
    without_role_names,
)
from ome_operator.core.placement.fit import Needs, Nodes, NodeSet, all_fit, combine_needs, find_unplaced
from ome_operator.core.placement.promises import Capacity, promises

NAMED = 3
"""Largest number of gangs with promised capacity that a message names."""


class GangAdmissions(NamedTuple):
    """The admission decision for each gang that waits for nodes."""

    admitted: Mapping[str, bool]
    """Maps the key of the claim of each admitted gang to whether the gang fits on the nodes, as far as their free capacity
    is known."""
    waits: Mapping[str, str]
    """Maps the key of the claim of each gang that continues to wait to the reason; "" if the only reason is missing
    capacity."""


def may_speculate(now: datetime, timeout: float) -> bool:
    """Return whether gangs that do not seem to fit may be admitted now. They may be admitted in the first
    `timing.SPECULATION` of each period, and their placement attempts will probably fail. Each period is longer than
    `timeout` seconds, the time limit of an attempt, so all of these attempts have ended before the next period begins, and
    gangs that fit can be admitted in between.
    """
    begins = timing.SPECULATION.total_seconds()
    return now.timestamp() % (2 * begins + timeout) < begins


def admit(claims: Iterable[Claim], nodes: Nodes, free: Nodes, now: datetime, timeout: float) -> GangAdmissions:
    """Decide which of the gangs that wait for admission are admitted. `claims` are the claims of all services, `now` is the
    present time.

    nodes       The nodes as if they were empty.
    free        The same nodes with their free capacity.
    timeout     Seconds within which all pods of a gang have to be bound to nodes.
    """
    everybody = sorted(claims, key=waiting_order)
    waiting = [claim for claim in everybody if not claim.trying]
    active = [claim for claim in everybody if claim.trying and keeps_promise(claim, now.timestamp(), timeout)]
    keeper = _keeper(waiting, nodes, now)
    room = Capacity(
        with_capacity(free, [*(claim.promise for claim in active), *(claim.needs for claim in waiting)]), active, keeper
    )
    granted, waits, passed, slot = dict[str, bool](), dict[str, str](), list[Claim](), may_speculate(now, timeout)
    for claim in waiting:
        fit = room.fits_now(claim)
        held_up = fit and not slot and _behind(claim, passed, nodes)
        if fit and claim.rested and not held_up:
            granted[claim.key] = True
            room.grant(claim)
            continue
        first = claim.rested and not fit and room.reserve(claim)
        passed.append(claim)
        waits[claim.key] = _why(claim, fit and not held_up, room.reserved_by(claim) if first else (), keeper, granted)
    for claim in passed if slot else ():
        if _blind(claim, now) and not is_contested(claim.needs, room.attempts(claim), nodes):
            granted[claim.key] = room.fits_now(claim)
            room.grant(claim)
            del waits[claim.key]
    return GangAdmissions(granted, waits)


def has_capacity(needs: Needs, promised: Sequence[Claim], free: Nodes) -> bool:
    """Return whether the pods `needs` fit on the free nodes now, next to the capacity that is promised to the claims
    `promised`.
    """
    taken, blocked = promises(promised, free)
    ground = NodeSet(unclaimed_nodes(free, blocked))
    return bool(ground.nodes) and all_fit(combine_needs(taken, without_role_names(needs)), ground)


def _behind(claim: Claim, passed: Sequence[Claim], nodes: Nodes) -> bool:
    """Return whether the gang of `claim` has to wait because a gang in `passed` has a better standing, would fit on the
    nodes if they were empty, and could use a node that the gang of `claim` could use, too. `passed` contains the gangs that
    were considered earlier and were not admitted.
    """
    better = [other for other in passed if other.standing < claim.standing and not find_unplaced(other.needs, nodes)]
    return bool(better) and is_contested(claim.needs, better, nodes)


def _why(claim: Claim, fit: bool, before: Sequence[str], keeper: Claim | None, granted: Mapping[str, bool]) -> str:
    if fit:
        return (
            "its pods could not be scheduled although capacity seemed sufficient; the operator makes the next attempt in "
            "a few minutes"
        )
    if keeper is not None and keeper is not claim:
        return f"nodes are reserved for {keeper.key} at present"
    if before:
        return f"capacity is reserved for {', '.join(before[:NAMED])} until the present attempt ends"
    return f"{', '.join(granted)} is being placed first" if granted else ""


def _keeper(waiting: Iterable[Claim], nodes: Nodes, now: datetime) -> Claim | None:
    """Return the claim of the gang for which nodes are kept free at the time `now`; None if there is no such gang. The
    choice depends only on the time and the claims, so a restart of the operator does not change it. A gang that did not use
    capacity that was promised to it, or whose pods could not be created, is never chosen.
    """
    window = int(now.timestamp() // timing.RESERVATION.total_seconds())
    if window % 4 != 3:
        return None
    whole, patience = NodeSet(nodes), timing.RESERVE_AFTER.total_seconds()
    passed = [claim for claim in waiting if now.timestamp() - claim.first >= patience]
    passed = [claim for claim in passed if claim.standing == GOOD and not claim.refused and all_fit(claim.needs, whole)]
    return passed[window // 4 % len(passed)] if passed else None


def _blind(claim: Claim, now: datetime) -> bool:
    """Return whether a gang has waited so long that it is admitted regardless of the known capacity. The necessary time
    differs between gangs by up to a minute, so that they are not all admitted at the same time.
    """
    jitter = int(sha256(claim.key.encode()).hexdigest()[:4], 16) / 0xFFFF * 60
    return now.timestamp() - claim.since >= timing.RETRY_REGARDLESS.total_seconds() + jitter
