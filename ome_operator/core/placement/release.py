"""Decide which services release nodes that they hold for groups that serve no requests (decisions 39). The functions are
pure.

A service releases nodes only if pods that are not placed now can then be placed: its own pods, if several of its groups hold
nodes and none of these groups is complete; pods of a service that has waited for a while; or pods of another service that
has lost a rank. A service whose lost ranks would find nodes without a release releases nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ome_operator.core.placement import timing
from ome_operator.core.placement.claims import Claim, IdleNodes, keeps_promise, unclaimed_nodes, with_capacity
from ome_operator.core.placement.fit import Needs, Nodes, NodeSet, all_fit, combine_needs
from ome_operator.core.placement.promises import promises

MOST = 20
"""Largest number of services that could release nodes, and of services that wait, that one decision compares. If there are
more services, successive decisions compare different services."""


def giving_way(claims: Iterable[Claim], nodes: Nodes, now: float, patience: float) -> frozenset[str]:
    """Return the keys of the services that have to release nodes now.

    `nodes` holds the nodes with their free capacity. `now` is the time in seconds since the epoch. `patience` is the number
    of seconds that a service has to wait before other services release nodes for it.
    """
    everybody = list(claims)
    lost = [claim for claim in everybody if claim.idle]
    if not lost:
        return frozenset()
    turn = int(now // timing.ROTATION)
    stranded = _some(lost, turn)
    waiting = _some([each for each in everybody if may_request_release(each, now, patience)], turn // _windows(lost))
    tries = [claim for claim in everybody if claim.trying and not claim.idle and keeps_promise(claim, now, patience)]
    taken, blocked = promises(tries, nodes)
    capacity = _FreeCapacity(unclaimed_nodes(nodes, blocked), taken, [*stranded, *waiting])
    stranded = [claim for claim in stranded if claim.idle and not _comes(claim.idle, capacity, now)]
    for claim in reversed(stranded):
        if claim.idle and any(capacity.fits_after_release(unit, [claim]) for unit in claim.idle.units):
            return frozenset({claim.key})
    for needs, claim in _wanting(stranded, waiting):
        if not capacity.fits_after_release(needs):
            holders = [other for other in reversed(stranded) if _may_release(other, claim, capacity)]
            if found := _least(needs, holders, capacity):
                return found
    return frozenset()


def _comes(idle: IdleNodes, capacity: "_FreeCapacity", now: float) -> bool:
    """Return whether the ranks that a service has lost would find nodes without a release, as far as the free capacity is
    known. The result is always False when `timing.RECOVERY_EXPECTED` seconds have passed since the loss.
    """
    return now - idle.since < timing.RECOVERY_EXPECTED and any(map(capacity.fits_after_release, idle.missing))


class _FreeCapacity:
    """The free capacity of nodes, and the capacity that services could release."""

    def __init__(self, nodes: Nodes, taken: Needs, claims: Sequence[Claim]) -> None:
        held = {node for claim in claims if claim.idle for node, _ in claim.idle.holds}
        asked = [taken, *(needs for claim in claims for needs in _asked(claim))]
        self._nodes = with_capacity(nodes, asked) | {name: nodes[name] for name in held if name in nodes}
        self._taken = taken

    def fits_after_release(self, needs: Needs, holders: Sequence[Claim] = ()) -> bool:
        """Return whether the pods `needs` fit, next to the reserved capacity, once the services `holders` have released
        their nodes.
        """
        released: dict[str, Counter[str]] = {}
        for holder in holders:
            for name, amounts in holder.idle.holds if holder.idle else ():
                released.setdefault(name, Counter()).update(dict(amounts))
        nodes = {**self._nodes, **_with(self._nodes, released)}
        ground = NodeSet(nodes)
        return bool(nodes) and all_fit(needs, ground) and all_fit(combine_needs(self._taken, needs), ground)


def _with(nodes: Nodes, released: Mapping[str, Mapping[str, int]]) -> Nodes:
    return {
        name: nodes[name]._replace(room=tuple((what, has + amounts.get(what, 0)) for what, has in nodes[name].room))
        for name, amounts in released.items()
        if name in nodes
    }


def _asked(claim: Claim) -> tuple[Needs, ...]:
    return (*claim.idle.missing, *claim.idle.units) if claim.idle else (claim.needs,)


def _wanting(stranded: Sequence[Claim], waiting: Sequence[Claim]) -> list[tuple[Needs, Claim]]:
    """Return the sets of pods for which nodes could be released, each with the claim that it belongs to, in order of
    precedence of the claims: the pods of services that wait, and the pods that services with lost ranks lack.
    """
    found = [(claim.needs, claim) for claim in waiting]
    found += [(lack, claim) for claim in stranded if claim.idle for lack in claim.idle.missing]
    return sorted(found, key=lambda each: precedence_order(each[1]))


def _may_release(holder: Claim, other: Claim, capacity: _FreeCapacity) -> bool:
    """Return whether the service `holder` may release nodes for the service `other`.

    A service never releases nodes for a service of lower priority. Of two services that have lost a rank, the service that
    comes later in precedence releases nodes. The earlier service releases nodes only if the nodes of the later service would
    not make the earlier service complete.
    """
    if holder.key == other.key or holder.priority > other.priority or holder.idle is None:
        return False
    if other.idle is None or precedence_order(holder) > precedence_order(other):
        return True
    return not any(capacity.fits_after_release(lack, [other]) for lack in holder.idle.missing)


def _least(needs: Needs, holders: Sequence[Claim], capacity: _FreeCapacity) -> frozenset[str]:
    """Return the keys of the services that have to release nodes so that the pods `needs` fit. Services are tried in the
    order of `holders`, and a service is left out if the nodes of the other services suffice. The result is empty if the
    nodes of all services in `holders` together do not suffice.
    """
    if not holders or not capacity.fits_after_release(needs, holders):
        return frozenset()
    count = next(count for count in range(1, len(holders) + 1) if capacity.fits_after_release(needs, holders[:count]))
    found = list(holders[:count])
    for holder in holders[:count]:
        others = [other for other in found if other is not holder]
        if others and capacity.fits_after_release(needs, others):
            found = others
    return frozenset(holder.key for holder in found)


def may_request_release(claim: Claim, now: float, patience: float) -> bool:
    """Return whether other services may release nodes for this claim.

    They may do so in two cases: the gang has waited for `patience` seconds without pods, or the time limit of its placement
    attempt has passed and none of its pods has a node. The duration of the wait is the absolute difference between `now` and
    the beginning of the wait, because this beginning is in the future if a clock was set back.
    """
    return not claim.serves and (not claim.since if claim.trying else abs(now - claim.since) >= patience)


def precedence_order(claim: Claim) -> tuple[int, float, str]:
    """Return the sort key of precedence: higher priority first, then the claim that has waited, or has lacked a rank, for
    longer.
    """
    return (-claim.priority, claim.idle.since if claim.idle else claim.first, claim.key)


def _some(claims: Sequence[Claim], turn: int) -> list[Claim]:
    """Return one part of the claims: at most MOST of them, in order of precedence. `turn` is the number of the part. After
    the last part, the first part is returned again, so all claims are compared as `turn` increases.
    """
    start = turn % _windows(claims) * MOST
    return sorted(claims, key=precedence_order)[start : start + MOST]


def _windows(claims: Sequence[Claim]) -> int:
    return -(-len(claims) // MOST) or 1
