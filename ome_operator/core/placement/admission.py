"""Decide which of the gangs that wait for nodes are admitted. The functions are pure: their input is the claims of all
services of an operator.

The decision is stateless. Capacity is reserved for an admitted gang until all of its pods are bound to nodes. The other
gangs are considered in order of priority, then of waiting time. A smaller gang that fits may overtake a larger gang that
does not fit. For gangs that have waited for half an hour and still do not fit, nodes are kept free in rotation: for one gang
at a time, ten minutes of every forty.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement import timing
from ome_operator.core.placement.fit import Ground, Needs, Nodes, beside, fits, merged, suit
from ome_operator.core.placement.packing import most

Room = tuple[tuple[str, int], ...]
Member = tuple[str, int]
"""A group of a service: its role, and its number within the role."""


class Idle(NamedTuple):
    """Nodes that a service holds although the groups on these nodes cannot serve requests, because a rank was lost and
    found no node within the time limit of a placement attempt.
    """

    goes: frozenset[Member]
    """The groups on these nodes, which are removed if the service releases the nodes."""
    holds: tuple[tuple[str, Room], ...]
    """The name of each of these nodes, and the amounts of resources that the pods of the groups request on the node."""
    missing: tuple[Needs, ...]
    """Sets of pods. Placing any one of these sets would let the service serve with more groups than now. A set contains
    the pods that one group lacks or, if the service serves no requests at all, the pods that one group of every role
    lacks."""
    units: tuple[Needs, ...]
    """The sets of `missing`, extended by the pods that are on nodes already, if several groups hold nodes: each of these
    groups may keep the others from being complete. Empty if at most one group holds nodes."""
    since: float
    """When the first of these groups lost its rank, in seconds since the epoch."""


class Claim(NamedTuple):
    """The request of a service for nodes, for the pods of a gang."""

    key: str
    needs: Needs
    trying: bool
    """True if the pods of the gang have been created, False if the gang waits for admission."""
    priority: int = 0
    """The priority that the API server gave to the pods of the gang; 0 before the first pod was created."""
    first: float = 0.0
    """When the gang began to wait for nodes, in seconds since the epoch; 0 if it has never waited. Later placement
    attempts do not change this time."""
    since: float = 0.0
    """When the present placement attempt, or the wait for the next attempt, began, in seconds since the epoch; 0 if the
    time of the attempt is over and no pod of the gang has a node."""
    rested: bool = True
    """Whether the pause after the last failed placement attempt is over."""
    priority_class: str = ""
    serves: bool = False
    """True for a service that already serves and makes this capacity available for itself (by a rollout, a recycle or a
    recovery). Such a claim is never withdrawn because of a timeout."""
    failed: bool = False
    """Whether a placement attempt of the gang failed in this pass."""
    idle: Idle | None = None
    """The nodes that the service could release because the groups on these nodes serve no requests; None if there are no
    such nodes."""


class Turns(NamedTuple):
    """The admission decision for each gang that waits for nodes."""

    granted: Mapping[str, bool]
    """The admitted gangs: the key of each claim, and whether the gang fits on the nodes as far as their free capacity is
    known."""
    waits: Mapping[str, str]
    """The gangs that continue to wait: the key of each claim, and a reason other than missing capacity, or "" if there is
    no other reason."""


def less(node: Node, held: Mapping[str, int]) -> Node:
    """Return the node with its free capacity: the allocatable amounts minus `held`, the amounts that pods hold. A
    resource that the node does not report stays unknown.
    """
    return node._replace(room=tuple((resource, max(0, has - held.get(resource, 0))) for resource, has in node.room))


def turns(claims: Iterable[Claim], nodes: Nodes, free: Nodes, now: datetime) -> Turns:
    """Decide which of the claims that wait for admission are admitted.

    `nodes` holds the nodes as if they were empty, `free` the same nodes with their free capacity.
    """
    everybody = sorted(claims, key=lambda claim: (-claim.priority, claim.first, claim.key))
    waiting = [claim for claim in everybody if not claim.trying]
    promised, blocked = promises([claim for claim in everybody if claim.trying], free)
    keeper = _keeper(waiting, nodes, free, promised, now)
    left = with_room(free, [promised, *(claim.needs for claim in waiting)])
    ground = Ground(unwanted(left, blocked))
    kept = Ground(unwanted(left, [*blocked, keeper])) if keeper is not None else ground
    active = [claim for claim in everybody if claim.trying and not claim.serves]
    known: dict[tuple[Needs, bool], bool] = {}
    granted, waits = dict[str, bool](), dict[str, str]()
    for claim in waiting:
        here = ground if claim is keeper else kept
        asked = _plain(claim.needs), here is kept
        if asked not in known:
            known[asked] = bool(here.nodes) and fits(asked[0], here) and fits(beside(promised, asked[0]), here)
        if (known[asked] and claim.rested) or (_blind(claim, now) and not contested(claim.needs, active, nodes)):
            granted[claim.key] = known[asked]
            promised = merged(beside(promised, asked[0]))
            active.append(claim._replace(trying=True))
            known = {
                other: False for other, fit in known.items() if not fit
            }  # what did not fit before does not fit with less capacity left
        else:
            waits[claim.key] = _why(claim, known[asked], keeper, granted)
    return Turns(granted, waits)


def with_room(free: Nodes, several: Iterable[Needs]) -> dict[str, Node]:
    """Return the nodes that have capacity for at least one pod of these needs. A cluster may have thousands of other
    nodes, which cannot change the decision.
    """
    asked = {need.demand.requests for needs in several for need in needs if need.pods}
    known = dict[Room, bool]()
    for node in free.values():
        if node.room not in known:
            known[node.room] = any(most(requests, node.room, 1) for requests in asked)
    return {name: node for name, node in free.items() if known[node.room]}


def roomy(needs: Needs, free: Nodes) -> Iterator[str]:
    """Yield the names of the nodes that accept at least one pod of these needs and have capacity for it, as far as their
    free capacity is known.
    """
    for name, node in free.items():
        if suit(needs, node) and any(most(need.demand.requests, node.room, 1) for need in needs if need.pods):
            yield name


def has_room(needs: Needs, claims: Iterable[Claim], free: Nodes) -> bool:
    """Return whether the pods fit now, next to the capacity that is reserved for gangs that are being placed.

    No capacity is reserved for a gang whose placement attempt is over and whose pods have no node. These pods still exist so
    that autoscalers see them, and are removed when another gang needs the nodes.
    """
    promised, blocked = promises([claim for claim in claims if claim.trying and (claim.serves or claim.since)], free)
    ground = Ground(unwanted(free, blocked))
    return bool(ground.nodes) and fits(beside(promised, _plain(needs)), ground)


def contested(needs: Needs, others: Iterable[Claim], nodes: Nodes) -> bool:
    """Return whether one of the claims `others` could use a node that these pods could use."""
    rivals = {_plain(claim.needs) for claim in others}
    return bool(rivals) and any(suit(needs, node) and any(suit(other, node) for other in rivals) for node in nodes.values())


def _why(claim: Claim, fit: bool, keeper: Claim | None, granted: Mapping[str, bool]) -> str:
    if fit:
        return (
            "its pods could not be scheduled although capacity seemed sufficient; the next attempt is made in a few minutes"
        )
    if keeper is not None and keeper is not claim:
        return f"nodes are reserved for {keeper.key} at present"
    return f"{', '.join(granted)} is being placed first" if granted else ""


def _plain(needs: Needs) -> Needs:
    """Return the same pods without the names of their roles, so that the needs of different services can be compared."""
    return merged(tuple(need._replace(components=(), title="") for need in needs if need.pods > 0))


def promises(active: Sequence[Claim], free: Nodes) -> tuple[Needs, list[Claim]]:
    """Return the capacity that the active gangs will take, and the active gangs that do not fit on the free nodes.

    The pods of a gang that does not fit may take any suitable node as long as its placement attempt lasts. A service that
    already serves is not returned among these gangs, so that it keeps no nodes from other services.
    """
    left = with_room(free, [claim.needs for claim in active])
    ground, known = Ground(left), dict[Needs, bool]()
    room, blocked = list[tuple[Claim, Needs]](), list[Claim]()
    for claim in active:
        needs = _plain(claim.needs)
        if needs not in known:
            known[needs] = bool(left) and fits(needs, ground)
        if known[needs]:
            room.append((claim, needs))
        elif not claim.serves:
            blocked.append(claim)
    promised = merged(beside(*(needs for _, needs in room)))
    if not fits(promised, ground):
        promised = ()
        for claim, needs in room:
            if known[needs] and fits(more := merged(beside(promised, needs)), ground):
                promised = more
                continue
            known[needs] = False  # what does not fit next to these does not fit next to more
            if not claim.serves:
                blocked.append(claim)
    if not blocked:
        return promised, []
    rest = Ground(unwanted(free, blocked))
    return promised if rest.nodes and fits(promised, rest) else (), blocked


def _keeper(waiting: Iterable[Claim], nodes: Nodes, free: Nodes, promised: Needs, now: datetime) -> Claim | None:
    """Return the gang for which nodes are kept free at this time; None if there is none. The choice depends only on the
    time and the claims, so a restart of the operator does not change it.
    """
    window = int(now.timestamp() // timing.RESERVATION.total_seconds())
    if window % 4 != 3:
        return None
    whole, ground = Ground(nodes), Ground(free)
    passed = [claim for claim in waiting if now.timestamp() - claim.first >= timing.RESERVE_AFTER.total_seconds()]
    passed = [claim for claim in passed if fits(claim.needs, whole) and not fits(beside(promised, claim.needs), ground)]
    return passed[window // 4 % len(passed)] if passed else None


def unwanted(free: Nodes, claims: Sequence[Claim]) -> Nodes:
    """Return the nodes that no pod of these claims could use, regardless of the capacity of the nodes."""
    wanted = {_plain(claim.needs) for claim in claims}
    return {name: node for name, node in free.items() if not any(suit(needs, node) for needs in wanted)} if wanted else free


def _blind(claim: Claim, now: datetime) -> bool:
    """Return whether a gang has waited so long that it is admitted regardless of the known capacity. A jitter of up to a
    minute spreads the admissions of different gangs.
    """
    jitter = int(sha256(claim.key.encode()).hexdigest()[:4], 16) / 0xFFFF * 60
    return now.timestamp() - claim.since >= timing.RETRY_REGARDLESS.total_seconds() + jitter
