"""Whether a service gives back what it holds for groups that serve nobody (decisions 39): pure, from what all want and hold.

It does when somebody is placed then who is not placed now: a service that has waited for a while, another that lost a rank
before it did, or a part of its own, where several of its groups hold nodes and none is whole. A service that would find
its own nodes gives nothing back.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from ome_operator.core.placement.fit import Needs, Nodes, beside
from ome_operator.core.placement.turns import Claim, has_room

MOST = 3
"""Others that are asked about, first who comes first: each costs a look at the nodes."""

Free = Callable[[Collection[str]], Nodes]
"""Keys of services -> the nodes with what is left there without their pods."""


def gives_way(mine: Claim, everybody: Iterable[Claim], free: Free, now: float, patience: float) -> bool:
    """Whether what `mine` holds for groups that serve nobody is given back. `patience`: seconds that others have waited: the
    nodes of a service that gave back a moment ago are on their way to somebody.
    """
    idle, others = mine.idle, [claim for claim in everybody if claim.key != mine.key]
    if idle is None:
        return False
    rivals = [*_first(others, lambda claim: not claim.serves and _waits(claim, now, patience))]
    before = [*_first(others, lambda claim: claim.idle is not None and _lost(claim) < _lost(mine))]
    if not (idle.several or rivals or before):
        return False
    alone = free([mine.key])
    if has_room(beside(idle.keeps, idle.lost), others, alone):
        return False
    if idle.several and has_room(beside(idle.keeps, idle.unit), others, alone):
        return True
    now_free = free([])
    for claim in rivals:
        rest = [other for other in others if other is not claim]
        if not has_room(claim.needs, rest, now_free) and has_room(beside(idle.keeps, claim.needs), rest, alone):
            return True
    return any(_mends(mine, claim, others, free) for claim in before)


def _mends(mine: Claim, other: Claim, others: Iterable[Claim], free: Free) -> bool:
    """Whether another that has lost a rank, too, is whole again in what this service gives back, and not without it."""
    assert mine.idle is not None and other.idle is not None
    rest = [claim for claim in others if claim is not other]
    whole: Needs = beside(other.idle.keeps, other.idle.unit)
    if has_room(whole, rest, free([other.key])):
        return False
    return has_room(beside(mine.idle.keeps, whole), rest, free([mine.key, other.key]))


def _waits(claim: Claim, now: float, patience: float) -> bool:
    """Whether it has waited for so long, without pods or with pods that hold no node, which is no try of so many seconds."""
    return not claim.since if claim.trying else now - claim.since >= patience


def _first(claims: Iterable[Claim], wanted: Callable[[Claim], bool]) -> Iterator[Claim]:
    """A few of those, who comes first first, and of those that want the same a single one."""
    asked = set[Needs]()
    for claim in sorted(filter(wanted, claims), key=lambda claim: (-claim.priority, claim.first, claim.key)):
        if claim.needs not in asked and len(asked) < MOST:
            asked.add(claim.needs)
            yield claim


def _lost(claim: Claim) -> tuple[int, float, str]:
    """The order of those that have lost a rank: of two that could mend each other the later one gives way."""
    return (-claim.priority, claim.idle.since if claim.idle else 0.0, claim.key)
