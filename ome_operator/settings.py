"""Everything that can be tuned, each value with the reason for its default."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Exposure(NamedTuple):
    """The objects that make services reachable from outside of the cluster."""

    kind: str = ""
    """Ingress, HTTPRoute, or "" for neither, which needs no rights."""
    domain: str = ""
    """Hosts are `<service>.<namespace>.<domain>`."""
    ingress_class: str = ""
    """Name of the IngressClass; "" for the cluster's default."""
    gateway: str = ""
    """`namespace/name` of the Gateway."""


UNEXPOSED = Exposure()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The settings on which decisions about services depend: the core receives them unchanged (`Deps.policy`).

    Recordings contain these fields under their names (docs/recorder.md).
    """

    registry_image: str = ""
    """Image of the registry sidecar of routers; "" for routers without it. There is no default because anybody could take an
    image name without a registry on a public registry."""
    router_keys: bool = True
    """Whether the operator creates a key for the control plane of each service's routers, which needs the right to create
    Secrets."""
    model_agent: bool = False
    """Whether agents fetch the weights: pods of new revisions then mount the directory of their model's revision
    (decisions 7)."""
    agent_roots: tuple[str, ...] = ("/mnt/models",)
    """Directories of the nodes below which agents write; the agents have the same setting."""
    exposure: Exposure = UNEXPOSED
    policies_from: str = ""
    """Namespace of the operator, where each service gets NetworkPolicies, which needs rights on them; "" where none does."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in users' namespaces with which pods there pull the operator's own images."""
    observe: bool = False
    """Whether nothing but statuses is written."""
    observe_namespaces: frozenset[str] = frozenset()
    """Namespaces in which nothing but statuses is written."""
    sees_cluster: bool = True
    """Whether cluster-wide kinds and nodes are read. False only with `watch_namespaces`; the operator then needs no
    ClusterRole, and that such an object is not known proves nothing."""
    gang_timeout: float = 60.0
    """Seconds within which all pods of a gang (the first groups of a service, and each later group) must be on nodes,
    counted from its first pod there; otherwise the gang releases its nodes and is queued for admission. 0: no limit."""
    preflight: str = "Off"
    """Preflight mode of new revisions where neither service nor runtime sets it (`resolve.preflight`). Off because it has
    not been tried on a GPU yet."""
    models_per_namespace: int = 100
    """BaseModels of each namespace that the operator handles: all tenants share the work for models (10 s for each node with
    2,000). 0: all."""
    scrapes_engines: bool = False
    """Whether Prometheus scrapes engines: the status of a service whose engine serves no metrics then reports that."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Made once from the command line; read-only afterwards."""

    kubeconfig: Path | None = None
    """None: the ServiceAccount of the pod."""
    context: str | None = None
    """Context of the kubeconfig; None: its current one."""

    policy: Policy = Policy()

    # --- where it works ----------------------------------------------------------------------------------------------
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces that it works in; () for all, which needs rights in all of them."""
    operator_class: str = ""
    """It acts on objects with this class (label ome.io/operator-class); "" on those without the label."""

    # --- leader election --------------------------------------------------------------------------------------------
    identity: str = "ome-operator"
    """Whoever holds the Lease: the pod's UID, so that a restarted container goes on at once."""
    leader_election: bool = True
    """Off only for tests and for a single process that a person runs by hand."""
    lease_namespace: str = "ome"
    """Overridden by the pod's own namespace."""
    lease_name: str = "ome-operator"
    lease_duration: float = 15.0
    """What client-go's operators use: a crashed leader is replaced within this time."""
    lease_renew: float = 10.0
    """A leader that cannot renew for so long exits. Less than the duration, so that there are never two leaders."""
    lease_retry: float = 2.0
    lease_patience: float = 30.0
    """A leader whose event loop has not answered for so long renews no more: another shall work."""
    silence: float = 60.0
    """A process whose event loop has not answered for so long ends: outside of a cluster nobody probes it."""

    @property
    def own_name(self) -> str:
        """What the chart calls the operator's Lease, ServiceAccount and policies."""
        return self.lease_name + (f"-{self.operator_class}" if self.operator_class else "")

    # --- watching ---------------------------------------------------------------------------------------------------
    audit_interval: float = 600.0
    """Each kind's UIDs are compared with a list this often, whatever its watch says, and soon after each relist, which may
    lose deletions for good (decisions 1)."""
    audit_debounce: float = 1.0
    """After a relist, so that one audit follows several."""
    watch_server_timeout: int = 600
    """Watches are opened anew by the server after this time; load balancers then spread them again."""
    request_timeout: float = 30.0
    connections: int = 32
    """More do not make the API server faster: it took 212 applies a second from one process on a small machine."""

    # --- work -------------------------------------------------------------------------------------------------------
    workers: int = 10
    """Passes that run at the same time. Most of them wait for one status write; with 7 a service's last pod waited for them
    (100 services of 11 pods, the slowest 2 %: 0.8 s from the last pod to Ready instead of 0.65 s)."""
    long_passes: int = 4
    """Among them, passes over services of which nothing exists yet. Each applies a dozen objects, so four keep an API server
    busy; more only let status writes wait longer in line (measured: 31 s from a service's last pod to Ready with 8 of 8)."""
    shared_passes: int = 4
    """Among them, passes that an edit of a shared object caused (decisions 37): others find workers however many services
    share it."""
    shared_share: float = 0.2
    """Part of the event loop's time that these get while there is other work."""
    child_delay: float = 0.1
    """A burst of pod events becomes one pass. What turns a service Ready, the last of its pods, waits for nothing."""
    child_spacing: float = 0.25
    """At least so long between two passes of a key that only its children made dirty."""
    catalog_delay: float = 1.0
    """Statuses of models, runtimes and accelerator classes wait so long: a hundred new services are one write. An edit of
    such an object is looked at, and told to its services, at once, and so long after the former."""
    backoff_first: float = 0.5
    backoff_last: float = 300.0
    resync: float = 600.0
    """Every key is looked at again after about this time, whatever happens."""
    status_interval: float = 10.0
    """Counts of a status that nothing depends on are written at most this often (decisions 17)."""
    status_rate: float = 10.0
    """So many statuses a second, of all services, in which only numbers in sentences changed (decisions 17)."""
    failures_after: float = 3.0
    """Events of a workload are read when pods have been missing for so long (decisions 15)."""
    starts_after: float = 10.0
    """Events about a pod are read when no container of it has run for so long: nearly all have their volumes by then."""
    foreign_writer_pause: float = 300.0
    """For so many seconds after a foreign write of its status a service is left alone (decisions 24)."""
    guard_delay: float = 1.0
    """When a guard finds a pod that must not exist, the pass is repeated after this time."""
    waves: tuple[str, ...] = ("1", "5%", "25%", "100%")
    """How an edit that services share goes on from service to service (decisions 30)."""
    bake: float = 300.0
    """Seconds for which the services of a wave have to be whole before the next begins."""
    max_concurrent_services: int = 0
    """Most services that a shared edit replaces at the same time; 0: as many as the wave has."""

    lint_refuse: bool = True
    """New revisions that SGLang's own argument parser would end are not rolled out: a wrong refusal costs an annotation, a
    missing refusal moves all GPUs of a service."""

    # --- brakes (docs/observe-freeze.md) ----------------------------------------------------------------------------
    freeze_interval: float = 2.0
    """Seconds between two looks at the Lease, which says whether all is frozen: each look is a read of a small object."""

    router_watch: float = 0.0
    """Seconds between two looks at the registries beside routers; 0 for none. Outside of the cluster their pods have no
    address that we could reach, or somebody else has it."""

    well_known_models: str = "package"
    """Where facts of well-known models are: a file, a folder, "package" for those of this program, "" for none."""

    benchmark_image: str = "docker.io/lmsysorg/sglang:v0.5.23"
    """What BenchmarkJobs run: any image that has SGLang's serving benchmark."""
    tools_image: str = ""
    """What fetches their data sets and makes their reports: our own image with clients of object stores. Without it
    BenchmarkJobs are refused; no default, as above."""

    # --- the process ------------------------------------------------------------------------------------------------
    health_port: int = 8081
    """0: a free port."""
    metrics_port: int = 8080
    """0: a free port."""
    address: str = ""
    """Where both listen; "" is every address (the kubelet probes the pod's)."""
    metrics_per_service: int = 100
    """Services with series of their own; the others are summed. Some ten series each: a scrape of 100 costs 100 KB."""
    log_format: str = "console"
    """`console` or `json`."""
    log_level: str = "INFO"
    recorder_bytes: int = 0
    """Memory for the last passes of all services (docs/recorder.md); 0: none are kept. `ome operator` keeps 16 MiB."""
    stop_grace: float = 10.0
    """Passes that run may finish for so long after SIGTERM."""
