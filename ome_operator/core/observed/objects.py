"""What exists on the cluster, as slim facts: the input of `sync` beside the parsed kinds.

Whole objects are never kept (a pod of 7 KB of JSON is 54 KiB of Python objects; its facts are a tuple). Every type here
is plain data, made in `observe` from watched bodies and handed to pure functions.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ome_operator.api import AcceleratorClass, FineTunedWeight, Invalid, Model, Runtime
from ome_operator.api.well_known import NOBODY, WellKnown
from ome_operator.core.observed.validation import Judge, silent
from ome_operator.core.preflight.results import Checked
from ome_operator.settings import Policy

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as plain JSON data."""


class Ref(NamedTuple):
    """A model or runtime by kind, namespace ("" for cluster-wide kinds) and name."""

    kind: str
    namespace: str
    name: str


class Epoch(NamedTuple):
    """The time of an object between two edits of its spec."""

    uid: str
    """"" while there is no such object, or nobody can read it."""
    generation: int


class Child(NamedTuple):
    """An object that carries our labels, whoever owns it."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: int
    """resourceVersion; a larger one is newer."""
    owner: str
    """UID of the controller owner, "" without one."""
    labels: Mapping[str, str]
    hash: str
    """Our hash annotation: the digest of the manifest that was applied last, "" when there was none."""
    owned: str
    """Digest of what our managedFields entry covers now; "" when we never applied the object."""
    deleting: bool
    replicas: int
    """spec.replicas of a workload or RoleScale, else 0."""
    message: str
    """Why a Deployment cannot create pods (condition ReplicaFailure), or an autoscaler reads no metrics (ScalingActive),
    else ""."""
    content: Manifest | None
    """`{"revision": int, "data": {...}}` of a ControllerRevision, the status of a RoleScale, `{"status": {...},
    "generation": int}` of a BenchmarkJob's Job, what `route.content` makes of an HTTPRoute, else None."""
    template: str = ""
    """Name of a StatefulSet's present template, as its pods carry it; "" for other kinds and while it is not known."""


class Termination(NamedTuple):
    """How the main container of a pod ended last, or who took the pod away."""

    container: str
    """"" when it is about the pod."""
    reason: str
    """Error, OOMKilled, Completed, Evicted, EvictionByEvictionAPI, DeletionByTaintManager, …"""
    code: int | None
    """Exit code of the container."""
    message: str
    """The last log lines, or the sentence of whoever took the pod."""
    time: str
    """RFC 3339; "" when nobody said."""


class Times(NamedTuple):
    """When a pod's stages were reached last, in RFC 3339; "" while a stage is not reached."""

    created: str = ""
    scheduled: str = ""
    began: str = ""
    """The main container's present start."""
    ready: str = ""


NO_TIMES = Times()


class Pod(NamedTuple):
    """A pod of ours, by its labels."""

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
    """0 is the leader."""
    workload: str
    """Name of the controller owner (StatefulSet or ReplicaSet)."""
    node: str
    ready: bool
    deleting: bool
    grace: int
    """Grace period in seconds that a deletion gave it; 0 when it is not being deleted."""
    restarts: int
    """Of the main container."""
    reason: str
    """Why it is not ready, as one CamelCase word ("" when it is): Unschedulable, CrashLoopBackOff, Starting, …"""
    message: str
    """The sentence behind the reason, from the scheduler, the kubelet or the container's last words."""
    draining: str = ""
    """Value of the mark on a leader whose group is to go: since when, in RFC 3339."""
    workload_uid: str = ""
    """UID of the controller owner: a pod of a deleted workload has the name and labels of its successor's."""
    running: bool = True
    """Whether the main container runs. Ready says nothing about ranks above 0."""
    probed: bool = False
    """Whether the main container has a readiness or a start-up probe: without one, Ready says no more than that it runs."""
    over: bool = False
    """Whether the pod has ended for good: its containers are not started again."""
    ends: str = ""
    """When the grace period of a deletion is over, in RFC 3339; "" when it is not being deleted."""
    template: str = ""
    """Name of the template that its StatefulSet made it from."""
    ip: str = ""
    """Address of a router's pod; of other pods nobody asks for it."""
    ending: Termination | None = None
    priority: int = 0
    """As the API server took it from the PriorityClass."""
    preflight: Checked | None = None
    """What was found before its engine may start; None where nothing was."""
    gpus: int = 0
    """Accelerators that it asks for."""
    times: Times = NO_TIMES


class Taint(NamedTuple):
    """What keeps pods away from a node that do not tolerate it."""

    key: str
    value: str
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""


class Node(NamedTuple):
    """A node, as far as placement and models care."""

    name: str
    version: int
    labels: Mapping[str, str]
    ready: bool
    """Ready and schedulable."""
    gpus: int
    """Allocatable accelerators (the sum of all `…/gpu` resources)."""
    ours: frozenset[str] = frozenset()
    """Keys of labels that we have applied."""
    alive: bool = True
    """Whether its kubelet reports: also when nothing new may be put there."""
    taints: tuple[Taint, ...] = ()
    """Sorted, without those that only the scheduler's preferences care for."""
    room: tuple[tuple[str, int], ...] = ()
    """Allocatable amounts by resource, sorted: CPUs in thousandths. () while its kubelet has told none."""


class Holding(NamedTuple):
    """What one node has of one model, as its agent says."""

    ref: Ref
    uri: str
    revision: str
    state: str
    """Ready, Updating or Failed."""
    directories: tuple[str, ...] = ()
    """Directory of the model's revision, once it is whole on the node (`core/weights/mount.py:directory`)."""
    bytes: int = 0
    total: int = 0
    speed: int = 0
    """Bytes per second."""
    message: str = ""
    verified_at: str = ""
    facts: Manifest | None = None


class Unused(NamedTuple):
    """A directory of weights on one node that no model names there."""

    directory: str
    models: tuple[str, ...] = ()
    """Node labels of the models that it was fetched for; () when it is not whole."""
    paths: tuple[str, ...] = ()
    """Paths of models that were symlinks to it."""
    offer: str = ""
    """Since when the agent would remove it, "" where it keeps it."""


class NodeRecord(NamedTuple):
    """An agent's record of its node."""

    node: str
    uid: str
    version: int
    holdings: tuple[Holding, ...]
    unused: tuple[Unused, ...] = ()
    remove: frozenset[tuple[str, str]] = frozenset()
    """(directory, offer) of what we have allowed the agent to remove."""


class Refusal(NamedTuple):
    """What the API server answered when we tried to write or delete an object."""

    reason: str
    """NameTaken, Waiting, Forbidden, Invalid, Conflict, …"""
    message: str
    uid: str = ""
    """Of the object that was to be deleted; "" for any other write."""


class Strangers(NamedTuple):
    """Workers in the list of a router that nobody of ours put there."""

    found: int
    at: float
    """When the last was found, in seconds since the epoch."""


class Turn(NamedTuple):
    """What a gang that waits for nodes is told (core/placement/admission.py)."""

    sure: bool | None = None
    """Whether it seems to fit, where it may try now; else None."""
    rivals: tuple[Any, ...] = ()
    """Claims of other services."""
    waits: str = ""
    """For what it waits, or will when its try ends, behind "waits for"; "" where it does neither."""
    coming: bool = False
    """Whether an autoscaler said of its pods that it makes nodes for them."""
    gives_way: frozenset[tuple[str, int]] | None = None
    """Groups that hold nodes, serve nobody and are given back for others now; empty where there are none, or nobody has
    looked since they asked; None where the service has not asked."""


NO_TURN = Turn()
NO_POLICY = Policy(router_keys=False, agent_roots=(), gang_timeout=0.0, models_per_namespace=0)
"""The settings that apply where no operator's settings are known: nothing is bounded, and nothing optional is created."""


@dataclass(frozen=True)
class Deps:
    """What a service may refer to, as it is now. The operator changes the maps with each event: nobody keeps them."""

    models: Mapping[Ref, Model | Invalid] = field(default_factory=dict)
    runtimes: Mapping[Ref, Runtime | Invalid] = field(default_factory=dict)
    accelerators: Mapping[str, AcceleratorClass] = field(default_factory=dict)
    weights: Mapping[str, FineTunedWeight | Invalid] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    holders: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """Node label key below `models.ome.io/` -> names of the nodes where its value is Ready."""
    policy: Policy = NO_POLICY
    """The operator's settings."""
    well_known: WellKnown = NOBODY
    """Facts of models whose files nobody has read."""
    frozen: str = ""
    """Since when, by whom and why every service is frozen; "" while not all are."""
    judge: Judge = silent
    """Looks at revisions by the rules of `ome lint`."""


@dataclass(frozen=True)
class Observed:
    """What exists under the name of one service, and what the last passes learned about it."""

    children: Mapping[tuple[str, str], Child] = field(default_factory=dict)
    """(kind, name) -> object with our labels for this service."""
    pods: tuple[Pod, ...] = ()
    refusals: Mapping[tuple[str, str], Refusal] = field(default_factory=dict)
    """(kind, name) -> why the last write of it failed."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """UID -> `Child.owned` right after our last apply, where it differs from the hash: user fields that the server
    rewrites (`1000m` -> `1`) must not look like drift."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """What was asked -> "" yes, else a sentence: of the dry run of a revision's workloads the API server's, or what keeps
    them from the room on nodes."""
    failures: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(kind, name) of a workload with missing pods -> newest FailedCreate message."""
    warnings: tuple[str, ...] = ()
    """`Warning:` headers of our applies."""
    ahead: Callable[[Mapping[Ref, Epoch]], str] = lambda _: ""
    """What the service waits for that is to roll out edits of these objects; "" when it is its turn."""
    turn: Turn = NO_TURN
    strangers: Mapping[str, Strangers] = field(default_factory=dict)
    """UID of a router's pod -> what its registry says of strangers."""
    another: str = ""
    """Name of a foreign field manager that wrote the service's status within the last five minutes."""

    def intact(self, child: Child) -> bool:
        """Whether nobody changed what we own of it: as applied, or as the server rewrote it right after our apply."""
        return child.owned in (child.hash, self.accepted.get(child.uid))
