"""Determines the state of a service as one word. Lists are sorted by state, the worst first."""

from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.reasons import FROZEN, ROLLED_OUT, State, record_of
from ome_operator.describe.tree import Tree
from ome_operator.describe.words import WORDS


def for_reason(reason: str) -> State:
    """Return the state of a service whose problem has this reason. For an unknown reason, return the state of services that
    require action by a person.
    """
    return WORDS[reason].state if reason in WORDS else record_of(reason).state


def service_state(tree: Tree, conditions: Iterable[Mapping[str, Any]]) -> State:
    """Return the state of a service. The reasons of its pods take precedence over the reason of its condition Ready or
    Scaled, which repeats the reason of one pod. A service that serves with fewer groups than desired has the state of the
    missing groups.
    """
    by_type = {condition.get("type"): condition for condition in conditions}
    rolled = by_type.get(ROLLED_OUT) or {}
    rolling = rolled.get("status") == "False" and revisions(tree) > 1
    if tree.ready and tree.missing is None:
        if rolling:
            return State.HELD if for_reason(rolled.get("reason") or "") is State.HELD else State.ROLLING
        return State.HELD if (by_type.get(FROZEN) or {}).get("status") == "True" else State.READY
    reason = tree.missing.reason if tree.ready and tree.missing is not None else tree.reason
    found = {for_reason(reason)}
    if for_reason(reason) is not State.OFF:
        found |= {for_reason(reason) for reason in _reasons(tree)}
    worst = min(found, key=lambda state: state.sort_position)
    return State.ROLLING if worst is State.STARTING and rolling else worst


def revisions(tree: Tree) -> int:
    """Return the number of revisions that have pods of the engine or decoder on the cluster."""
    return sum(any(role.component != keys.ROUTER for role in part.roles) for part in tree.slices)


def _reasons(tree: Tree) -> Iterable[str]:
    for _, _, group in tree.groups():
        yield from (rank.reason for rank in group.ranks if not rank.ready and not rank.draining)
