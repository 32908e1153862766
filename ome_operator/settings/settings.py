"""All settings of the operator, each with the reason for its default."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ome_operator import keys
from ome_operator.settings.option import HIGHEST_PORT, LOG_FORMATS, LOG_LEVELS, Form, Option
from ome_operator.settings.policy import Policy

_POLICY = Policy()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the operator. They are read once at the start, from the command line and a file (`ome operator
    --config`). Fields without an Option are constants that tests replace.
    """

    kubeconfig: Annotated[
        Path | None,
        Option(flag="--kubeconfig", help="Kubeconfig file. If unset: the ServiceAccount of this pod.", env="KUBECONFIG"),
    ] = None
    context: Annotated[str | None, Option(flag="--context", help="Context of the kubeconfig.")] = None
    """The default is the current context of the kubeconfig."""

    # --- scope --------------------------------------------------------------------------------------------------------
    watch_namespaces: Annotated[
        tuple[str, ...],
        Option(
            flag="--watch-namespace",
            help="Namespaces in which the operator works (docs/namespaces.md); if unset: all.",
            value="watchNamespaces",
            pattern="[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            fix="write the name of a namespace, and repeat the option for each namespace.",
        ),
    ] = ()
    """With a list, the chart gives the operator a Role in each of these namespaces, which must exist, and a ClusterRole
    only for cluster-scoped objects. Without a list, the operator needs permissions in all namespaces."""
    operator_class: Annotated[
        str,
        Option(
            flag="--operator-class",
            help=f"Act on objects whose label {keys.OPERATOR_CLASS} has this value; empty: on objects without the label.",
            value="operatorClass",
            pattern="([a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?)?",
            fix="write at most 30 of the characters a-z, 0-9 and -, such as team-b.",
        ),
    ] = ""
    """A second operator in a cluster needs a class, as with Ingress controllers. All names in the chart then end with the
    class."""
    policy: Policy = _POLICY

    # --- leader election --------------------------------------------------------------------------------------------
    identity: Annotated[
        str,
        Option(
            flag="--identity",
            help="Name of this process in the Lease. If unset: the pod's UID, or a random name outside a pod.",
            env="POD_UID",
            computed=True,
        ),
    ] = "ome-operator"
    """A restarted container of the same pod has the same UID and therefore continues with the Lease immediately."""
    leader_election: Annotated[
        bool,
        Option(
            flag="--leader-election", help="Work only while this process holds the Lease.", value="operator.leaderElection"
        ),
    ] = True
    """The replicas elect the active replica by a Lease. Without leader election there can be only a single replica:
    switch it off only for tests, and for a single process that a person runs manually."""
    lease_namespace: Annotated[
        str,
        Option(
            flag="--namespace-of-lease",
            help="Namespace of the Lease for leader election. If unset: the namespace of the pod, or the namespace ome "
            "outside of a pod.",
            computed=True,
        ),
    ] = "ome"
    lease_name: str = "ome-operator"
    lease_duration: float = 15.0
    """Seconds for which the leader's Lease is valid. The value is the default of operators that use client-go. A crashed
    leader is replaced within this time."""
    lease_renew: float = 10.0
    """Seconds within which a leader must renew the Lease; otherwise it exits. The value is smaller than `lease_duration`,
    so that there are never two leaders."""
    lease_retry: float = 2.0
    lease_patience: float = 30.0
    """Seconds for which the event loop of a leader may be blocked. After a longer block, the leader stops renewing the
    Lease, so that another replica takes over."""
    silence: float = 60.0
    """Seconds for which the event loop of a process may be blocked. After a longer block, the process exits, because
    outside a cluster there are no probes."""

    @property
    def own_name(self) -> str:
        """The name that the chart gives to the operator's Lease, ServiceAccount and policies."""
        return self.lease_name + (f"-{self.operator_class}" if self.operator_class else "")

    # --- watching ---------------------------------------------------------------------------------------------------
    audit_interval: float = 600.0
    """Seconds between two comparisons of the UIDs of each kind with a list from the API server. The comparison does not
    depend on watch events. It also runs soon after each relist, because a relist can lose deletions (decisions 1)."""
    audit_debounce: float = 1.0
    """Seconds between a relist and the comparison of UIDs, so that several relists cause a single comparison."""
    watch_server_timeout: int = 600
    """Seconds after which the API server ends a watch. Load balancers then distribute the reopened watches again."""
    request_timeout: float = 30.0
    connections: Annotated[
        int, Option(flag="--connections", help="Maximum number of connections to the API server.", ge=1)
    ] = 32
    """More connections do not make the API server faster: it processed 212 applies per second from one process on a small
    machine."""

    # --- work -------------------------------------------------------------------------------------------------------
    workers: Annotated[
        int, Option(flag="--workers", help="Maximum number of services that are reconciled at the same time.", ge=1)
    ] = 10
    """Most workers wait for a status write. With 7 workers the last pod of a service waited for a worker (100 services of
    11 pods, the slowest 2 %: 0.8 s from the last pod to Ready instead of 0.65 s)."""
    long_passes: int = 4
    """Maximum number of workers that at the same time reconcile services which have no objects yet. Each such
    reconciliation applies a dozen objects, so four workers keep an API server busy. More workers only delay status writes
    (measured: 31 s from a service's last pod to Ready with 8 of 8 workers)."""
    shared_passes: int = 4
    """Maximum number of workers that at the same time do reconciliations which an edit of a shared object caused
    (decisions 37). The other workers stay available, no matter how many services share the object."""
    shared_share: float = 0.2
    """Fraction of the event loop's time that reconciliations after an edit of a shared object may use while there is
    other work."""
    child_delay: float = 0.1
    """Seconds between a pod event and the reconciliation, so that a burst of events causes a single reconciliation. The
    event of a service's last pod is not delayed, because this pod makes the service Ready."""
    child_spacing: float = 0.25
    """Minimum seconds between two reconciliations of a key if only events of its children enqueue it."""
    catalog_delay: float = 1.0
    """Seconds by which status writes of models, runtimes and accelerator classes are delayed, so that a hundred new
    services cause one write. An edit of such an object is processed and passed to its services immediately, but not
    sooner than this time after the previous edit."""
    backoff_first: float = 0.5
    backoff_last: float = 300.0
    resync: float = 600.0
    """Seconds between two reconciliations of a key for which there are no events."""
    status_interval: float = 10.0
    """Minimum seconds between two status writes of a service in which only informational counts change. A reconciliation
    that would only report such a change also waits this long after the previous reconciliation (decisions 17)."""
    status_rate: float = 10.0
    """Maximum number of status writes per second, over all services, for changes that concern only the numbers in messages
    (decisions 17)."""
    failures_after: float = 3.0
    """Seconds for which pods must be missing before the events of their workload are read (decisions 15)."""
    starts_after: float = 10.0
    """Seconds for which no container of a pod must have run before the events about the pod are read. Nearly all pods
    have their volumes by then."""
    foreign_writer_pause: float = 300.0
    """Seconds for which a service is not reconciled after a foreign controller wrote its status (decisions 24)."""
    guard_delay: float = 1.0
    """Seconds until a reconciliation is repeated if its guard finds a pod that must not exist."""
    waves: Annotated[
        tuple[str, ...],
        Option(
            flag="--waves",
            help="Number or percentage of services that have a shared edit at the end of each wave of its rollout.",
            value="rollout.waves",
            form=Form.STEPS,
        ),
    ] = ("1", "5%", "25%", "100%")
    """A shared edit is an edit of a runtime, a model or an accelerator class. Each wave ends with more services than the
    previous wave, and the last wave contains all services (docs/rollouts.md). The annotation `ome.io/rollout-waves` of
    the object, such as `1, 5%, 25%`, takes precedence."""
    bake: Annotated[
        float,
        Option(
            flag="--bake",
            help="How long the services of a wave must be complete before the next wave begins, at most 720h.",
            value="rollout.bake",
            form=Form.DURATION,
        ),
    ] = 300.0
    """The annotation `ome.io/rollout-bake` of the object takes precedence."""
    max_concurrent_services: Annotated[
        int,
        Option(
            flag="--max-concurrent-services",
            help="Maximum number of services that a shared edit replaces at the same time; 0: all services of a wave.",
            value="operator.maxConcurrentServices",
            ge=0,
        ),
    ] = 0

    avoid_bad_nodes: Annotated[
        bool,
        Option(
            flag="--avoid-bad-nodes",
            help="Place no new groups on nodes on which groups fail again and again (docs/bad-nodes.md).",
            value="placement.avoidBadNodes",
        ),
    ] = True
    """If false, the operator still remembers failures, and `ome nodes` shows them, but groups may be placed on these
    nodes again. The default is on because at most a tenth of the nodes are avoided, and because a service that fits on no
    other nodes uses them nevertheless."""
    lint_refuse: Annotated[
        bool,
        Option(
            flag="--lint-refuse",
            help="Do not roll out new revisions with flags that SGLang's own argument parser refuses (docs/lint.md).",
            value="lint.refuse",
        ),
    ] = True
    """A revision is refused only if its version of SGLang is known exactly; the revision that serves stays. The
    annotation `ome.io/lint-ignore` of a service disables a rule. The condition `Advice` reports all other findings of
    `ome lint`, independent of this option. The default is on because a wrong refusal can be corrected with an
    annotation, while a missing refusal replaces the pods on all GPUs of a service."""

    # --- freezing (docs/observe-freeze.md) --------------------------------------------------------------------------
    freeze_interval: float = 2.0
    """Seconds between two reads of the Lease that freezes all services. Each read is a read of a small object."""

    # --- rendering --------------------------------------------------------------------------------------------------
    router_watch: Annotated[
        float,
        Option(
            flag="--router-watch",
            help="Seconds between two requests for the load of each router (only inside the cluster); 0: never.",
            part_of="registry.enabled",
            ge=0,
        ),
    ] = 0.0
    """The default is 0 because, outside the cluster, the operator cannot reach the addresses of router pods, or these
    addresses belong to other machines. The chart sets 5. Without these requests, foreign workers are not reported, and a
    group that is removed waits a fixed time for its requests (docs/telemetry.md)."""
    router_proxy: Annotated[
        bool,
        Option(
            flag="--router-proxy",
            help="If --router-watch is 0: request the load of each router every 30 s through the API server (get "
            "pods/proxy). It is then known for about two thirds of the time.",
            part_of="registry.podsProxy",
        ),
    ] = False
    """A load that was reported more than 20 s ago is unknown. The default is off because the right reaches every port of
    every pod (docs/security.md)."""
    well_known_models: Annotated[
        str,
        Option(
            flag="--well-known-models",
            help="Facts of well-known models: a file or directory; `package`: those of this program; empty: none.",
            part_of="wellKnownModels.enabled",
        ),
    ] = "package"
    benchmark_image: Annotated[
        str,
        Option(
            flag="--benchmark-image",
            help="Image that BenchmarkJobs run: any image with SGLang's serving benchmark.",
            value="benchmark.image",
        ),
    ] = "docker.io/lmsysorg/sglang:v0.5.23"
    """`spec.podOverride.image` of a job takes precedence (docs/benchmarks.md)."""
    tools_image: Annotated[
        str,
        Option(
            flag="--tools-image",
            help="Image (images/agent) that downloads data sets and writes reports; empty: BenchmarkJobs are refused.",
            part_of="benchmark.toolsImage",
        ),
    ] = ""
    """There is no default, because an image name without a registry would refer to a public registry, where anyone could
    publish that image."""

    # --- the process ------------------------------------------------------------------------------------------------
    address: Annotated[
        str,
        Option(
            flag="--address",
            help="Address of probes and metrics; empty: all addresses. "
            "If unset: empty, or 127.0.0.1 if --kubeconfig is set.",
            computed=True,
        ),
    ] = ""
    """The kubelet probes the pod's address. With a kubeconfig, the operator usually runs on a developer's machine."""
    health_port: Annotated[
        int,
        Option(
            flag="--health-port",
            help="Port of /healthz and /readyz; 0: a free port. If unset: 8081, or 18081 if --kubeconfig is set.",
            ge=0,
            le=HIGHEST_PORT,
            computed=True,
        ),
    ] = 8081
    metrics_port: Annotated[
        int,
        Option(
            flag="--metrics-port",
            help="Port of /metrics; 0: a free port. If unset: 8080, or 18080 if --kubeconfig is set.",
            ge=0,
            le=HIGHEST_PORT,
            computed=True,
        ),
    ] = 8080
    """With a kubeconfig the default is 18080, because a port-forward to a service usually listens on 8080."""
    metrics_per_service: Annotated[
        int,
        Option(
            flag="--metrics-per-service",
            help="Maximum number of services with their own metrics. The values of all other services are summed.",
            value="metrics.perService",
            ge=0,
        ),
    ] = 100
    """Each of these services has about ten series, so a scrape of 100 services is 100 KB (docs/metrics.md)."""
    recorder_memory: Annotated[
        int,
        Option(
            flag="--recorder-memory",
            help=(
                "MiB of memory in which the last reconciliations of services are recorded; 0: no recording. The signal "
                "SIGUSR1 writes them to a file."
            ),
            value="operator.recorderMiB",
            ge=0,
        ),
    ] = 16
    """Send the signal with `kill -USR1` (docs/recorder.md)."""
    log_format: Annotated[
        str,
        Option(
            flag="--log-format",
            help="Format of the log: console or json.",
            value="operator.logFormat",
            choices=LOG_FORMATS,
            chart_default="json",
        ),
    ] = "console"
    """The default is console for terminals; in the chart it is json for log collectors."""
    log_level: Annotated[
        str,
        Option(
            flag="--log-level",
            help="Minimum level that is logged: DEBUG, INFO, WARNING or ERROR.",
            value="operator.logLevel",
            choices=LOG_LEVELS,
        ),
    ] = "INFO"
    stop_grace: float = 10.0
    """Seconds that running reconciliations have to finish after SIGTERM."""
