"""Describes a service as a tree of slices (one for each revision with objects), roles, groups and ranks, each with its state
and the reason for that state.

The tree is built from existing objects (workloads, pods, stored revisions). The service's status adds facts that these
objects do not contain.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.group_numbers import existing_groups
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
    ROLLED_OUT,
    RUNTIME_READY,
    SCALED,
    Reason,
)
from ome_operator.core.render.statefulsets import StoredRole, pod_gpus, roles_by_component
from ome_operator.core.resolve.finetuned import mounted_weights
from ome_operator.core.status.progress import REFUSED
from ome_operator.core.weights.mount import claim, directories, required_label, with_directories
from ome_operator.describe.group_notes import NO_NOTES, GroupNotes, group_notes
from ome_operator.describe.readiness import readiness
from ome_operator.describe.words import MISSING
from ome_operator.names import role_title

ROLES = (keys.ENGINE, keys.DECODER, keys.ROUTER)
WHEN_TRUE = (ANOTHER, FROZEN, *DRIFTED.values(), ADVICE)
"""Conditions that report a problem if their status is True. All other conditions report a problem if their status is
False."""


@dataclass(frozen=True)
class Rank:
    """A pod of a group. The pods of a router are shown as the ranks of one group."""

    rank: int
    pod: str
    """Name of the rank's pod; "" if the pod does not exist."""
    node: str
    ready: bool
    restarts: int
    gpus: int
    reason: str
    """The reason why the rank is not ready; "" if it is ready."""
    message: str
    draining: bool = False


@dataclass(frozen=True)
class GroupView:
    """A group of ranks, which is an instance of an engine. All routers of a slice form one group."""

    group: int
    ready: bool
    """Whether every rank of the group is ready."""
    gpus: int
    note: str
    """A note from the service's status: how long the group has been starting, the number of its recycles, and its last
    failure while that failure is recent."""
    ranks: tuple[Rank, ...]
    start: str = ""
    """How long the last start of the group took, by parts; "" if that is unknown."""


@dataclass(frozen=True)
class RoleView:
    """A component of a revision, with its groups."""

    role: str
    """Name of the role: prefill, decode, engine or router."""
    component: str
    wanted: int
    """Number of groups that the role should have; for a router, the number of pods."""
    ready: int
    pods: int
    ready_pods: int
    gpus: int
    why: str
    """The message of the role's condition if pods of the role are missing, otherwise ""."""
    groups: tuple[GroupView, ...]


@dataclass(frozen=True)
class SliceView:
    """A revision with objects on the cluster."""

    revision: str
    state: str
    """State of the revision: `wanted` for the target revision, otherwise `old`."""
    roles: tuple[RoleView, ...]
    labels: tuple[str, ...] = ()
    """Keys of the node labels that must have the value `Ready` on a node of the revision's pods."""
    fetched: bool = False
    """Whether model agents set the labels in `labels`. If so, the operator ignores a label that was set by hand."""


class ShownCondition(NamedTuple):
    """A condition that reports a problem."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Tree:
    """A service with its revisions, roles, groups and ranks."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    url: str
    model: str
    runtime: str
    revision: str
    conditions: tuple[ShownCondition, ...]
    """Conditions that report problems which the slices do not show, and the condition Advice."""
    slices: tuple[SliceView, ...]
    labels: tuple[str, ...] = ()
    """Keys of the node labels that must have the value `Ready` on a node of the service's pods. There is a label for each
    model and fine-tuned weight."""
    missing: ShownCondition | None = None
    """The condition Scaled while desired groups are missing; otherwise None. It is needed because a service is ready
    before all of its groups are ready."""
    pin: str = ""
    """The revision to which `spec.rollout.revision` pins the service, so that edits are not rolled out; "" if it is not
    pinned."""
    late: str = ""
    """A sentence which states that no operator has renewed its Lease in time; "" if an operator has renewed it, or if this
    is unknown.
    """

    def groups(self) -> Iterator[tuple[SliceView, RoleView, GroupView]]:
        """Yield every group with its slice and its role."""
        for part in self.slices:
            for role in part.roles:
                for group in role.groups:
                    yield part, role, group


def tree(body: Mapping[str, Any], observed: Observed, now: datetime | None = None) -> Tree:
    """Return the tree of an InferenceService, or of a Serving from which no InferenceService has been derived yet. `body`
    is the object as the API server returns it. Without the time `now`, no group says how long it has been starting.

    Never raises, even if the status has unexpected or missing content.
    """
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    by_type = {entry.get("type"): entry for entry in status.get("conditions") or ()}
    told = readiness(body)
    wanted = str(status.get("revision") or "").rpartition("→")[2]
    data = _stored(metadata.get("uid") or "", observed)
    pin = (spec.get("rollout") or {}).get("revision") or ""
    return Tree(
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        ready=told.ready,
        reason=told.reason,
        message=told.message,
        url=status.get("url") or "",
        model=status.get("model") or _called(spec.get("model") or spec.get("baseModel")),
        runtime=status.get("runtime") or _called(spec.get("runtime")),
        revision=wanted,
        conditions=tuple(_conditions(by_type)),
        slices=tuple(_slices(metadata.get("uid") or "", wanted, observed, status, data, now)),
        labels=tuple(_labels(data.get(wanted) or {})),
        missing=_missing(by_type),
        pin=pin if pin == wanted else "",
    )


def _called(reference: Any) -> str:
    """Return the name of the object to which a field of the spec refers. In a Serving, the field contains only the name."""
    return str((reference.get("name") if isinstance(reference, dict) else reference) or "")


def _conditions(by_type: Mapping[str, Mapping[str, Any]]) -> Iterable[ShownCondition]:
    """Yield the conditions that report problems which the pods do not show."""
    for name in (MODEL_READY, RUNTIME_READY, PREFLIGHT, ROLLED_OUT, *WHEN_TRUE):
        entry, bad = by_type.get(name) or {}, "True" if name in WHEN_TRUE else "False"
        if entry.get("status") == bad and entry.get("reason") != "Progressing":
            yield ShownCondition(name, entry.get("reason") or "", entry.get("message") or "")


def _missing(by_type: Mapping[str, Mapping[str, Any]]) -> ShownCondition | None:
    entry = by_type.get(SCALED) or {}
    shown = ShownCondition(SCALED, entry.get("reason") or "", entry.get("message") or "")
    return shown if entry.get("status") == "False" else None


def _stored(uid: str, observed: Observed) -> dict[str, Mapping[str, Any]]:
    """Return the data of each ControllerRevision of the service with this UID, by name of the revision."""
    return {
        child.labels.get(keys.REVISION, ""): child.content["data"]
        for child in observed.children.values()
        if child.kind == "ControllerRevision" and child.content and slices.controlled_or_adoptable(child, uid)
    }


def _labels(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield the labels that a revision requires of its nodes. `data` is the data of the ControllerRevision."""
    identities = mounted_weights(data.get("inputs") or {})
    for identity, directory in with_directories(identities, directories(data)):
        if claim(identity["uri"]) is None:
            yield required_label(identity, directory)


def _slices(
    uid: str,
    wanted: str,
    observed: Observed,
    status: Mapping[str, Any],
    data: Mapping[str, Mapping[str, Any]],
    now: datetime | None,
) -> Iterable[SliceView]:
    present = slices.slices(observed, uid)
    both = any(pod.component == keys.DECODER for entry in present.values() for pod in entry.pods)
    for name, entry in sorted(present.items(), key=lambda item: item[0] == wanted):
        roles = roles_by_component(data.get(name) or {})
        disaggregated = keys.DECODER in roles or both
        found = (_role(component, entry, roles.get(component), disaggregated, status, now) for component in ROLES)
        state = _slice_state(name, status) or ("wanted" if name == wanted else "old")
        if shown := tuple(role for role in found if role is not None):
            told, known = status if name == wanted else {}, data.get(name) or {}
            views = tuple(_refused(role, told) for role in shown)
            yield SliceView(name, state, views, tuple(_labels(known)), any(directories(known)))


def _refused(role: RoleView, status: Mapping[str, Any]) -> RoleView:
    """Return the role, with the reason of its missing pods if the API server refuses them. This reason is in the condition
    of the role's component.
    """
    conditions = status.get("conditions") or ()
    found: Mapping[str, Any] = next((item for item in conditions if item.get("type") == CONDITION[role.component]), {})
    if found.get("status") != "False" or found.get("reason") != Reason.PODS_REFUSED:
        return role
    message = str(found.get("message") or "")
    known: dict[str, Any] = {"reason": Reason.PODS_REFUSED, "message": message.partition(REFUSED)[2] or message}
    groups = [
        replace(group, ranks=tuple(replace(rank, **known) if rank.reason == MISSING else rank for rank in group.ranks))
        for group in role.groups
    ]
    return replace(role, why="", groups=tuple(groups))


def _slice_state(name: str, status: Mapping[str, Any]) -> str:
    return next((entry.get("state") or "" for entry in status.get("slices") or () if entry.get("revision") == name), "")


def _role(
    component: str,
    entry: slices.Slice,
    role: StoredRole | None,
    disaggregated: bool,
    status: Mapping[str, Any],
    now: datetime | None,
) -> RoleView | None:
    """Return a role of a slice; None if the slice has neither pods nor wanted groups of this component. `role` is the stored
    role; None if it is not known. `disaggregated` states whether the revision has prefill and decode.
    """
    pods = [pod for pod in entry.pods if pod.component == component]
    wanted = _wanted(component, entry)
    if not pods and not wanted:
        return None
    if component == keys.ROUTER:
        groups = [_routers(pods, wanted)]
    else:
        size = role.size if role else 1 + max((pod.rank for pod in pods), default=0)
        numbers = sorted({*existing_groups(component, entry), *(pod.group for pod in pods)})
        remembered = group_notes(component, entry.revision, status, now)
        groups = [
            _group(number, [pod for pod in pods if pod.group == number], size, role, remembered.get(number, NO_NOTES))
            for number in numbers
        ]
    ranks = [rank for group in groups for rank in group.ranks]
    missing = any(rank.reason == MISSING for rank in ranks)
    ready = sum(rank.ready for rank in ranks)
    return RoleView(
        role=role_title(component, disaggregated),
        component=component,
        wanted=wanted,
        ready=ready if component == keys.ROUTER else sum(group.ready for group in groups),
        pods=len(ranks),
        ready_pods=ready,
        gpus=sum(rank.gpus for rank in ranks),
        why=_condition(component, status) if missing else "",
        groups=tuple(groups),
    )


def _wanted(component: str, entry: slices.Slice) -> int:
    """Return the number of groups of a component that the slice (revision) should have now."""
    return sum(
        child.replicas
        for child in entry.workloads
        if child.labels.get(keys.COMPONENT) == component and (child.kind == "Deployment" or slices.is_leader_set(child))
    )


def _condition(component: str, status: Mapping[str, Any]) -> str:
    name = CONDITION[component]
    found: Mapping[str, Any] = next((entry for entry in status.get("conditions") or () if entry.get("type") == name), {})
    return found.get("message") or "" if found.get("status") == "False" else ""


def _group(number: int, pods: list[Pod], size: int, role: StoredRole | None, notes: GroupNotes) -> GroupView:
    """Return a group. If a rank has two pods, because the old pod is still terminating, the newer pod represents the rank.
    `role` is the stored role; None if it is not known. `number` is the number of the group, and `size` the number of its
    ranks.
    """
    by_rank = {pod.rank: pod for pod in sorted(pods, key=lambda pod: (not pod.deleting, pod.version))}
    ranks = []
    for rank in sorted({*range(size), *by_rank}):
        part = role and (role.leader if rank == 0 else role.worker)
        ranks.append(_rank(rank, by_rank.get(rank), pod_gpus(part) if part else 0))
    gpus = sum(rank.gpus for rank in ranks)
    return GroupView(number, all(rank.ready for rank in ranks), gpus, notes.note, tuple(ranks), notes.start)


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
