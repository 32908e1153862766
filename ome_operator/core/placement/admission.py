"""Whose turn it is among the gangs that wait for nodes: pure, from what all services of an operator want and hold.

Nothing is remembered here. A gang that tries has its room promised until it is bound; the others go by priority, then by how
long they have waited. What fits passes what does not, but for ten minutes of forty, in which nodes are kept for a gang that
was passed for half an hour, by turns.
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
"""A role, and the number of a group of it."""


class Idle(NamedTuple):
    """What a service holds for groups that have served, and have found no node for a lost rank in the time of a try."""

    goes: frozenset[Member]
    """These groups."""
    holds: tuple[tuple[str, Room], ...]
    """What their pods hold, by node."""
    missing: tuple[Needs, ...]
    """The pods that would make the service serve with more than now, each of these by itself: those that a group lacks, or a
    group of every role."""
    units: tuple[Needs, ...]
    """The same with the pods that are on nodes, where more than a single group holds nodes: they may keep each other from
    being whole."""
    since: float
    """When the first of them lost its rank, in seconds since the epoch."""


class Claim(NamedTuple):
    """A gang that wants nodes."""

    key: str
    needs: Needs
    trying: bool
    """Whether it is made; else it waits."""
    priority: int = 0
    """As the API server gave it to its pods; 0 while it has had none."""
    first: float = 0.0
    """Since when it has waited, in seconds since the epoch."""
    since: float = 0.0
    """Since when it has waited for this turn."""
    rested: bool = True
    """Whether its pause after a failed try is over."""
    priority_class: str = ""
    serves: bool = False
    """Whether this is room that a service makes for itself, which gives nothing back: no time ends it."""
    failed: bool = False
    """Whether a try ended in this pass."""
    idle: Idle | None = None
    """What it holds for groups that serve nobody, and might give back."""


class Turns(NamedTuple):
    """What each of those that wait is told."""

    granted: Mapping[str, bool]
    """Who may try now -> whether it fits by what is known."""
    waits: Mapping[str, str]
    """The others -> why, beside what is missing; "" where nothing else keeps them."""


def less(node: Node, held: Mapping[str, int]) -> Node:
    """A node with what is free there: allocatable less what pods hold. What it told nothing of stays unknown."""
    return node._replace(room=tuple((resource, max(0, has - held.get(resource, 0))) for resource, has in node.room))


def turns(claims: Iterable[Claim], nodes: Nodes, free: Nodes, now: datetime) -> Turns:
    """Who may try. `free`: the nodes with what is left there."""
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
            known = {other: False for other, fit in known.items() if not fit}  # what had no room has none beside more
        else:
            waits[claim.key] = _why(claim, known[asked], keeper, granted)
    return Turns(granted, waits)


def with_room(free: Nodes, several: Iterable[Needs]) -> dict[str, Node]:
    """The nodes with room for a pod of any of these: others are of no matter, and may be thousands."""
    asked = {need.demand.requests for needs in several for need in needs if need.pods}
    known = dict[Room, bool]()
    for node in free.values():
        if node.room not in known:
            known[node.room] = any(most(requests, node.room, 1) for requests in asked)
    return {name: node for name, node in free.items() if known[node.room]}


def roomy(needs: Needs, free: Nodes) -> Iterator[str]:
    """Nodes with room for a pod of these, by what is known."""
    for name, node in free.items():
        if suit(needs, node) and any(most(need.demand.requests, node.room, 1) for need in needs if need.pods):
            yield name


def has_room(needs: Needs, claims: Iterable[Claim], free: Nodes) -> bool:
    """Whether pods find a place now, beside what is promised to those who try. Pods that hold no node, and are there to be
    seen only, make way as soon as others ask for the nodes.
    """
    promised, blocked = promises([claim for claim in claims if claim.trying and (claim.serves or claim.since)], free)
    ground = Ground(unwanted(free, blocked))
    return bool(ground.nodes) and fits(beside(promised, _plain(needs)), ground)


def contested(needs: Needs, others: Iterable[Claim], nodes: Nodes) -> bool:
    """Whether others want nodes that these pods may go on."""
    rivals = {_plain(claim.needs) for claim in others}
    return bool(rivals) and any(suit(needs, node) and any(suit(other, node) for other in rivals) for node in nodes.values())


def _why(claim: Claim, fit: bool, keeper: Claim | None, granted: Mapping[str, bool]) -> str:
    if fit:
        return "it seemed to fit and did not, so it waits a few minutes"
    if keeper is not None and keeper is not claim:
        return f"nodes are kept for {keeper.key} just now"
    return f"{', '.join(granted)} has its turn" if granted else ""


def _plain(needs: Needs) -> Needs:
    """The same pods, whatever they are called."""
    return merged(tuple(need._replace(components=(), title="") for need in needs if need.pods > 0))


def promises(active: Sequence[Claim], free: Nodes) -> tuple[Needs, list[Claim]]:
    """The room that those who try will take, and which of them have no room: their pods may take any node that suits them,
    for as long as the try lasts. A service that serves and finds no room keeps nobody from nodes.
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
            known[needs] = False  # what has no place beside these has none beside more
            if not claim.serves:
                blocked.append(claim)
    if not blocked:
        return promised, []
    rest = Ground(unwanted(free, blocked))
    return promised if rest.nodes and fits(promised, rest) else (), blocked


def _keeper(waiting: Iterable[Claim], nodes: Nodes, free: Nodes, promised: Needs, now: datetime) -> Claim | None:
    """For whom nodes are kept just now: by the clock, so that a restart changes nothing."""
    window = int(now.timestamp() // timing.RESERVATION.total_seconds())
    if window % 4 != 3:
        return None
    whole, ground = Ground(nodes), Ground(free)
    passed = [claim for claim in waiting if now.timestamp() - claim.first >= timing.RESERVE_AFTER.total_seconds()]
    passed = [claim for claim in passed if fits(claim.needs, whole) and not fits(beside(promised, claim.needs), ground)]
    return passed[window // 4 % len(passed)] if passed else None


def unwanted(free: Nodes, claims: Sequence[Claim]) -> Nodes:
    """The nodes that these gangs do not want."""
    wanted = {_plain(claim.needs) for claim in claims}
    return {name: node for name, node in free.items() if not any(suit(needs, node) for needs in wanted)} if wanted else free


def _blind(claim: Claim, now: datetime) -> bool:
    """Whether it has not tried for so long that it does in any case; not all at the same moment."""
    jitter = int(sha256(claim.key.encode()).hexdigest()[:4], 16) / 0xFFFF * 60
    return now.timestamp() - claim.since >= timing.RETRY_REGARDLESS.total_seconds() + jitter
