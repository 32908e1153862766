"""The records of the registry: pods, workers, leaders, and the changes of a pass."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from ome_operator.settings.option import Option


class RoleSpec(NamedTuple):
    """The settings of one component of the slice."""

    component: str
    """Value of the label `component` of the component's pods."""
    worker_type: str
    """Type of the workers in the router: `prefill`, `decode` or `regular`."""
    port: int
    """Port on which the leaders serve HTTP."""
    pods: int
    """Number of pods in each group."""
    stem: str
    """Prefix of the names of the component's StatefulSets."""


class RegistrySettings(NamedTuple):
    """Settings that do not change while the process is running; times are in seconds."""

    roles: Annotated[
        tuple[RoleSpec, ...],
        Option(
            flag="--role",
            help="component:type:port:pods:stem, for example engine:prefill:30000:4:kimi-k2-engine-5f4d, where stem is the "
            "prefix of the names of its StatefulSets.",
            repeats="May be given several times.",
        ),
    ]
    bootstrap_port: Annotated[
        int,
        Option(flag="--bootstrap-port", help="Bootstrap port of prefill pods without an annotation."),
    ] = 8998
    unready: float = 20.0
    """Maximum time for which a leader stays listed although it is not ready. During this time the router's own health checks
    stop requests to the leader, and the leader may recover."""
    settle: float = 60.0
    """Time after the start of a rank during which its leader gets no requests, if the rank started after the leader became
    ready: the group may have lost the previous pod of that rank."""
    retry: float = 15.0
    """Time after which the request to add a worker is repeated if the router does not list the worker; the router adds
    workers in the background."""
    early: float = 30.0
    """Time after an engine first reported that it is healthy, during which its leader is sent to the router although
    Kubernetes does not report the leader as ready yet. If the router lists the leader by the end of this time, the leader
    stays listed while its engine is healthy."""
    remember: float = 3600.0
    """Time for which the address of a deleted pod of this slice is not treated as foreign in the router's list."""


class Pod(NamedTuple):
    """One rank of a group, parsed from its pod."""

    name: str
    uid: str
    ip: str
    component: str
    group: str
    rank: int
    """Rank in the group; 0 is the leader."""
    running: bool
    """Whether the pod's main container is running."""
    started: float
    """Time when the main container started, in seconds since the epoch; 0 if unknown."""
    ready: bool
    ready_since: float
    """Time when `ready` last changed, in seconds since the epoch; 0 if unknown."""
    deleting: bool = False
    draining: bool = False
    bootstrap_port: int | None = None
    health_port: int | None = None
    """Port of the engine's health page if only this page can keep the pod from being ready. In this case, the probes of
    the main container request no other page, and the pod has neither a readiness gate nor another container that is not
    ready. None if anything else can keep the pod from being ready."""


class Worker(NamedTuple):
    """One entry of the router's worker list."""

    id: str
    url: str
    """URL of the worker. The URL ends with `@rank` if the router lists each rank of a data-parallel worker separately."""
    worker_type: str
    bootstrap_port: int | None
    running: int
    """Number of requests that run on the worker through this router."""

    @property
    def base(self) -> str:
        """URL of the worker without the rank."""
        return self.url.partition("@")[0].rstrip("/")


class WantedWorker(NamedTuple):
    """A leader that the router should list."""

    url: str
    worker_type: str
    bootstrap_port: int | None
    """Bootstrap port of a prefill worker; None for other workers."""
    pod: str
    uid: str


class WorkerRemoval(NamedTuple):
    """A worker that must be removed from the router's list."""

    worker: Worker
    why: str
    is_foreign: bool = False
    """Whether the worker's address neither belongs nor recently belonged to a pod of this slice. If so, another program
    or a user has added the worker to the router."""


class LeaderState(NamedTuple):
    """The state of a group, as the registry reports it to users and to the operator."""

    pod: str
    uid: str
    url: str
    role: str
    state: str
    """One of `serving`, `adding`, `waiting`, `draining`, `silent`."""
    why: str
    """Reason why the leader is not serving, or "" if it is serving."""
    listed: bool
    """Whether the router lists the leader, so that it may send new requests to the leader."""
    running: int | None
    """Number of requests that run on the leader through this router; None if the router does not list the leader."""
    is_starting: bool = False
    """Whether every rank runs, and only the readiness of the leader is missing."""
    bootstrap_port: int | None = None
    """Bootstrap port of a prefill leader; None for other leaders."""
    started: float = 0.0
    """Time when the leader's main container started, in seconds since the epoch; 0 if unknown."""


class WorkerMemory(NamedTuple):
    """The state that one pass hands to the next pass."""

    pods: Mapping[str, str] = {}
    """Maps the URL of a listed worker to the UID of the pod for which it was listed."""
    asked: Mapping[str, float] = {}
    """Maps the URL of a worker to the time when the router was asked to add it. The entry is removed when the router
    lists the worker."""
    unready: Mapping[str, float] = {}
    """Maps the UID of a leader to the time since which the leader has not been ready."""
    refill: frozenset[str] = frozenset()
    """URLs that were sent to a router without workers while the list of pods was outdated. Until the list is current again,
    these URLs may be sent again."""
    ours: Mapping[str, float] | None = None
    """Maps the URL of a pod of this slice to the time when the pod was last listed. None before the first pass, when
    every worker in the router's list may have been added by an earlier registry process."""


class WorkerChanges(NamedTuple):
    """The changes that a pass makes to the router's list, and the state for the next pass."""

    add: tuple[WantedWorker, ...]
    remove: tuple[WorkerRemoval, ...]
    leaders: tuple[LeaderState, ...]
    memory: WorkerMemory
