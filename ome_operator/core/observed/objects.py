"""Compact representations of cluster objects: the input of `sync` in addition to the parsed kinds.

Whole objects are never kept: a pod of 7 KB of JSON takes 54 KiB as Python objects, while its representation is a tuple. All
types in this module are plain data.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ome_operator.api import AcceleratorClass, FineTunedWeight, Invalid, Model, Runtime
from ome_operator.api.well_known import NO_MODELS, WellKnown
from ome_operator.core.observed.admission import NO_ADMISSION, GangAdmission
from ome_operator.core.observed.arrivals import NO_ARRIVALS, Arrivals
from ome_operator.core.observed.autoscalers import ForeignAutoscaler
from ome_operator.core.observed.budgets import Budget
from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.silence import Silence
from ome_operator.core.observed.telemetry import DrainReport, ForeignWorkers, LeaderStart
from ome_operator.core.observed.times import NO_TIMES, Times
from ome_operator.core.observed.transfers import Transfers
from ome_operator.core.observed.validation import Validator, accept_all
from ome_operator.core.preflight.results import CheckResult
from ome_operator.settings import Policy

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as plain JSON data."""


class Ref(NamedTuple):
    """Reference to an object: kind, namespace ("" for cluster-wide kinds) and name."""

    kind: str
    namespace: str
    name: str


class Epoch(NamedTuple):
    """A version of the spec of an object: the UID and the generation of the object."""

    uid: str
    """UID of the object; "" if it does not exist or is invalid."""
    generation: int


class Child(NamedTuple):
    """An object that has the operator's labels, regardless of its owner."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: int
    """resourceVersion as a number; a larger number is newer."""
    owner: str
    """UID of the controller owner; "" if the object has none."""
    labels: Mapping[str, str]
    """The labels that the operator reads. Other labels are not kept."""
    hash: str
    """The operator's hash annotation: the digest of the manifest that was applied last; "" if the object has none."""
    owned: str
    """Digest of the fields that the operator owns now according to managedFields; "" if there was no apply."""
    deleting: bool
    replicas: int
    """Number of replicas in the spec of a workload or RoleScale; 0 for other kinds."""
    message: str
    """Why a Deployment cannot create pods, or why an autoscaler cannot read metrics; "" if neither is the case."""
    content: Manifest | None
    """The part of the object that the operator reads, which depends on the kind. ControllerRevision: `{"revision": int,
    "data": {...}}`. RoleScale: its status. Job: `{"status": {...}, "generation": int}`. HTTPRoute: the result of
    `route.content`. Other kinds: None."""
    template: str = ""
    """Name of a StatefulSet's current template, with which its pods are labeled; "" if unknown, and for other kinds."""
    generation: int = 0
    """metadata.generation of a RoleScale; 0 for other kinds."""
    woken: int = 0
    """metadata.generation of a RoleScale after the operator last changed its number; 0 if it never changed the number."""
    excluded: Exclusion = ()
    """The nodes on which the pods of a StatefulSet are not placed, as its annotation names them; () for other kinds."""


class Termination(NamedTuple):
    """The last termination of a pod's main container, or the disruption of the pod."""

    container: str
    """Name of the container; "" if the termination concerns the whole pod."""
    reason: str
    """The reason: Error, OOMKilled, Completed, Evicted, EvictionByEvictionAPI, DeletionByTaintManager, …"""
    code: int | None
    """Exit code of the container; None if the termination concerns the whole pod."""
    message: str
    """The last log lines of the container, or the message of the pod's condition or status."""
    time: str
    """Time of the termination in RFC 3339; "" if it is unknown."""


YIELDS = "-1"
"""Value of the annotation `keys.DELETION_COST` of a pod that its ReplicaSet has to remove first; other pods have 0."""


class Pod(NamedTuple):
    """A pod that has the operator's labels."""

    namespace: str
    name: str
    uid: str
    version: int
    service: str
    component: str
    revision: str
    group: int
    """Number of the pod's group; 0 for routers."""
    rank: int
    """Rank of the pod in its group; 0 is the leader."""
    workload: str
    """Name of the pod's controller owner, which is a StatefulSet or ReplicaSet."""
    node: str
    ready: bool
    deleting: bool
    grace: int
    """Grace period of the pod's deletion in seconds; 0 if the pod is not being deleted."""
    restarts: int
    """Number of restarts of the main container."""
    reason: str
    """Why the pod is not ready, as one CamelCase word: Unschedulable, CrashLoopBackOff, Starting, …; "" if it is ready."""
    message: str
    """Message for `reason`, from the scheduler, the kubelet or the container's last log lines."""
    draining: str = ""
    """When the draining of the leader began, in RFC 3339, as an annotation states it; "" if the leader is not drained."""
    workload_uid: str = ""
    """UID of the controller owner. It is necessary because a pod of a deleted workload can have the same names and labels
    as a pod of the workload that replaced it."""
    running: bool = True
    """Whether the main container runs. It is stored because the condition Ready does not cover ranks above 0."""
    probed: bool = False
    """Whether the main container has a readiness or startup probe; without one, Ready means that the container runs."""
    over: bool = False
    """Whether the pod has terminated and its containers are not restarted."""
    ends: str = ""
    """Time when the grace period of the pod's deletion ends, in RFC 3339; "" if the pod is not being deleted."""
    template: str = ""
    """Name of the template from which its StatefulSet created the pod."""
    ip: str = ""
    """IP address of a router's pod; "" for other pods, whose address is not needed."""
    ending: Termination | None = None
    priority: int = 0
    """Priority that the API server set from the PriorityClass."""
    preflight: CheckResult | None = None
    """Result of the pod's preflight check; None if there was no check, or if it found nothing."""
    gpus: int = 0
    """Number of GPUs that the pod requests."""
    times: Times = NO_TIMES
    scale_down: tuple[str, ...] = ()
    """Keys of those annotations of the pod that autoscalers of nodes read."""
    scale_down_mark: str = ""
    """The keys in `scale_down` that the operator wrote, separated by commas."""
    yields: bool = False
    """Whether the operator marked the pod, so that its ReplicaSet deletes it before other pods."""
    contacts: str = ""
    """Namespace of the leader that the pod contacts, if it is another namespace than the pod's; "" otherwise."""


class Taint(NamedTuple):
    """A taint of a node, which repels pods that do not tolerate it."""

    key: str
    value: str
    effect: str
    """NoSchedule or NoExecute. Taints with the effect PreferNoSchedule are not kept."""


class Node(NamedTuple):
    """The properties of a node that are relevant for placement and models."""

    name: str
    version: int
    labels: Mapping[str, str]
    ready: bool
    """Whether the node is Ready and schedulable."""
    gpus: int
    """Number of allocatable GPUs: the sum of all resources whose names end with `/gpu`."""
    ours: frozenset[str] = frozenset()
    """Keys of those labels of the node that the operator applied."""
    alive: bool = True
    """Whether the kubelet reports its status. It may report even if the node is not schedulable."""
    taints: tuple[Taint, ...] = ()
    """The node's taints, sorted, without taints that only affect the scheduler's preferences."""
    room: tuple[tuple[str, int], ...] = ()
    """(resource, allocatable amount) of each resource, sorted; CPUs in thousandths of a CPU. () until they are reported."""
    move: str = ""
    """Value of the annotation with which `ome move` requests that groups leave the node; "" if the node has none."""
    uid: str = ""
    faults: tuple[tuple[str, str], ...] = ()
    """The faults that the node itself reports (docs/bad-nodes.md): for each the kind, and a human-readable text."""


class NodeHolding(NamedTuple):
    """The state of one model on one node, as its agent reports it."""

    ref: Ref
    uri: str
    revision: str
    state: str
    """Ready, Updating or Failed."""
    directories: tuple[str, ...] = ()
    """Directories of the model's revisions that are complete on the node (`core/weights/mount.py:directory`)."""
    bytes: int = 0
    total: int = 0
    speed: int = 0
    """Speed of the model's download in bytes per second."""
    message: str = ""
    verified_at: str = ""
    facts: Manifest | None = None


class UnusedWeights(NamedTuple):
    """A directory of weights on one node that no model there refers to."""

    directory: str
    models: tuple[str, ...] = ()
    """Node labels of the models for which the directory was downloaded; () if the directory is incomplete."""
    paths: tuple[str, ...] = ()
    """Paths of models that were symbolic links to the directory."""
    offer: str = ""
    """Time, in RFC 3339, since when the agent has offered to remove the directory; "" if the agent keeps the directory."""


class NodeRecord(NamedTuple):
    """An agent's record (NodeModels) of its node."""

    node: str
    uid: str
    version: int
    holdings: tuple[NodeHolding, ...]
    unused: tuple[UnusedWeights, ...] = ()
    remove: frozenset[tuple[str, str]] = frozenset()
    """(directory, offer) of each directory that the operator permits the agent to remove."""
    created: str = ""
    """Time at which the API server stored the record, in RFC 3339."""
    prefetch: tuple[str, ...] | None = None
    """Directories that the operator has asked the agent to read into the page cache; None if the agent reads none."""


class Refusal(NamedTuple):
    """The last answer of the API server that refused to write or delete an object."""

    reason: str
    """Reason of the refusal, in one word: NameTaken, Waiting, Forbidden, Invalid, Conflict, …"""
    message: str
    uid: str = ""
    """UID of the object whose deletion was refused; "" for writes."""


NO_POLICY = Policy(router_keys=False, agent_roots=(), gang_timeout=0.0, models_per_namespace=0)
"""Settings for callers that do not have the operator's settings: no limit applies, and no optional object is created."""


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
    """Maps keys of node labels below `models.ome.io/` to the names of the nodes that have the label with the value Ready."""
    policy: Policy = NO_POLICY
    """The operator's settings."""
    well_known: WellKnown = NO_MODELS
    """Facts about well-known models, for models whose files no agent has read."""
    frozen: str = ""
    """Text that states since when, by whom and why all services are frozen; "" if they are not frozen."""
    judge: Validator = accept_all
    """Validates revisions with the rules of `ome lint`."""


@dataclass(frozen=True)
class Observed:
    """The objects that belong to one service, and the results of earlier reconciliations of it."""

    children: Mapping[tuple[str, str], Child] = field(default_factory=dict)
    """The objects with the operator's labels for this service, by (kind, name)."""
    pods: tuple[Pod, ...] = ()
    refusals: Mapping[tuple[str, str], Refusal] = field(default_factory=dict)
    """The reason why the last write of an object failed, by (kind, name) of the object."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Maps the UID of an object to the value of `Child.owned` after the operator's last apply, if it differs from the hash.
    The API server normalizes some values of users (`1000m` becomes `1`), which must not count as drift."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """Maps the key of a check to "" if the check succeeded, otherwise to a message. A check is a dry run of a revision's
    workloads by the API server, or a comparison of the nodes' capacity with a revision's pods."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Maps a revision to the reason why its dry run has no result yet, or why the result does not cover every pod."""
    failures: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The message of the newest FailedCreate Event about each workload with missing pods, by (kind, name)."""
    warnings: tuple[str, ...] = ()
    """Texts of the `Warning:` headers in responses to the operator's applies."""
    ahead: Callable[[Mapping[Ref, Epoch]], str] = lambda _: ""
    """Returns what the service waits for before it rolls out the given versions of shared objects; "" if it may begin."""
    turn: GangAdmission = NO_ADMISSION
    strangers: Mapping[str, ForeignWorkers] = field(default_factory=dict)
    """Maps the UID of a router's pod to the foreign workers (`telemetry.ForeignWorkers`) that its registry reported."""
    drains: Mapping[str, tuple[DrainReport, ...]] = field(default_factory=dict)
    """Maps the UID of a draining leader to the reports of routers' registries about its requests."""
    silences: Mapping[str, Silence] = field(default_factory=dict)
    """Maps the UID of a leader that answers no probes, or whose engine is paused, to a summary of registries' reports."""
    transfers: Transfers = field(default_factory=dict)
    """Maps the UID of a router's pod to the pairs of leaders whose transfers fail, according to its registry."""
    starts: Mapping[str, LeaderStart] = field(default_factory=dict)
    """Maps the UID of a leader that became ready recently to the times of its start that registries of routers observed."""
    arrivals: Arrivals = NO_ARRIVALS
    """The reports of routers' registries about requests that arrive while the service has no groups."""
    traffic: Manifest | None = None
    """The value of `status.traffic` (core/status/traffic.py); None if nothing is known about requests."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Maps the name of each node on which no new group of the service is placed to the reason."""
    scaling: Manifest | None = None
    """The value of `status.scaling` that the autoscaler of the class Demand has decided; None if it has decided nothing."""
    goes: bool = False
    """Whether the autoscaler has just decided to remove all groups, because the schedule needs no groups."""
    budgets: tuple[Budget, ...] = ()
    """The PodDisruptionBudgets of other clients in the service's namespace, as they were read last."""
    autoscalers: tuple[ForeignAutoscaler, ...] = ()
    """The HorizontalPodAutoscalers of other clients in the namespace of a service of the class Demand."""
    pulls: int = 0
    """Number of Jobs that pull images for other services before their rollouts."""
    another: str = ""
    """Field manager of another operator that wrote the service's status in the last five minutes; "" if there is none."""

    @cached_property
    def pod_failures(self) -> Mapping[tuple[str, str], str]:
        """The reason why pods of a workload cannot be created, by (kind, name) of the workload.

        The FailedCreate Events about the pods of a Deployment name its ReplicaSet, so the reason is read from the condition
        ReplicaFailure of the Deployment.
        """
        deployments = {key: child.message for key, child in self.children.items() if child.kind == "Deployment"}
        return {**{key: message for key, message in deployments.items() if message}, **self.failures}

    def is_intact(self, child: Child) -> bool:
        """Return whether the fields of an object that the operator owns are unchanged since the last apply: equal to the
        applied manifest, or to the form in which the API server stored it.
        """
        return child.owned in (child.hash, self.accepted.get(child.uid))
