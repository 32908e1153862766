"""Lists the steps of a rollout to the target revision, with the progress of each step."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.reasons import MODEL_READY, ROLLED_OUT, RolloutStage, record_of
from ome_operator.describe.tree import Tree


class StageState(StrEnum):
    """Progress of a step in a rollout."""

    DONE = "done"
    NOW = "now"
    STOPPED = "stopped"
    """The step continues only after an action of the user."""
    LATER = "later"


class Stage(NamedTuple):
    """A step of a rollout."""

    title: str
    progress: StageState
    said: str
    """Message about the current state of the step; "" if there is no message."""


def steps(body: Mapping[str, Any], tree: Tree) -> list[Stage]:
    """Return the steps of the rollout of the last edit, in the order in which they are passed; [] if the operator has not
    reported a rollout yet.
    """
    by_type = {said.get("type"): said for said in (body.get("status") or {}).get("conditions") or ()}
    rolled = by_type.get(ROLLED_OUT)
    if rolled is None:
        return []
    reason, message = rolled.get("reason") or "", rolled.get("message") or ""
    record = record_of(reason)
    stage = None if rolled.get("status") == "True" else record.stage or RolloutStage.VALID
    order = _order(stage, tree)
    at = order.index(stage) if stage is not None else len(order)
    found = []
    for number, step in enumerate(order):
        progress = StageState.DONE if number < at else StageState.LATER
        if number == at:
            progress = StageState.NOW if record.passes else StageState.STOPPED
        said = message if number == at else ""
        model = by_type.get(MODEL_READY) or {}
        if step is RolloutStage.WEIGHTS and number < at and model.get("status") == "True":
            said = model.get("message") or ""  # nodes that were lost since then are no part of the rollout
        found.append(Stage(str(step), progress, said))
    return found


def _order(stage: RolloutStage | None, tree: Tree) -> list[RolloutStage]:
    """Return the steps of a rollout in their order. `stage` is the step that the rollout has reached; None if it is
    complete.

    If the strategy ends the old pods first, the step ALONE (the old revision is gone) precedes the step READY (the groups of
    the revision are ready). The step ALONE is left out while the rollout is not complete and no other revision has objects,
    as in the first rollout of a service, or when groups of its only revision start again.
    """
    order = list(RolloutStage)
    others = any(part.revision != tree.revision for part in tree.slices)
    if stage is RolloutStage.ALONE:
        if not _is_ready(tree):
            order.remove(RolloutStage.READY)
            order.append(RolloutStage.READY)
    elif stage is not None and not others:
        order.remove(RolloutStage.ALONE)
    return order


def _is_ready(tree: Tree) -> bool:
    """Return whether the target revision has groups, and all of them are ready."""
    roles = [role for part in tree.slices if part.revision == tree.revision for role in part.roles]
    engines = [role for role in roles if role.component != keys.ROUTER]
    return bool(engines) and all(role.ready >= role.wanted for role in engines)


class RoleShare(NamedTuple):
    """Numbers of groups and pods that a revision has of a role."""

    role: str
    ready: int
    wanted: int
    pods: int
    ready_pods: int


class Share(NamedTuple):
    """A revision with objects on the cluster, and its numbers of groups and pods of each role."""

    revision: str
    state: str
    parts: tuple[RoleShare, ...]


def shares(tree: Tree) -> Iterator[Share]:
    """Yield the revisions with objects on the cluster, the target revision last."""
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


def rejected_revisions(body: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the revisions that never became ready and are not retried, each with its reason."""
    for entry in (body.get("status") or {}).get("rejected") or ():
        yield entry.get("revision") or "", ": ".join(filter(None, (entry.get("reason"), entry.get("message"))))
