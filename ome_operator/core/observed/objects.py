"""Compact representations of cluster objects: the input of `sync` in addition to the parsed kinds.

Whole objects are never kept: a pod of 7 KB of JSON takes 54 KiB as Python objects, while its representation is a tuple. All
types in this module are plain data.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ome_operator.api import AcceleratorClass, FineTunedWeight, Invalid, Model, Runtime
from ome_operator.api.well_known import NO_MODELS, WellKnown
from ome_operator.core.observed.validation import Validator, accept_all
from ome_operator.core.preflight.results import Checked
from ome_operator.settings import Policy

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as plain JSON data."""


class Ref(NamedTuple):
    """Reference to a model or runtime: kind, namespace ("" for cluster-wide kinds) and name."""

    kind: str
    namespace: str
    name: str


class Epoch(NamedTuple):
    """A version of an object's spec: its generation."""

    uid: str
    """UID of the object; "" if it does not exist or is invalid."""
    generation: int


class Child(NamedTuple):
    """An object with our labels, regardless of its owner."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: int
    """resourceVersion; a larger value is newer."""
    owner: str
    """UID of the controller owner; "" without one."""
    labels: Mapping[str, str]
    hash: str
    """Our hash annotation: the digest of the manifest that was applied last; "" without the annotation."""
    owned: str
    """Digest of the fields that our managedFields entry covers now; "" if we never applied the object."""
    deleting: bool
    replicas: int
    """spec.replicas of a workload or RoleScale, else 0."""
    message: str
    """Why a Deployment cannot create pods (condition ReplicaFailure), or why an autoscaler cannot read metrics
    (ScalingActive), else ""."""
    content: Manifest | None
    """`{"revision": int, "data": {...}}` of a ControllerRevision, the status of a RoleScale, `{"status": {...},
    "generation": int}` of a BenchmarkJob's Job, the result of `route.content` for an HTTPRoute, else None."""
    template: str = ""
    """Name of a StatefulSet's current template, as its pods have it in a label; "" for other kinds and while it is
    unknown."""


class Termination(NamedTuple):
    """How the main container of a pod terminated last, or how the pod was disrupted."""

    container: str
    """Name of the container; "" if the termination concerns the whole pod."""
    reason: str
    """Error, OOMKilled, Completed, Evicted, EvictionByEvictionAPI, DeletionByTaintManager, …"""
    code: int | None
    """Exit code of the container; None for a pod."""
    message: str
    """The last log lines of the container, or the message of the pod's condition or status."""
    time: str
    """Time in RFC 3339; "" if it is unknown."""


class Times(NamedTuple):
    """When a pod reached each stage last, in RFC 3339; "" for a stage that it has not reached."""

    created: str = ""
    scheduled: str = ""
    began: str = ""
    """When the main container started last."""
    ready: str = ""


NO_TIMES = Times()


class Pod(NamedTuple):
    """A pod with our labels."""

    namespace: str
    name: str
    uid: str
    version: int
    service: str
    component: str
    revision: str
    group: int
    """Number of the group; 0 for routers."""
    rank: int
    """Rank in the group; 0 is the leader."""
    workload: str
    """Name of the controller owner (StatefulSet or ReplicaSet)."""
    node: str
    ready: bool
    deleting: bool
    grace: int
    """Grace period of a deletion in seconds; 0 if the pod is not being deleted."""
    restarts: int
    """Restarts of the main container."""
    reason: str
    """Why the pod is not ready, as one CamelCase word: Unschedulable, CrashLoopBackOff, Starting, …; "" if it is ready."""
    message: str
    """The message for the reason, from the scheduler, the kubelet or the container's last log lines."""
    draining: str = ""
    """Value of the mark on a leader whose group will be removed: the start of draining, in RFC 3339."""
    workload_uid: str = ""
    """UID of the controller owner. A pod of a deleted workload can have the same names and labels as a pod of its
    successor."""
    running: bool = True
    """Whether the main container runs. The condition Ready does not cover ranks above 0."""
    probed: bool = False
    """Whether the main container has a readiness or startup probe; without a probe, Ready only means that the container
    runs."""
    over: bool = False
    """Whether the pod has terminated for good, so that its containers are not restarted."""
    ends: str = ""
    """When the grace period of a deletion ends, in RFC 3339; "" if the pod is not being deleted."""
    template: str = ""
    """Name of the template from which its StatefulSet created the pod."""
    ip: str = ""
    """IP address of a router's pod; "" for other pods, for which it is not needed."""
    ending: Termination | None = None
    priority: int = 0
    """Priority that the API server set from the PriorityClass."""
    preflight: Checked | None = None
    """Result of the preflight check; None if it found nothing."""
    gpus: int = 0
    """Number of requested GPUs."""
    times: Times = NO_TIMES


class Taint(NamedTuple):
    """A taint of a node, which repels pods that do not tolerate it."""

    key: str
    value: str
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""


class Node(NamedTuple):
    """The properties of a node that are relevant for placement and models."""

    name: str
    version: int
    labels: Mapping[str, str]
    ready: bool
    """Ready and schedulable."""
    gpus: int
    """Allocatable GPUs (the sum of all `…/gpu` resources)."""
    ours: frozenset[str] = frozenset()
    """Keys of labels that we applied."""
    alive: bool = True
    """Whether the kubelet reports, even if the node is not schedulable."""
    taints: tuple[Taint, ...] = ()
    """The sorted taints, without those that only affect the scheduler's preferences."""
    room: tuple[tuple[str, int], ...] = ()
    """Allocatable amounts by resource, sorted; CPUs in thousandths. () until the kubelet has reported them."""


class Holding(NamedTuple):
    """The state of one model on one node, as its agent reports it."""

    ref: Ref
    uri: str
    revision: str
    state: str
    """Ready, Updating or Failed."""
    directories: tuple[str, ...] = ()
    """Directory of the model's revision, once it is complete on the node (`core/weights/mount.py:directory`)."""
    bytes: int = 0
    total: int = 0
    speed: int = 0
    """Bytes per second."""
    message: str = ""
    verified_at: str = ""
    facts: Manifest | None = None


class Unused(NamedTuple):
    """A directory of weights on one node that no model there refers to."""

    directory: str
    models: tuple[str, ...] = ()
    """Node labels of the models for which it was downloaded; () if it is incomplete."""
    paths: tuple[str, ...] = ()
    """Paths of models that were symlinks to the directory."""
    offer: str = ""
    """Time since which the agent offers to remove the directory; "" if it keeps the directory."""


class NodeRecord(NamedTuple):
    """An agent's record of its node."""

    node: str
    uid: str
    version: int
    holdings: tuple[Holding, ...]
    unused: tuple[Unused, ...] = ()
    remove: frozenset[tuple[str, str]] = frozenset()
    """(directory, offer) of the directories whose removal the operator has allowed."""


class Refusal(NamedTuple):
    """The API server's error for a write or deletion of an object."""

    reason: str
    """NameTaken, Waiting, Forbidden, Invalid, Conflict, …"""
    message: str
    uid: str = ""
    """UID of the object that should have been deleted; "" for other writes."""


class Strangers(NamedTuple):
    """Foreign workers in a router, which the operator did not register."""

    found: int
    """Number of foreign workers."""
    at: float
    """When the last foreign worker was found, in seconds since the epoch."""


class Turn(NamedTuple):
    """The state of a gang that is queued for admission to nodes (core/placement/admission.py)."""

    sure: bool | None = None
    """Whether the gang probably fits, if it is admitted to try now; else None."""
    rivals: tuple[Any, ...] = ()
    """Claims of other services."""
    waits: str = ""
    """What the gang waits for now, or after its try, as a text to follow "waits for"; "" if it does not wait."""
    coming: bool = False
    """Whether an autoscaler reported that it creates nodes for the gang's pods."""
    gives_way: frozenset[tuple[str, int]] | None = None
    """Groups that hold nodes without serving, and release them now for other services; empty if there are none, or if
    this was not determined since they were requested; None if the service has not asked."""


NO_TURN = Turn()
NO_POLICY = Policy(router_keys=False, agent_roots=(), gang_timeout=0.0, models_per_namespace=0)
"""The settings if no operator's settings are known: nothing is limited, and nothing optional is created."""


@dataclass(frozen=True)
class Deps:
    """The objects that a service can refer to, in their current state. The operator updates these maps in place with each
    event, so callers must not keep them.
    """

    models: Mapping[Ref, Model | Invalid] = field(default_factory=dict)
    runtimes: Mapping[Ref, Runtime | Invalid] = field(default_factory=dict)
    accelerators: Mapping[str, AcceleratorClass] = field(default_factory=dict)
    weights: Mapping[str, FineTunedWeight | Invalid] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    holders: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """Node label key below `models.ome.io/` -> names of the nodes on which its value is Ready."""
    policy: Policy = NO_POLICY
    """The operator's settings."""
    well_known: WellKnown = NO_MODELS
    """Facts about well-known models, for models whose files no agent has read."""
    frozen: str = ""
    """Since when, by whom and why all services are frozen; "" if they are not."""
    judge: Validator = accept_all
    """Validates revisions with the rules of `ome lint`."""


@dataclass(frozen=True)
class Observed:
    """The objects that belong to one service, and the results of earlier passes."""

    children: Mapping[tuple[str, str], Child] = field(default_factory=dict)
    """(kind, name) -> object with our labels for this service."""
    pods: tuple[Pod, ...] = ()
    refusals: Mapping[tuple[str, str], Refusal] = field(default_factory=dict)
    """(kind, name) -> why the last write of the object failed."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """UID -> `Child.owned` after our last apply, if it differs from the hash: user values that the API server normalizes
    (`1000m` -> `1`) must not count as drift."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """Question -> "" for success, else a message: the API server's answer to the dry run of a revision's workloads, or
    what keeps them from fitting on the nodes."""
    failures: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(kind, name) of a workload with missing pods -> message of the newest FailedCreate event."""
    warnings: tuple[str, ...] = ()
    """`Warning:` headers of the responses to our applies."""
    ahead: Callable[[Mapping[Ref, Epoch]], str] = lambda _: ""
    """Returns what the service waits for before it rolls out these versions of shared objects; "" if its wave has
    started."""
    turn: Turn = NO_TURN
    strangers: Mapping[str, Strangers] = field(default_factory=dict)
    """UID of a router's pod -> the foreign workers that its registry reported."""
    another: str = ""
    """Name of a foreign field manager that wrote the service's status within the last five minutes; "" if there is none."""

    def intact(self, child: Child) -> bool:
        """Return whether our fields of an object are unchanged: as applied, or as the API server normalized them after
        our apply.
        """
        return child.owned in (child.hash, self.accepted.get(child.uid))
