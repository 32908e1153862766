"""The output of `sync`: effects as data. The executor carries them out and checks every guard against the API server.

No object is destroyed because of a cache: deletions and patches carry the UID of the object that they mean, and a `Guard` if
the decision depends on the absence of pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ome_operator.core.observed.objects import Epoch, Manifest, Pod, Ref
from ome_operator.core.placement.admission import Claim
from ome_operator.core.placement.fit import Needs

NEEDED = ("Service", "Role", "RoleBinding")
"""Kinds without which a service with ready pods is not reachable."""


@dataclass(frozen=True)
class Guard:
    """No pod may match the selector, read live from the API server immediately before the effect."""

    selector: str
    """Label selector in the API's syntax, in the service's namespace."""
    name: str = ""
    """Only the pod of this name counts; "" for any pod."""


@dataclass(frozen=True)
class NodeLost:
    """The node must not report or must be gone, read live from the API server immediately before the effect."""

    node: str


@dataclass(frozen=True)
class Apply:
    """A server-side apply of the whole manifest by our field manager."""

    manifest: Manifest
    uid: str
    """UID of the object that is changed; "" if the object must not exist yet."""
    guard: Guard | None = None
    after: tuple[str, str] | None = None
    """(kind, name) of an object of ours that has to be stored first. A Role is read live, too."""

    @property
    def kind(self) -> str:
        """The kind of the manifest."""
        return str(self.manifest["kind"])


@dataclass(frozen=True)
class Create:
    """A POST under `keys.SCALE_MANAGER`; an object that exists already counts as success."""

    manifest: Manifest


@dataclass(frozen=True)
class EnsureSecret:
    """A Secret that must exist: the executor generates its content and POSTs it; nobody reads it (decisions 20)."""

    manifest: Manifest
    """The Secret without its data."""


@dataclass(frozen=True)
class ApplyStatus:
    """A server-side apply of the status subresource of a child (RoleScale)."""

    manifest: Manifest


@dataclass(frozen=True)
class Patch:
    """A JSON merge patch that carries the UID."""

    kind: str
    name: str
    uid: str
    body: Manifest


@dataclass(frozen=True)
class Delete:
    """A deletion with a UID precondition; dependents are garbage-collected in the background."""

    kind: str
    name: str
    uid: str
    grace: int | None = None
    """gracePeriodSeconds; None keeps the object's own value."""
    guard: Guard | NodeLost | None = None


class PodFingerprint(NamedTuple):
    """The state of a pod that the decision to recycle its group depends on."""

    uid: str
    restarts: int
    deleting: bool
    ready_leader: bool
    """Whether the pod leads its group and is ready."""


def fingerprint(pod: Pod) -> PodFingerprint:
    """Return the fingerprint of a pod for the recycle of its group."""
    return PodFingerprint(pod.uid, pod.restarts, pod.deleting, pod.rank == 0 and pod.ready)


@dataclass(frozen=True)
class Recycle:
    """Deletions within one group, all or none: carried out only if a live read finds the same pods in the same state."""

    delete: tuple[Delete, ...]
    selector: str
    """Label selector of the pods of the group."""
    pods: frozenset[PodFingerprint]
    """The pods of the group."""
    scale: tuple[str, int] | None = None
    """Name and replicas of the role's RoleScale, if it has one."""


@dataclass(frozen=True)
class Check:
    """A server-side dry run of the workloads of a revision; the answer is in `Observed.checks` of the next pass."""

    revision: str
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True)
class RoomCheck:
    """A live read of the free capacity of nodes, before serving groups are removed for pods that need other nodes.

    The answer is in `Observed.checks` of the next pass.
    """

    key: str
    needs: Needs


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event about the service."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


class EditState(StrEnum):
    """The state of a service with regard to the last edit of an object that it shares."""

    IDLE = "idle"
    """The service need not change, and proves nothing about the edit."""
    EQUAL = "equal"
    """The service is complete with the edit and was complete before it: the edit changes nothing here, or was reverted."""
    PENDING = "pending"
    """The service is not complete with the edit yet."""
    DONE = "done"
    """The service became complete with the edit."""
    FAILED = "failed"
    """The service did not become complete with the edit in time, or rejected it."""


class Stand(NamedTuple):
    """The state of a service with regard to one shared object."""

    epoch: Epoch
    state: EditState = EditState.IDLE
    since: datetime | None = None
    """When the service became complete; None if it is not complete, also after it lost a group."""
    narrow: bool = False
    """True if the pending edit of a runtime only concerns this service's accelerator class: other services that are
    unaffected prove nothing."""


@dataclass(frozen=True)
class Plan:
    """Everything that a pass wants done for a service, in the order of the fields; the status is written last."""

    check: tuple[Check, ...] = ()
    look: tuple[RoomCheck, ...] = ()
    first: tuple[Apply, ...] = ()
    """ControllerRevisions, applied one after the other before `apply`: a slice is stamped from the stored revision."""
    ensure_secret: tuple[EnsureSecret, ...] = ()
    """Secrets that pods mount, created before the pods."""
    apply: tuple[Apply, ...] = ()
    """Applied concurrently, but Services after the objects that create their pods."""
    create: tuple[Create, ...] = ()
    apply_status: tuple[ApplyStatus, ...] = ()
    patch: tuple[Patch, ...] = ()
    delete: tuple[Delete, ...] = ()
    recycle: tuple[Recycle, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    """The complete desired status; written only if it differs from the stored status."""
    urgent: bool = True
    """False if only counts changed: such a status may wait, for `settings.status_interval` and for the rate limit."""
    events: tuple[Event, ...] = ()
    rolls: bool = False
    """Whether the service is rolling out an edit that others share, until it is complete, or would do so if no service
    were ahead of it."""
    stands: Mapping[Ref, Stand] = field(default_factory=dict)
    """The state with regard to the last edit of each shared object; empty for a service that no shared edit reaches."""
    nodes: bool = False
    """Whether the decision depends on the existing nodes: a change of nodes then triggers the next pass."""
    claim: Claim | None = None
    """The nodes that the service claims while it is not placed completely."""
    watch_failures: tuple[tuple[str, str], ...] = ()
    """(kind, name) of workloads that have fewer pods than desired: the controller looks for their FailedCreate events."""
    requeue_after: float | None = None
    """Seconds until the next pass, even if nothing happens."""
