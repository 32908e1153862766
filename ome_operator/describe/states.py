"""A service in a single word: the states that a list is sorted by, the worst first."""

from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.reasons import FROZEN, ROLLED_OUT, State, record_of
from ome_operator.describe.tree import MISSING, Tree

_OTHERS: Mapping[str, State] = {"NotSeen": State.WAITING, MISSING: State.STARTING, "Outdated": State.STARTING}
"""Words of trees that no condition carries."""


def of(reason: str) -> State:
    """Return what a reason for not being ready means; a word that has no record is for a person."""
    return _OTHERS.get(reason) or record_of(reason).state


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
    if of(tree.reason) is not State.OFF:
        found |= {of(reason) for reason in _reasons(tree)}
    worst = min(found, key=lambda state: state.order)
    return State.ROLLING if worst is State.STARTING and rolling else worst


def revisions(tree: Tree) -> int:
    """Revisions whose engines are on the cluster."""
    return sum(any(role.component != keys.ROUTER for role in part.roles) for part in tree.slices)


def _reasons(tree: Tree) -> Iterable[str]:
    for _, _, group in tree.groups():
        yield from (rank.reason for rank in group.ranks if not rank.ready and not rank.draining)
