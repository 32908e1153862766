"""All services as rows of a table, and the waves of edits that are on their way to them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.reasons import ROLLED_OUT, State
from ome_operator.core.waves.status import COMPLETE, STOPPED
from ome_operator.describe import states, waves
from ome_operator.describe.actions import Shell
from ome_operator.describe.causes import causes
from ome_operator.describe.tree import Tree


class RoleCount(NamedTuple):
    """Groups of a role, over all revisions on the cluster; routers of the role router."""

    role: str
    ready: int
    wanted: int


@dataclass(frozen=True)
class Row:
    """A service."""

    namespace: str
    name: str
    state: State
    reason: str
    """Why it is not ready, as a word; "" when it is."""
    where: str
    """Which role, group and rank that is about; "" when it is about all of it."""
    message: str
    roles: tuple[RoleCount, ...]
    gpus: int
    """Of all its pods, those that do not run yet included."""
    idle: int
    """Of these, GPUs of groups that are not ready."""
    created: str
    """RFC 3339."""
    revisions: tuple[str, ...]
    """Those on the cluster, the wanted revision last."""
    rollout: str
    """How far the rollout is, "" without."""
    model: str
    runtime: str
    pin: str


def row(tree: Tree, body: Mapping[str, Any]) -> Row:
    """A service as the list has it."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    state = states.service(tree, conditions)
    found = causes(tree, conditions, Shell()) if state is not State.READY else []
    worst = next((cause for cause in found if cause.pods), None)
    rolled = (said for said in conditions if said.get("type") == ROLLED_OUT and said.get("status") == "False")
    told: Mapping[str, Any] = next(rolled, {})
    groups = [group for _, _, group in tree.groups()]
    return Row(
        namespace=tree.namespace,
        name=tree.name,
        state=state,
        reason=worst.reason if worst else "" if tree.ready else tree.reason,
        where=worst.place if worst else "",
        message=(worst.message if worst and worst.message else "" if tree.ready else tree.message),
        roles=tuple(_roles(tree)),
        gpus=sum(group.gpus for group in groups),
        idle=sum(group.gpus for group in groups if not group.ready),
        created=(body.get("metadata") or {}).get("creationTimestamp") or "",
        revisions=tuple(part.revision for part in tree.slices) or ((tree.revision,) if tree.revision else ()),
        rollout=told.get("message") or "" if told.get("reason") != "Progressing" else "",
        model=tree.model,
        runtime=tree.runtime,
        pin=tree.pin,
    )


def _roles(tree: Tree) -> Iterable[RoleCount]:
    found: dict[str, RoleCount] = {}
    for part in tree.slices:
        for role in part.roles:
            before = found.get(role.role, RoleCount(role.role, 0, 0))
            ready = role.ready_pods if role.component == keys.ROUTER else role.ready
            found[role.role] = RoleCount(role.role, before.ready + ready, before.wanted + role.wanted)
    return found.values()


def ordered(rows: Iterable[Row]) -> list[Row]:
    """The worst first, then by name."""
    return sorted(rows, key=lambda row: (row.state.order, row.namespace, row.name))


def counted(rows: Iterable[Row]) -> dict[State, int]:
    """State → services, for states that a service has, the worst first."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in State if found[state]}


@dataclass(frozen=True)
class Wave:
    """An edit of a shared object that is not with all of its services yet."""

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


def on_their_way(shared: Iterable[Mapping[str, Any]], shell: Shell) -> list[Wave]:
    """The waves of these objects, those that stopped first."""
    found = []
    for body in shared:
        rollout = (body.get("status") or {}).get("rollout")
        if not rollout or rollout.get("state") == COMPLETE:
            continue
        head, *rest = waves.lines(body)
        numbers = {name: int(rollout.get(name) or 0) for name in ("done", "rolling", "waiting", "failed", "services")}
        word = next((word for word, part in _WORDS.items() if part in body["kind"]), "model")
        name, where = body["metadata"]["name"], body["metadata"].get("namespace")
        command = shell("ome", "status", word, name, *(("-n", where) if where else ()))
        state = State.BROKEN if rollout.get("state") == STOPPED else State.ROLLING
        found.append(Wave(head, state, tuple(line.strip() for line in rest), command=command, **numbers))
    return sorted(found, key=lambda wave: wave.state is not State.BROKEN)
