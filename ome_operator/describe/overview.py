"""Lists all services as rows of a table, and the rollout waves of edits to shared objects."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.reasons import ROLLED_OUT, Reason, State
from ome_operator.core.waves.status import COMPLETE, STOPPED
from ome_operator.describe import states, waves
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.causes import causes
from ome_operator.describe.tree import Tree
from ome_operator.describe.words import OUTDATED


class RoleCount(NamedTuple):
    """Numbers of groups of a role, over all revisions on the cluster. For the router, they are numbers of pods."""

    role: str
    ready: int
    wanted: int


@dataclass(frozen=True)
class Row:
    """A row in the table of services."""

    namespace: str
    name: str
    state: State
    reason: str
    """The reason why the service is not ready or groups are missing; "" if all groups are ready."""
    where: str
    """The role, group and rank to which `reason` applies; "" if `reason` applies to the whole service."""
    message: str
    roles: tuple[RoleCount, ...]
    gpus: int
    """Number of GPUs of all pods of the service, including pods that do not run yet."""
    idle: int
    """Number of GPUs of the service's groups that are not ready."""
    created: str
    """Time at which the service was created, in RFC 3339."""
    revisions: tuple[str, ...]
    """Names of the revisions with objects on the cluster, the target revision last."""
    rollout: str
    """The progress of the rollout as text; "" if there is no rollout."""
    model: str
    runtime: str
    pin: str
    advice: str = ""
    """The reason of the condition Advice if a rule of `ome lint` is violated, or if the API server warns about the service's
    objects; otherwise ""."""

    @property
    def advice_from(self) -> str:
        """The command of `ome` that shows the advice."""
        return "lint" if self.advice in _LINT else "explain"


_LINT = (Reason.LINT_ERRORS, Reason.LINT_WARNINGS)
_MARKED = (*_LINT, Reason.CLUSTER_WARNINGS)


def row(tree: Tree, body: Mapping[str, Any]) -> Row:
    """Return the row of a service."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    state = states.service_state(tree, conditions)
    found = causes(tree, conditions, CommandBuilder()) if state is not State.READY else []
    dead = tree.late and tree.reason == OUTDATED  # no operator acts on the reasons of the pods
    worst = None if dead else next((cause for cause in found if cause.pods), None)
    rolled = (
        condition for condition in conditions if condition.get("type") == ROLLED_OUT and condition.get("status") == "False"
    )
    rollout: Mapping[str, Any] = next(rolled, {})
    groups = [group for _, _, group in tree.groups()]
    short = (tree.missing.reason, tree.missing.message) if tree.missing is not None else ("", "")
    reason, message = short if tree.ready else (tree.reason, tree.message)
    return Row(
        namespace=tree.namespace,
        name=tree.name,
        state=state,
        reason=worst.reason if worst else reason,
        where=worst.place if worst else "",
        message=worst.message if worst and worst.message else message,
        roles=tuple(_roles(tree)),
        gpus=sum(group.gpus for group in groups),
        idle=sum(group.gpus for group in groups if not group.ready),
        created=(body.get("metadata") or {}).get("creationTimestamp") or "",
        revisions=tuple(part.revision for part in tree.slices) or ((tree.revision,) if tree.revision else ()),
        rollout=rollout.get("message") or "" if rollout.get("reason") != "Progressing" else "",
        model=tree.model,
        runtime=tree.runtime,
        pin=tree.pin,
        advice=next((condition["reason"] for condition in conditions if condition.get("reason") in _MARKED), ""),
    )


def _roles(tree: Tree) -> Iterable[RoleCount]:
    found: dict[str, RoleCount] = {}
    for part in tree.slices:
        for role in part.roles:
            before = found.get(role.role, RoleCount(role.role, 0, 0))
            ready = role.ready_pods if role.component == keys.ROUTER else role.ready
            found[role.role] = RoleCount(role.role, before.ready + ready, before.wanted + role.wanted)
    return found.values()


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows sorted by state, the worst state first, and then by name."""
    return sorted(rows, key=lambda row: (row.state.sort_position, row.namespace, row.name))


def count_states(rows: Iterable[Row]) -> dict[State, int]:
    """Return the number of services in each state that occurs, the worst first."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in State if found[state]}


@dataclass(frozen=True)
class Wave:
    """The rollout of an edit of a shared object that has not reached all services of the object yet."""

    title: str
    state: State
    lines: tuple[str, ...]
    done: int
    rolling: int
    waiting: int
    failed: int
    services: int
    command: str


_WORDS = {"runtime": "Runtime", "acceleratorclass": "AcceleratorClass"}


def active_waves(shared: Iterable[Mapping[str, Any]], shell: CommandBuilder) -> list[Wave]:
    """Return the rollout waves of the edits to shared objects. `shared` contains the objects. Stopped rollouts come
    first.
    """
    found = []
    for body in shared:
        rollout = (body.get("status") or {}).get("rollout")
        if not rollout or rollout.get("state") == COMPLETE:
            continue
        head, *rest = waves.wave_lines(body)
        numbers = {name: int(rollout.get(name) or 0) for name in ("done", "rolling", "waiting", "failed", "services")}
        word = next((word for word, part in _WORDS.items() if part in body["kind"]), "model")
        name, where = body["metadata"]["name"], body["metadata"].get("namespace")
        command = shell("ome", "status", word, name, *(("-n", where) if where else ()))
        state = State.BROKEN if rollout.get("state") == STOPPED else State.ROLLING
        found.append(Wave(head, state, tuple(line.strip() for line in rest), command=command, **numbers))
    return sorted(found, key=lambda wave: wave.state is not State.BROKEN)
