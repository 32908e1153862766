"""The output of `sync`: the effects of a pass (writes, deletions, checks and Events) as data. The executor carries out the
effects and checks every guard against the API server.

No object is destroyed because of stale cached data: deletions and patches carry the UID of their object, and also a `Guard`
if the decision depends on the absence of pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ome_operator.core.demand.task import DemandTask
from ome_operator.core.observed.objects import Epoch, Manifest, Pod, Ref
from ome_operator.core.placement.claims import Claim
from ome_operator.core.placement.fit import Needs
from ome_operator.core.placement.quotas import QuotaChange

NEEDED = ("Service", "Role", "RoleBinding")
"""Kinds of objects without which a service is not reachable although its pods are ready."""


@dataclass(frozen=True)
class Guard:
    """The condition that no pod matches the selector, checked by a live read immediately before the effect."""

    selector: str
    """Label selector in the syntax of the API, for pods in the namespace of the service."""
    name: str = ""
    """Name of the only pod that the guard considers; "" if it considers all pods."""


@dataclass(frozen=True)
class NodeLost:
    """The condition that a node does not report or is gone, checked by a live read immediately before the effect."""

    node: str


@dataclass(frozen=True)
class Apply:
    """A server-side apply of a complete manifest by our field manager."""

    manifest: Manifest
    uid: str
    """UID of the object to change; "" if the object must not exist yet."""
    guard: Guard | None = None
    after: tuple[str, str] | None = None
    """Kind and name of another object of the service that has to be stored before this object; None if there is none. If
    that object is a Role, it is also read live before the apply."""

    @property
    def kind(self) -> str:
        """The kind of the manifest."""
        return str(self.manifest["kind"])


@dataclass(frozen=True)
class Create:
    """The creation of an object by a POST of the field manager `keys.SCALE_MANAGER`. If the object exists already, the
    effect counts as successful.
    """

    manifest: Manifest


@dataclass(frozen=True)
class EnsureSecret:
    """A Secret that must exist. The executor generates the data of the Secret and creates it by a POST; the operator never
    reads it (decisions 20).
    """

    manifest: Manifest
    """The Secret without its data."""


@dataclass(frozen=True)
class ApplyStatus:
    """A server-side apply of the status subresource of a child object (a RoleScale)."""

    manifest: Manifest


@dataclass(frozen=True)
class Patch:
    """A JSON merge patch that contains the UID of its object."""

    kind: str
    name: str
    uid: str
    body: Manifest


@dataclass(frozen=True)
class Delete:
    """A deletion with the UID as a precondition. Dependent objects are garbage-collected in the background."""

    kind: str
    name: str
    uid: str
    grace: int | None = None
    """`gracePeriodSeconds` of the deletion; None to use the value of the object."""
    guard: Guard | NodeLost | None = None


class PodFingerprint(NamedTuple):
    """The part of the state of a pod on which the decision to recycle its group depends."""

    uid: str
    restarts: int
    deleting: bool
    ready_leader: bool
    """Whether the pod leads its group and is ready."""


def fingerprint(pod: Pod) -> PodFingerprint:
    """Return the part of the state of the pod `pod` on which the decision to recycle its group depends."""
    return PodFingerprint(pod.uid, pod.restarts, pod.deleting, pod.rank == 0 and pod.ready)


@dataclass(frozen=True)
class GroupRecycle:
    """Deletions of pods of one group. All of them are carried out if a live read finds the same pods in the same state;
    otherwise none is.
    """

    delete: tuple[Delete, ...]
    selector: str
    """Label selector of the pods of the group."""
    pods: frozenset[PodFingerprint]
    """The fingerprints of the pods of the group, as they were when the recycle was decided."""
    scale: tuple[str, int] | None = None
    """Name and replicas of the RoleScale of the role; None if the role has none."""


class PodQuestion(NamedTuple):
    """A pod that a rollout would create. A dry run shows whether the API server would refuse it."""

    title: str
    """The role and the place of the pod in its group, for messages."""
    pod: Manifest
    serving: Manifest | None = None
    """The corresponding pod of the revision that serves. A refusal of `pod` is compared with the answer for this pod. None
    if that revision has no corresponding pod."""
    live: str = ""
    """Name of an existing router pod that is used instead of `serving`, because templates of routers are not stored; "" for
    none."""


@dataclass(frozen=True)
class Check:
    """A server-side dry run of the workloads of a revision and of their pods. The result is in `Observed.checks` of the
    next pass.
    """

    revision: str
    """The revision, followed by "." and a digest of the objects that are checked."""
    manifests: tuple[Manifest, ...]
    pods: tuple[PodQuestion, ...] = ()
    quotas: QuotaChange | None = None
    """The objects that the rollout creates and removes, to be compared with the ResourceQuotas; None if quotas are not
    compared."""


@dataclass(frozen=True)
class CapacityCheck:
    """A live read of the free capacity of nodes, made before serving groups are removed for pods that need other nodes.

    The result is in `Observed.checks` of the next pass.
    """

    key: str
    needs: Needs
    second_copy: bool = False
    """Whether the pods would run in addition to all pods of the service. If so, no capacity is promised, and the result
    stays valid until the next such check."""


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event about the service."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


class EditState(StrEnum):
    """The state of a service with respect to the last edit of an object that it shares with other services."""

    IDLE = "idle"
    """The edit requires no change of the service, and the service does not show whether the edit works."""
    EQUAL = "equal"
    """The service was complete before the edit and is complete with it: the edit changes nothing here, or it was
    reverted."""
    PENDING = "pending"
    """The rollout of the edit to the service is not complete yet."""
    DONE = "done"
    """The rollout of the edit to the service is complete."""
    FAILED = "failed"
    """The rollout of the edit to the service did not become complete in time, or the edit was rejected."""


class EditStand(NamedTuple):
    """The state of a service in the rollout of the last edit of one shared object."""

    epoch: Epoch
    state: EditState = EditState.IDLE
    since: datetime | None = None
    """Since when the service has been complete; None while it is not complete, for example after it has lost a group."""
    narrow: bool = False
    """True if the pending edit of a runtime concerns only the accelerator class of this service. In this case, services
    that the edit does not change are no evidence that it works."""
    lacks: datetime | None = None
    """Time since which the pods of the pending edit have waited for something that the edit does not concern: a claim, a
    quota or a node. None if they do not wait, or if a container has failed."""


@dataclass(frozen=True)
class Plan:
    """Everything that a pass decided to do for a service. The effects are carried out in the order of the fields, and the
    status is written last.
    """

    check: tuple[Check, ...] = ()
    look: tuple[CapacityCheck, ...] = ()
    first: tuple[Apply, ...] = ()
    """ControllerRevisions, applied one after the other before `apply`, because StatefulSets are written from stored
    revisions."""
    ensure_secret: tuple[EnsureSecret, ...] = ()
    """Secrets that pods mount, created before the pods."""
    apply: tuple[Apply, ...] = ()
    """Objects that are applied concurrently, except that Services are applied after the objects that create their pods."""
    create: tuple[Create, ...] = ()
    apply_status: tuple[ApplyStatus, ...] = ()
    patch: tuple[Patch, ...] = ()
    scale: tuple[Patch, ...] = ()
    """Changes of RoleScales that wake a service without groups because a request has arrived, or that remove or restore the
    groups of a service because of its schedule."""
    delete: tuple[Delete, ...] = ()
    recycle: tuple[GroupRecycle, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    """The complete desired status. It is written only if it differs from the stored status."""
    urgent: bool = True
    """True if the status must be written at once. False if only counts changed: then it may wait for
    `settings.status_interval` and for the rate limit."""
    events: tuple[Event, ...] = ()
    pulls: int = 0
    """Number of Jobs that pull images for the service, including those that this plan creates."""
    rolls: bool = False
    """Whether the service is rolling out an edit of a shared object, or waits for other services before it may do so. False
    once the rollout is complete."""
    stands: Mapping[Ref, EditStand] = field(default_factory=dict)
    """The state of the service in the rollout of the last edit of each shared object; empty if no edits of shared objects
    are rolled out to the service."""
    nodes: bool = False
    """Whether the decision depends on the existing nodes. If it does, a change of nodes triggers the next pass."""
    claim: Claim | None = None
    """The request of the service for nodes; None if it needs no further nodes."""
    demand: DemandTask | None = None
    """The description of the service for the autoscaler of the class Demand; None if the service does not use it."""
    watch_failures: tuple[tuple[str, str], ...] = ()
    """Kind and name of each workload that has fewer pods than desired. The controller searches for their FailedCreate
    events."""
    requeue_after: float | None = None
    """Seconds until the next pass if no event triggers a pass before; None if only an event triggers it."""
