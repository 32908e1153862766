"""What `sync` decides: effects as data. The executor carries them out and verifies every guard against the API server.

Nothing is destroyed on a cache's word: deletes and patches carry the UID of the object they mean, and a `Guard` where the
decision rests on something that must not exist any more.
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
"""Kinds without which a service with ready pods is still not reachable."""


@dataclass(frozen=True)
class Guard:
    """No pod may match, read live from the API server right before the effect."""

    selector: str
    """Label selector in the API's spelling, in the service's namespace."""
    name: str = ""
    """Only the pod of this name counts; "" = any."""


@dataclass(frozen=True)
class NodeLost:
    """The node does not report, or is gone, read live from the API server right before the effect."""

    node: str


@dataclass(frozen=True)
class Apply:
    """A server-side apply of the whole manifest by our field manager."""

    manifest: Manifest
    uid: str
    """UID of the object that is to be changed; "" = it must not exist yet."""
    guard: Guard | None = None
    after: tuple[str, str] | None = None
    """(kind, name) of the object of ours that has to be stored before. A Role is read live, too."""

    @property
    def kind(self) -> str:
        """Of the object."""
        return str(self.manifest["kind"])


@dataclass(frozen=True)
class Create:
    """A POST under `keys.SCALE_MANAGER`; that the object exists already is success."""

    manifest: Manifest


@dataclass(frozen=True)
class EnsureSecret:
    """A Secret that must exist: the executor makes its content and POSTs it; nobody reads it (decisions 20)."""

    manifest: Manifest
    """Without its data."""


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
    """A deletion with UID precondition; dependents are garbage-collected in the background."""

    kind: str
    name: str
    uid: str
    grace: int | None = None
    """gracePeriodSeconds; None leaves the object's own."""
    guard: Guard | NodeLost | None = None


class PodFingerprint(NamedTuple):
    """What a recycle rests on, of a pod."""

    uid: str
    restarts: int
    deleting: bool
    ready_leader: bool
    """It leads its group and is ready."""


def fingerprint(pod: Pod) -> PodFingerprint:
    """What a recycle that this pod is part of rests on."""
    return PodFingerprint(pod.uid, pod.restarts, pod.deleting, pod.rank == 0 and pod.ready)


@dataclass(frozen=True)
class Recycle:
    """Deletions in one group, all or none: only if everything that they rest on is found the same, read live."""

    delete: tuple[Delete, ...]
    selector: str
    """Label selector that finds the group's pods."""
    pods: frozenset[PodFingerprint]
    """All of them."""
    scale: tuple[str, int] | None = None
    """Name and replicas of the role's RoleScale, where it has one."""


@dataclass(frozen=True)
class Check:
    """A server-side dry run of the workloads of a revision; the answer comes back in `Observed.checks`."""

    revision: str
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True)
class RoomCheck:
    """Read live what is free on nodes before something that serves goes for pods that need others than it holds; the answer
    comes back in `Observed.checks`.
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
    """How a service stands to the last edit of an object that it shares."""

    IDLE = "idle"
    """It need not do anything, and proves nothing."""
    EQUAL = "equal"
    """It is whole with it, and was before the edit: the edit changes nothing here, or came back to what there was."""
    PENDING = "pending"
    """It is not whole with it yet."""
    DONE = "done"
    """It became whole with it."""
    FAILED = "failed"
    """It did not become whole with it in time, or rejected it."""


class Stand(NamedTuple):
    """How a service stands to an object."""

    epoch: Epoch
    state: EditState = EditState.IDLE
    since: datetime | None = None
    """Since when it is whole; None where it is not, also where it has lost a group since."""
    narrow: bool = False
    """The pending edit of a runtime is about this service's accelerator class alone: others that are equal prove nothing."""


@dataclass(frozen=True)
class Plan:
    """Everything that one pass wants done for one service, in the order of the fields; the status comes last."""

    check: tuple[Check, ...] = ()
    look: tuple[RoomCheck, ...] = ()
    first: tuple[Apply, ...] = ()
    """ControllerRevisions, applied one after the other before `apply`: a slice is stamped from what is stored."""
    ensure_secret: tuple[EnsureSecret, ...] = ()
    """What pods mount, before there are pods."""
    apply: tuple[Apply, ...] = ()
    """Applied concurrently, but Services after what makes their pods."""
    create: tuple[Create, ...] = ()
    apply_status: tuple[ApplyStatus, ...] = ()
    patch: tuple[Patch, ...] = ()
    delete: tuple[Delete, ...] = ()
    recycle: tuple[Recycle, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    """The service's whole status as we want it; the executor writes it only when it differs from what is stored."""
    urgent: bool = True
    """False when only counts changed: such a status may wait, for `settings.status_interval` and for its turn."""
    events: tuple[Event, ...] = ()
    rolls: bool = False
    """The service rolls out an edit that others share, until it is whole, or would if nobody were ahead of it."""
    stands: Mapping[Ref, Stand] = field(default_factory=dict)
    """How it stands to the last edit of each object that it shares; nothing of a service that no shared edit reaches."""
    nodes: bool = False
    """What is decided rests on which nodes there are: the next pass comes when that changes."""
    claim: Claim | None = None
    """What the service wants of the nodes beside others, while it is not placed as a whole."""
    watch_failures: tuple[tuple[str, str], ...] = ()
    """(kind, name) of workloads that have fewer pods than they want: the shell looks for FailedCreate events."""
    requeue_after: float | None = None
    """Seconds until the next pass even if nothing happens."""
