"""Whose turn it is among the gangs that wait for nodes: pure, from what all services of an operator want and hold.

Nothing is remembered here. A gang that tries has its room promised until it is bound; the others go by priority, then by how
long they have waited. What fits passes what does not, but for ten minutes of forty, in which nodes are kept for a gang that
was passed for half an hour, by turns.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from ome_operator.core.placement.fit import Needs, Nodes, beside, compared, suit

PASSED = timedelta(minutes=30)
"""A gang that has waited for so long may have nodes kept."""
WINDOW = timedelta(minutes=10)
"""For so long, of four such windows a single time."""
BLIND = timedelta(minutes=5)
"""After so long without a try it tries whatever is known: an autoscaler has to see its pods now and then."""

Room = tuple[tuple[str, int], ...]


class Claim(NamedTuple):
    """A gang that wants nodes."""

    key: str
    needs: Needs
    trying: bool
    """Whether it is made; else it waits."""
    priority: int = 0
    first: float = 0.0
    """Since when it has waited, in seconds since the epoch."""
    since: float = 0.0
    """Since when it has waited for this turn."""
    rested: bool = True
    """Whether its pause after a failed try is over."""


class Turns(NamedTuple):
    """What each of those that wait is told."""

    granted: Mapping[str, bool]
    """Who may try now -> whether it fits by what is known."""
    waits: Mapping[str, str]
    """The others -> for what they wait."""


def left(nodes: Nodes, held: Mapping[str, Mapping[str, int]]) -> Nodes:
    """Nodes with what is free there: allocatable less what pods hold. A node that told nothing stays unknown."""
    return {name: node._replace(room=_less(node.room, held[name])) if name in held else node for name, node in nodes.items()}


def _less(room: Room, held: Mapping[str, int]) -> Room:
    return tuple((resource, max(0, amount - held.get(resource, 0))) for resource, amount in room)


def turns(claims: Iterable[Claim], nodes: Nodes, free: Nodes, now: datetime) -> Turns:
    """Who may try. `free`: the nodes with what is left there."""
    everybody = sorted(claims, key=lambda claim: (-claim.priority, claim.first, claim.key))
    promised = beside(*(claim.needs for claim in everybody if claim.trying))
    waiting = [claim for claim in everybody if not claim.trying]
    keeper = _keeper([claim for claim in waiting if not compared(claim.needs, nodes)], free, promised, now)
    granted, waits = dict[str, bool](), dict[str, str]()
    for claim in waiting:
        others = free if keeper is None or claim is keeper else _without(free, keeper)
        found = compared(beside(promised, claim.needs), others or free)
        fits = bool(others) and not found
        if (fits and claim.rested) or (not promised and not granted and _blind(claim, now)):
            granted[claim.key] = fits
            promised = beside(promised, claim.needs)
        else:
            waits[claim.key] = "; ".join(lack.sentence for lack in found)
    return Turns(granted, waits)


def contested(needs: Needs, others: Iterable[Claim], nodes: Nodes) -> bool:
    """Whether others wait for nodes that these pods may go on: then a newcomer waits for its turn, too."""
    waiting = [claim.needs for claim in others if not claim.trying]
    return any(suit(needs, node) and any(suit(other, node) for other in waiting) for node in nodes.values())


def _keeper(waiting: Iterable[Claim], free: Nodes, promised: Needs, now: datetime) -> Claim | None:
    """For whom nodes are kept just now: by the clock, so that a restart changes nothing."""
    window = int(now.timestamp() // WINDOW.total_seconds())
    if window % 4 != 3:
        return None
    passed = [claim for claim in waiting if now.timestamp() - claim.first >= PASSED.total_seconds()]
    passed = [claim for claim in passed if compared(beside(promised, claim.needs), free)]
    return passed[window // 4 % len(passed)] if passed else None


def _without(free: Nodes, keeper: Claim) -> Nodes:
    """The nodes that a gang does not want."""
    return {name: node for name, node in free.items() if not suit(keeper.needs, node)}


def _blind(claim: Claim, now: datetime) -> bool:
    """Whether it has not tried for so long that it does in any case; not all at the same moment."""
    jitter = int(sha256(claim.key.encode()).hexdigest()[:4], 16) / 0xFFFF * 60
    return now.timestamp() - claim.since >= BLIND.total_seconds() + jitter
