"""A service in a single word: the states that a list is sorted by, the worst first."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from ome_operator import keys
from ome_operator.core.reasons import FROZEN, ROLLED_OUT, Reason
from ome_operator.describe.tree import MISSING, Tree


class State(StrEnum):
    """How a service, a group or a rank is."""

    BROKEN = "broken"
    """A person has to act."""
    WAITING = "waiting"
    """For something that others have to bring: room, nodes, weights, a turn."""
    STARTING = "starting"
    """It comes up by itself."""
    ROLLING = "rolling"
    """Another revision takes over."""
    HELD = "held"
    """Somebody paused or froze it."""
    OFF = "off"
    """Nobody wants it to run."""
    READY = "ready"

    @property
    def order(self) -> int:
        """Its place among all; the worst is 0."""
        return _ORDER[self]


_ORDER = {state: number for number, state in enumerate(State)}

_WAITING = frozenset(
    {
        Reason.UNSCHEDULABLE, Reason.PENDING, Reason.WAITING_FOR_NODES, Reason.WAITING_FOR_MODEL, Reason.WAITING_FOR_ROOM,
        Reason.WAITING_FOR_TURN, Reason.DOES_NOT_FIT, Reason.NODES_UNKNOWN, Reason.ON_NO_NODE, Reason.DOWNLOADING,
        Reason.WAITING, "NotSeen",
    }
)  # fmt: skip
_STARTING = frozenset(
    {
        Reason.CREATING, Reason.PROGRESSING, Reason.CONTAINER_CREATING, Reason.STARTING, Reason.TERMINATING, Reason.CHECKING,
        Reason.RESTARTING, Reason.RECYCLING, Reason.ROLLING_OUT, Reason.RETIRING_OLD_SLICE, MISSING, "Outdated",
    }
)  # fmt: skip
_HELD = frozenset({Reason.PAUSED, Reason.FROZEN, Reason.OBSERVED})
_OFF = frozenset({Reason.SCALED_TO_ZERO, Reason.DISABLED})


def of(reason: str) -> State:
    """What a reason for not being ready means; a reason that nobody knows is for a person."""
    for state, reasons in ((State.WAITING, _WAITING), (State.STARTING, _STARTING), (State.HELD, _HELD), (State.OFF, _OFF)):
        if reason in reasons:
            return state
    return State.BROKEN


def service(tree: Tree, conditions: Iterable[Mapping[str, Any]]) -> State:
    """Of a service. What its pods say counts more than the reason that its condition Ready repeats."""
    told = {said.get("type"): said for said in conditions}
    rolled = told.get(ROLLED_OUT) or {}
    rolling = rolled.get("status") == "False" and revisions(tree) > 1
    if tree.ready:
        if rolling:
            return State.HELD if of(rolled.get("reason") or "") is State.HELD else State.ROLLING
        return State.HELD if (told.get(FROZEN) or {}).get("status") == "True" else State.READY
    found = {of(tree.reason)}
    if tree.reason not in _OFF:
        found |= {of(reason) for reason in _reasons(tree)}
    worst = min(found, key=lambda state: state.order)
    return State.ROLLING if worst is State.STARTING and rolling else worst


def revisions(tree: Tree) -> int:
    """Revisions whose engines are on the cluster."""
    return sum(any(role.component != keys.ROUTER for role in part.roles) for part in tree.slices)


def _reasons(tree: Tree) -> Iterable[str]:
    for _, _, group in tree.groups():
        yield from (rank.reason for rank in group.ranks if not rank.ready and not rank.draining)
