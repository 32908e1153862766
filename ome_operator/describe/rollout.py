"""How a service goes to its wanted revision, as the steps that the operator takes, and what of them is over."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.reasons import MODEL_READY, ROLLED_OUT, Reason
from ome_operator.describe.tree import Tree


class StageState(StrEnum):
    """How far a step is."""

    DONE = "done"
    NOW = "now"
    STOPPED = "stopped"
    """A person has to act before it goes on."""
    LATER = "later"


class Stage(NamedTuple):
    """A step on the way."""

    title: str
    progress: StageState
    said: str
    """What there is to say of it now, "" for nothing."""


_GATES: tuple[tuple[str, frozenset[str]], ...] = (
    ("What it is made of is valid", frozenset()),
    ("Nobody holds it", frozenset({Reason.PAUSED, Reason.FROZEN, Reason.OBSERVED})),
    ("Its weights are on enough nodes", frozenset({Reason.WAITING_FOR_MODEL, Reason.WAITING_FOR_NODES})),
    ("Nodes have room for it", frozenset({Reason.DOES_NOT_FIT, Reason.WAITING_FOR_ROOM})),
    ("The API server accepts it", frozenset({Reason.CHECKING, Reason.DRY_RUN_REFUSED})),
    ("It is its turn", frozenset({Reason.WAITING_FOR_TURN})),
    ("Its groups are ready", frozenset({Reason.PROGRESSING, Reason.ROLLING_OUT, Reason.PROGRESS_DEADLINE_EXCEEDED})),
    ("The old revision is gone", frozenset({Reason.RETIRING_OLD_SLICE})),
)
"""The steps in the order of `core/rollout/intent.py`, each with the reasons of RolledOut that stop at it."""
_PASS = frozenset(
    {
        Reason.CHECKING, Reason.WAITING_FOR_TURN, Reason.PROGRESSING, Reason.ROLLING_OUT, Reason.RETIRING_OLD_SLICE,
        Reason.WAITING_FOR_ROOM, Reason.WAITING_FOR_MODEL, Reason.WAITING_FOR_NODES,
    }
)  # fmt: skip
"""Reasons that end by themselves."""


def steps(body: Mapping[str, Any]) -> list[Stage]:
    """The steps of the last edit; [] where the operator has said nothing of a rollout yet."""
    told = {said.get("type"): said for said in (body.get("status") or {}).get("conditions") or ()}
    rolled = told.get(ROLLED_OUT)
    if rolled is None:
        return []
    whole = rolled.get("status") == "True"
    reason, message = rolled.get("reason") or "", rolled.get("message") or ""
    at = len(_GATES) if whole else next((at for at, (_, those) in enumerate(_GATES) if reason in those), 0)
    found = []
    for number, (title, _) in enumerate(_GATES):
        progress = StageState.DONE if number < at else StageState.LATER
        if number == at:
            progress = StageState.NOW if reason in _PASS else StageState.STOPPED
        said = message if number == at else ""
        if number == 2 and number < at:
            said = (told.get(MODEL_READY) or {}).get("message") or ""
        found.append(Stage(title, progress, said))
    return found


class RoleShare(NamedTuple):
    """A role of a revision that is on the cluster."""

    role: str
    ready: int
    wanted: int
    pods: int
    ready_pods: int


class Share(NamedTuple):
    """A revision on the cluster, and how much of each role it has."""

    revision: str
    state: str
    parts: tuple[RoleShare, ...]


def shares(tree: Tree) -> Iterator[Share]:
    """What each revision on the cluster has, the wanted revision last."""
    for part in tree.slices:
        roles = (
            RoleShare(
                role.role,
                role.ready_pods if role.component == keys.ROUTER else role.ready,
                role.wanted,
                role.pods,
                role.ready_pods,
            )
            for role in part.roles
        )
        yield Share(part.revision, part.state, tuple(roles))


def rejected(body: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Revisions that never became ready and are not tried again, each with why."""
    for said in (body.get("status") or {}).get("rejected") or ():
        yield said.get("revision") or "", ": ".join(filter(None, (said.get("reason"), said.get("message"))))
