"""A service as a tree: slices, roles, groups, ranks; each with how far it is, and why not farther.

Made from what exists (workloads, pods, stored revisions); the service's status adds what nobody else knows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.group_numbers import existing
from ome_operator.core.observed import slices
from ome_operator.core.observed.objects import Observed, Pod
from ome_operator.core.reasons import (
    ADVICE,
    ANOTHER,
    CONDITION,
    DRIFTED,
    FROZEN,
    MODEL_READY,
    PREFLIGHT,
    READY,
    ROLLED_OUT,
    RUNTIME_READY,
    Reason,
)
from ome_operator.core.recovery.failure import sentence
from ome_operator.core.recovery.record import FAILED, HELD, NODE_LOST, RECYCLING, RESTARTING, SYSTEMIC
from ome_operator.core.render.statefulsets import Stored, pod_gpus, stored
from ome_operator.core.resolve.finetuned import mounted
from ome_operator.core.weights.mount import claim, directories, placed, required_label
from ome_operator.describe.text import count
from ome_operator.names import title

ROLES = (keys.ENGINE, keys.DECODER, keys.ROUTER)
WHEN_TRUE = (ANOTHER, FROZEN, *DRIFTED.values(), ADVICE)
"""Conditions that have something to say when they are True, not False."""
MISSING = "NotCreated"
"""Reason of a rank whose pod does not exist."""


@dataclass(frozen=True)
class Rank:
    """One pod of a group; routers are ranks of one group."""

    rank: int
    pod: str
    """"" when it does not exist."""
    node: str
    ready: bool
    restarts: int
    gpus: int
    reason: str
    """"" when it is ready."""
    message: str
    draining: bool = False


@dataclass(frozen=True)
class GroupView:
    """One instance of an engine, or all routers of a slice."""

    group: int
    ready: bool
    """Every rank is."""
    gpus: int
    note: str
    """What the operator remembers of it: recycles, and the last failure while it is fresh."""
    ranks: tuple[Rank, ...]


@dataclass(frozen=True)
class RoleView:
    """A component of a slice."""

    role: str
    """prefill, decode, engine or router."""
    component: str
    wanted: int
    """Groups; routers of a router."""
    ready: int
    pods: int
    ready_pods: int
    gpus: int
    why: str
    """What the service's condition says, where pods are missing."""
    groups: tuple[GroupView, ...]


@dataclass(frozen=True)
class SliceView:
    """One revision on the cluster."""

    revision: str
    state: str
    """`wanted`, or `old` while another revision is."""
    roles: tuple[RoleView, ...]


class Said(NamedTuple):
    """A condition that is worth reading."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Tree:
    """A service."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    url: str
    model: str
    runtime: str
    revision: str
    conditions: tuple[Said, ...]
    """What is wrong besides what the slices show, and advice."""
    slices: tuple[SliceView, ...]
    labels: tuple[str, ...] = ()
    """Keys of the labels that nodes must carry as `Ready` for its pods: a label for each model and fine-tuned weight."""
    pin: str = ""
    """The revision that `spec.rollout.revision` holds it at, so that edits wait; "" without."""

    def groups(self) -> Iterator[tuple[SliceView, RoleView, GroupView]]:
        """Every group, with the slice and the role that it is of."""
        for part in self.slices:
            for role in part.roles:
                for group in role.groups:
                    yield part, role, group


def tree(body: Mapping[str, Any], observed: Observed) -> Tree:
    """The tree of an InferenceService as the API server has it, or of a Serving of which nothing was made yet.

    Total, whatever its status says or lacks.
    """
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    told = {one.get("type"): one for one in status.get("conditions") or ()}
    ready = told.get(READY) or {"status": "Unknown", "reason": "NotSeen", "message": _unseen(body)}
    current = ready.get("observedGeneration", metadata.get("generation")) == metadata.get("generation")
    wanted = str(status.get("revision") or "").rpartition("→")[2]
    data = _stored(metadata.get("uid") or "", observed)
    pin = (spec.get("rollout") or {}).get("revision") or ""
    return Tree(
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        ready=ready["status"] == "True" and current,
        reason=ready.get("reason") or "" if current else "Outdated",
        message=ready.get("message") or "" if current else "the operator has not looked at the last edit yet",
        url=status.get("url") or "",
        model=_called(spec.get("model") or spec.get("baseModel")),
        runtime=status.get("runtime") or _called(spec.get("runtime")),
        revision=wanted,
        conditions=tuple(_conditions(told)),
        slices=tuple(_slices(metadata.get("uid") or "", wanted, observed, status, data)),
        labels=tuple(_labels(data.get(wanted) or {})),
        pin=pin if pin == wanted else "",
    )


def _called(reference: Any) -> str:
    """The name in a reference, which is a name itself in a Serving."""
    return str((reference.get("name") if isinstance(reference, dict) else reference) or "")


def _unseen(body: Mapping[str, Any]) -> str:
    of = (body["metadata"].get("labels") or {}).get(keys.OPERATOR_CLASS)
    who = f"no operator of the class {of}, which its label {keys.OPERATOR_CLASS} names," if of else "no operator"
    return f"it has no status: {who} has seen it yet" if not body.get("status") else "it has no condition Ready yet"


def _conditions(told: Mapping[str, Mapping[str, Any]]) -> Iterable[Said]:
    """Conditions that people act on and that no pod shows."""
    for name in (MODEL_READY, RUNTIME_READY, PREFLIGHT, ROLLED_OUT, *WHEN_TRUE):
        one = told.get(name)
        bad = "True" if name in WHEN_TRUE else "False"
        if one is not None and one.get("status") == bad and one.get("reason") != "Progressing":
            yield Said(name, one.get("reason") or "", one.get("message") or "")


def _stored(uid: str, observed: Observed) -> dict[str, Mapping[str, Any]]:
    """Revision -> what its ControllerRevision stores."""
    return {
        child.labels.get(keys.REVISION, ""): child.content["data"]
        for child in observed.children.values()
        if child.kind == "ControllerRevision" and child.content and slices.ours(child, uid)
    }


def _labels(data: Mapping[str, Any]) -> Iterable[str]:
    """What a revision asks of its nodes."""
    identities = mounted(data.get("inputs") or {})
    for identity, directory in placed(identities, directories(data)):
        if claim(identity["uri"]) is None:
            yield required_label(identity, directory)


def _slices(
    uid: str, wanted: str, observed: Observed, status: Mapping[str, Any], data: Mapping[str, Mapping[str, Any]]
) -> Iterable[SliceView]:
    present = slices.slices(observed, uid)
    both = any(pod.component == keys.DECODER for one in present.values() for pod in one.pods)
    for name, one in sorted(present.items(), key=lambda item: item[0] == wanted):
        roles = stored(data.get(name) or {})
        disaggregated = keys.DECODER in roles or both
        found = (_role(component, one, roles.get(component), disaggregated, status) for component in ROLES)
        state = _slice_state(name, status) or ("wanted" if name == wanted else "old")
        if shown := tuple(role for role in found if role is not None):
            yield SliceView(name, state, shown)


def _slice_state(name: str, status: Mapping[str, Any]) -> str:
    return next((one.get("state") or "" for one in status.get("slices") or () if one.get("revision") == name), "")


def _role(
    component: str, one: slices.Slice, role: Stored | None, disaggregated: bool, status: Mapping[str, Any]
) -> RoleView | None:
    """A role of a slice, None when the slice has none of it."""
    pods = [pod for pod in one.pods if pod.component == component]
    wanted = _wanted(component, one)
    if not pods and not wanted:
        return None
    if component == keys.ROUTER:
        groups = [_routers(pods, wanted)]
    else:
        size = role.size if role else 1 + max((pod.rank for pod in pods), default=0)
        numbers = sorted({*existing(component, one), *(pod.group for pod in pods)})
        remembered = _remembered(component, one.revision, status)
        groups = [
            _group(number, [pod for pod in pods if pod.group == number], size, role, remembered.get(number, ""))
            for number in numbers
        ]
    ranks = [rank for group in groups for rank in group.ranks]
    missing = any(rank.reason == MISSING for rank in ranks)
    ready = sum(rank.ready for rank in ranks)
    return RoleView(
        role=title(component, disaggregated),
        component=component,
        wanted=wanted,
        ready=ready if component == keys.ROUTER else sum(group.ready for group in groups),
        pods=len(ranks),
        ready_pods=ready,
        gpus=sum(rank.gpus for rank in ranks),
        why=_condition(component, status) if missing else "",
        groups=tuple(groups),
    )


def _wanted(component: str, one: slices.Slice) -> int:
    """Groups that the slice should have now."""
    return sum(
        child.replicas
        for child in one.workloads
        if child.labels.get(keys.COMPONENT) == component and (child.kind == "Deployment" or slices.is_leader_set(child))
    )


def _condition(component: str, status: Mapping[str, Any]) -> str:
    name = CONDITION[component]
    found: Mapping[str, Any] = next((one for one in status.get("conditions") or () if one.get("type") == name), {})
    return found.get("message") or "" if found.get("status") == "False" else ""


def _group(number: int, pods: list[Pod], size: int, role: Stored | None, note: str) -> GroupView:
    """A group; a rank that has two pods (the old one is going) is shown by the newer."""
    by_rank = {pod.rank: pod for pod in sorted(pods, key=lambda pod: (not pod.deleting, pod.version))}
    ranks = []
    for rank in sorted({*range(size), *by_rank}):
        part = role and (role.leader if rank == 0 else role.worker)
        ranks.append(_rank(rank, by_rank.get(rank), pod_gpus(part) if part else 0))
    return GroupView(number, all(rank.ready for rank in ranks), sum(rank.gpus for rank in ranks), note, tuple(ranks))


def _routers(pods: list[Pod], wanted: int) -> GroupView:
    present = sorted(pods, key=lambda pod: (pod.deleting, pod.name))
    filled = [*present, *[None] * (wanted - sum(not pod.deleting for pod in present))]
    ranks = tuple(_rank(number, pod, 0) for number, pod in enumerate(filled))
    return GroupView(0, all(rank.ready for rank in ranks), 0, "", ranks)


def _rank(rank: int, pod: Pod | None, gpus: int) -> Rank:
    if pod is None:
        return Rank(rank, "", "", False, 0, gpus, MISSING, "")
    ready = pod.ready and not pod.deleting
    reason = "" if ready else pod.reason or Reason.NOT_READY
    return Rank(rank, pod.name, pod.node, ready, pod.restarts, gpus, reason, pod.message, bool(pod.draining))


def _remembered(component: str, revision: str, status: Mapping[str, Any]) -> dict[int, str]:
    """What the status says about groups of a role."""
    found: dict[int, str] = {}
    for one in status.get("groups") or ():
        if one.get("component") == component and one.get("revision") in (None, revision) and one.get("index") is not None:
            found[one["index"]] = _note(one)
    return found


_TELLING = frozenset({HELD, NODE_LOST, SYSTEMIC, RESTARTING, RECYCLING, FAILED})
"""Phases that say more than the group's pods do."""


def _note(one: Mapping[str, Any]) -> str:
    phase, failure = one.get("phase") or "", one.get("lastFailure")
    said = [phase] if phase in _TELLING else []
    if one.get("recycles"):
        said.append(f"recycled {count(one['recycles'], 'time')}")
    if failure and (phase != "Ready" or one.get("recyclesInARow")):
        said.append(f"last failure: {sentence(failure)}")
    return "; ".join(said)
