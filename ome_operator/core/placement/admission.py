"""Decide which gangs that wait for nodes are admitted: pure, from the claims of all services of an operator.

The decision is stateless. Capacity is reserved for an admitted gang until all of its pods are bound to nodes. The other
gangs are considered by priority, then by how long they have waited. A smaller gang that fits may overtake a larger gang that
does not fit; a gang that has been overtaken for half an hour takes part in a rotation in which nodes are kept free for one
gang at a time, ten minutes of every forty.
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
"""A role and the number of a group of that role."""


class Idle(NamedTuple):
    """Nodes that a service holds for groups that have served, lost a rank, and found no node for it within the time of a
    try.
    """

    goes: frozenset[Member]
    """The groups that hold these nodes."""
    holds: tuple[tuple[str, Room], ...]
    """What the pods of these groups hold, by node."""
    missing: tuple[Needs, ...]
    """The sets of pods each of which, by itself, would let the service serve with more groups than now: the pods that a
    group lacks, or a group of every role."""
    units: tuple[Needs, ...]
    """The same sets including the pods that are on nodes, if several groups hold nodes: these groups may keep each other
    from being complete. Empty otherwise."""
    since: float
    """When the first of these groups lost its rank, in seconds since the epoch."""


class Claim(NamedTuple):
    """The request of a gang for nodes."""

    key: str
    needs: Needs
    trying: bool
    """True if the pods of the gang have been created, False if the gang waits for admission."""
    priority: int = 0
    """The priority that the API server gave to the pods of the gang; 0 before any pod existed."""
    first: float = 0.0
    """When the gang began to wait, in seconds since the epoch."""
    since: float = 0.0
    """When the gang began to wait for its next admission, in seconds since the epoch."""
    rested: bool = True
    """Whether the pause after a failed try is over."""
    priority_class: str = ""
    serves: bool = False
    """Whether a service that already serves makes this capacity available for itself. It gives nothing back, so no timeout
    ends it."""
    failed: bool = False
    """Whether a try ended in this pass."""
    idle: Idle | None = None
    """The nodes that the service holds for groups that serve no requests, and that it could release."""


class Turns(NamedTuple):
    """The admission decision for each gang that waits."""

    granted: Mapping[str, bool]
    """Key of each admitted gang, and whether it fits by what is known of the nodes."""
    waits: Mapping[str, str]
    """Key of each other gang, and why it waits besides missing capacity; "" if nothing else keeps it waiting."""


def less(node: Node, held: Mapping[str, int]) -> Node:
    """Return the node with what is free on it: allocatable minus what pods hold. A resource that the node does not report
    stays unknown.
    """
    return node._replace(room=tuple((resource, max(0, has - held.get(resource, 0))) for resource, has in node.room))


def turns(claims: Iterable[Claim], nodes: Nodes, free: Nodes, now: datetime) -> Turns:
    """Decide which of the waiting claims are admitted.

    `free` holds the nodes with what is left on them.
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
    """Return the nodes with capacity for a pod of any of these needs: there may be thousands of others, and they do not
    matter.
    """
    asked = {need.demand.requests for needs in several for need in needs if need.pods}
    known = dict[Room, bool]()
    for node in free.values():
        if node.room not in known:
            known[node.room] = any(most(requests, node.room, 1) for requests in asked)
    return {name: node for name, node in free.items() if known[node.room]}


def roomy(needs: Needs, free: Nodes) -> Iterator[str]:
    """Yield the names of the nodes that have capacity for a pod of these needs, by what is known of them."""
    for name, node in free.items():
        if suit(needs, node) and any(most(need.demand.requests, node.room, 1) for need in needs if need.pods):
            yield name


def has_room(needs: Needs, claims: Iterable[Claim], free: Nodes) -> bool:
    """Return whether the pods fit now, besides what is reserved for gangs that are being placed.

    Pods of other gangs that exist but hold no node (they remain visible to autoscalers) are not counted: they make way when
    another gang asks for the nodes.
    """
    promised, blocked = promises([claim for claim in claims if claim.trying and (claim.serves or claim.since)], free)
    ground = Ground(unwanted(free, blocked))
    return bool(ground.nodes) and fits(beside(promised, _plain(needs)), ground)


def contested(needs: Needs, others: Iterable[Claim], nodes: Nodes) -> bool:
    """Return whether other claims want nodes that these pods could use."""
    rivals = {_plain(claim.needs) for claim in others}
    return bool(rivals) and any(suit(needs, node) and any(suit(other, node) for other in rivals) for node in nodes.values())


def _why(claim: Claim, fit: bool, keeper: Claim | None, granted: Mapping[str, bool]) -> str:
    if fit:
        return "it seemed to fit and did not, so it waits a few minutes"
    if keeper is not None and keeper is not claim:
        return f"nodes are kept for {keeper.key} just now"
    return f"{', '.join(granted)} has its turn" if granted else ""


def _plain(needs: Needs) -> Needs:
    """Return the same pods without the names of their roles."""
    return merged(tuple(need._replace(components=(), title="") for need in needs if need.pods > 0))


def promises(active: Sequence[Claim], free: Nodes) -> tuple[Needs, list[Claim]]:
    """Return the capacity that active gangs will take, and the active gangs for which there is none.

    The pods of the latter may take any suitable node as long as their try lasts. A service that serves and finds no capacity
    does not block nodes.
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
    """Return the gang for which nodes are kept free now. The clock decides, so a restart changes nothing."""
    window = int(now.timestamp() // timing.RESERVATION.total_seconds())
    if window % 4 != 3:
        return None
    whole, ground = Ground(nodes), Ground(free)
    passed = [claim for claim in waiting if now.timestamp() - claim.first >= timing.RESERVE_AFTER.total_seconds()]
    passed = [claim for claim in passed if fits(claim.needs, whole) and not fits(beside(promised, claim.needs), ground)]
    return passed[window // 4 % len(passed)] if passed else None


def unwanted(free: Nodes, claims: Sequence[Claim]) -> Nodes:
    """Return the nodes that none of these gangs could use."""
    wanted = {_plain(claim.needs) for claim in claims}
    return {name: node for name, node in free.items() if not any(suit(needs, node) for needs in wanted)} if wanted else free


def _blind(claim: Claim, now: datetime) -> bool:
    """Return whether a gang has waited so long that it tries regardless of known capacity. A jitter spreads these tries over
    a minute.
    """
    jitter = int(sha256(claim.key.encode()).hexdigest()[:4], 16) / 0xFFFF * 60
    return now.timestamp() - claim.since >= timing.RETRY_REGARDLESS.total_seconds() + jitter
