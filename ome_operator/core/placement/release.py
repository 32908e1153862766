"""Which services give back what they hold for groups that serve nobody (decisions 39): pure, from what all want and hold.

They do when somebody is placed then who is not placed now: a part of their own, where several of their groups hold nodes
and none is whole; a service that has waited for a while; or another that has lost a rank. A service that would find its
own nodes gives nothing back.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ome_operator.core.placement import timing
from ome_operator.core.placement.admission import Claim, Idle, promises, unwanted, with_room
from ome_operator.core.placement.fit import Ground, Needs, Nodes, beside, fits

MOST = 20
"""Services of each kind that are looked at in a decision; others have their turn with the clock."""


def giving_way(claims: Iterable[Claim], nodes: Nodes, now: float, patience: float) -> frozenset[str]:
    """Keys of the services that give back what they hold for nobody now. `nodes` with what is free there. `patience`:
    seconds that others have waited first.
    """
    everybody = list(claims)
    lost = [claim for claim in everybody if claim.idle]
    if not lost:
        return frozenset()
    turn = int(now // timing.ROTATION)
    stranded = _some(lost, turn)
    waiting = _some([each for each in everybody if waits(each, now, patience)], turn // _windows(lost))
    tries = [claim for claim in everybody if claim.trying and not claim.idle and (claim.serves or claim.since)]
    taken, blocked = promises(tries, nodes)
    room = _Room(unwanted(nodes, blocked), taken, [*stranded, *waiting])
    stranded = [claim for claim in stranded if claim.idle and not _comes(claim.idle, room, now)]
    for claim in reversed(stranded):
        if claim.idle and any(room.takes(unit, [claim]) for unit in claim.idle.units):
            return frozenset({claim.key})
    for needs, claim in _wanting(stranded, waiting):
        if not room.takes(needs):
            givers = [other for other in reversed(stranded) if _may(other, claim, room)]
            if found := _least(needs, givers, room):
                return found
    return frozenset()


def _comes(idle: Idle, room: "_Room", now: float) -> bool:
    """Whether lost ranks would find their nodes by what is known, which is believed for a while."""
    return now - idle.since < timing.RECOVERY_EXPECTED and any(map(room.takes, idle.missing))


class _Room:
    """What is free, with what services may give back."""

    def __init__(self, nodes: Nodes, taken: Needs, claims: Sequence[Claim]) -> None:
        held = {node for claim in claims if claim.idle for node, _ in claim.idle.holds}
        asked = [taken, *(needs for claim in claims for needs in _asked(claim))]
        self._nodes = with_room(nodes, asked) | {name: nodes[name] for name in held if name in nodes}
        self._taken = taken

    def takes(self, needs: Needs, givers: Sequence[Claim] = ()) -> bool:
        """Whether pods find a place, beside what is promised to others, when these have given back."""
        given: dict[str, Counter[str]] = {}
        for giver in givers:
            for name, amounts in giver.idle.holds if giver.idle else ():
                given.setdefault(name, Counter()).update(dict(amounts))
        nodes = {**self._nodes, **_with(self._nodes, given)}
        ground = Ground(nodes)
        return bool(nodes) and fits(needs, ground) and fits(beside(self._taken, needs), ground)


def _with(nodes: Nodes, given: Mapping[str, Mapping[str, int]]) -> Nodes:
    return {
        name: nodes[name]._replace(room=tuple((what, has + amounts.get(what, 0)) for what, has in nodes[name].room))
        for name, amounts in given.items()
        if name in nodes
    }


def _asked(claim: Claim) -> tuple[Needs, ...]:
    return (*claim.idle.missing, *claim.idle.units) if claim.idle else (claim.needs,)


def _wanting(stranded: Sequence[Claim], waiting: Sequence[Claim]) -> list[tuple[Needs, Claim]]:
    """What is missing, and to whom: who comes first, first."""
    found = [(claim.needs, claim) for claim in waiting]
    found += [(lack, claim) for claim in stranded if claim.idle for lack in claim.idle.missing]
    return sorted(found, key=lambda each: order(each[1]))


def _may(giver: Claim, other: Claim, room: _Room) -> bool:
    """Whether a service may give way to another: to none of a lower priority, and of two that have lost a rank the later
    alone, but where the other could not mend it in turn.
    """
    if giver.key == other.key or giver.priority > other.priority or giver.idle is None:
        return False
    if other.idle is None or order(giver) > order(other):
        return True
    return not any(room.takes(lack, [other]) for lack in giver.idle.missing)


def _least(needs: Needs, givers: Sequence[Claim], room: _Room) -> frozenset[str]:
    """As few of these as it takes to place pods, the first of them first; nobody where all are not enough."""
    if not givers or not room.takes(needs, givers):
        return frozenset()
    count = next(count for count in range(1, len(givers) + 1) if room.takes(needs, givers[:count]))
    found = list(givers[:count])
    for giver in givers[:count]:
        others = [other for other in found if other is not giver]
        if others and room.takes(needs, others):
            found = others
    return frozenset(giver.key for giver in found)


def waits(claim: Claim, now: float, patience: float) -> bool:
    """Whether others may give way to it: it has waited for so long, without pods, or with pods that hold no node and whose
    time is over. A time that is still to come is of a clock that was set back.
    """
    return not claim.serves and (not claim.since if claim.trying else abs(now - claim.since) >= patience)


def order(claim: Claim) -> tuple[int, float, str]:
    """Who comes first: the higher priority, then who has waited, or has lost a rank, for longer."""
    return (-claim.priority, claim.idle.since if claim.idle else claim.first, claim.key)


def _some(claims: Sequence[Claim], turn: int) -> list[Claim]:
    """A few of these in their order: with every turn others, until all were there."""
    start = turn % _windows(claims) * MOST
    return sorted(claims, key=order)[start : start + MOST]


def _windows(claims: Sequence[Claim]) -> int:
    return -(-len(claims) // MOST) or 1
