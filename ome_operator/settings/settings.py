"""All settings of the operator, each with the reason for its default."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ome_operator import keys
from ome_operator.settings.option import Form, Option
from ome_operator.settings.policy import Policy

_POLICY = Policy()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Read once at the start, from the command line and a file (`ome operator --config`). Fields without an Option are
    constants that tests replace.
    """

    kubeconfig: Annotated[
        Path | None,
        Option(flag="--kubeconfig", help="Kubeconfig file. Without it: the ServiceAccount of this pod.", env="KUBECONFIG"),
    ] = None
    context: Annotated[str | None, Option(flag="--context", help="Context of the kubeconfig.")] = None
    """Without it: the kubeconfig's current context."""

    # --- where it works ----------------------------------------------------------------------------------------------
    watch_namespaces: Annotated[
        tuple[str, ...],
        Option(
            flag="--watch-namespace",
            help="Namespaces that the operator works in (docs/namespaces.md); without any: all.",
            value="watchNamespaces",
            pattern="[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            fix="write the name of a namespace, and the option once for each.",
        ),
    ] = ()
    """With a list, the chart gives the operator a Role in each of these namespaces, which must exist, and in a ClusterRole
    only what belongs to no namespace. Without it, it needs rights in all namespaces."""
    operator_class: Annotated[
        str,
        Option(
            flag="--operator-class",
            help=f"Act on objects whose label {keys.OPERATOR_CLASS} has this value; empty: on objects without the label.",
            value="operatorClass",
            pattern="([a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?)?",
            fix="write at most 30 of a-z, 0-9 and -, such as team-b.",
        ),
    ] = ""
    """A second operator on a cluster needs a class, as with Ingress controllers; every name of the chart then ends in it."""
    policy: Policy = _POLICY

    # --- leader election --------------------------------------------------------------------------------------------
    identity: Annotated[
        str,
        Option(
            flag="--identity",
            help="Name of this process in the Lease. Without it the pod's UID, or a random name outside of a pod.",
            env="POD_UID",
            computed=True,
        ),
    ] = "ome-operator"
    """A restarted container of the same pod continues at once with the pod's UID."""
    leader_election: Annotated[
        bool,
        Option(flag="--leader-election", help="Work only while holding the Lease.", value="operator.leaderElection"),
    ] = True
    """Replicas agree by a Lease on which of them works. Without it there can be only a single replica: switch it off only
    for tests, and for a single process that a person runs by hand."""
    lease_namespace: Annotated[
        str,
        Option(
            flag="--namespace-of-lease",
            help="Namespace of the Lease for leader election. Without it the pod's own, or ome outside of a pod.",
            computed=True,
        ),
    ] = "ome"
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
    connections: Annotated[int, Option(flag="--connections", help="Connections to the API server.")] = 32
    """More do not make the API server faster: it took 212 applies a second from one process on a small machine."""

    # --- work -------------------------------------------------------------------------------------------------------
    workers: Annotated[int, Option(flag="--workers", help="Services that are reconciled at the same time.")] = 10
    """Most workers wait for a status write; with 7 a service's last pod waited for them (100 services of 11 pods, the
    slowest 2 %: 0.8 s from the last pod to Ready instead of 0.65 s)."""
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
    waves: Annotated[
        tuple[str, ...],
        Option(
            flag="--waves",
            help="Where each wave of a shared edit's rollout ends: a number of services, or a percentage of them.",
            value="rollout.waves",
            form=Form.STEPS,
        ),
    ] = ("1", "5%", "25%", "100%")
    """A shared edit is an edit of a runtime, a model or an accelerator class. Each wave ends later than the wave before; the
    last always has all services (docs/rollouts.md). The annotation `ome.io/rollout-waves` of the object, such as
    `1, 5%, 25%`, takes precedence."""
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
            help="Most services that an edit of a runtime, model or accelerator class replaces at a time; 0: a whole wave.",
            value="operator.maxConcurrentServices",
            ge=0,
        ),
    ] = 0

    lint_refuse: Annotated[
        bool,
        Option(
            flag="--lint-refuse",
            help="Do not roll out new revisions whose flags SGLang's own argument parser refuses (docs/lint.md).",
            value="lint.refuse",
        ),
    ] = True
    """A revision is refused only if its version of SGLang is known exactly; the revision that serves continues. The
    annotation `ome.io/lint-ignore` of a service overrides a rule. The condition `Advice` reports all other findings of
    `ome lint`, whatever this option is. The default is on because a wrong refusal costs an annotation, and a missing
    refusal moves all GPUs of a service."""

    # --- freezing (docs/observe-freeze.md) --------------------------------------------------------------------------
    freeze_interval: float = 2.0
    """Seconds between two looks at the Lease, which says whether all is frozen: each look is a read of a small object."""

    # --- what is rendered -------------------------------------------------------------------------------------------
    router_watch: Annotated[
        float,
        Option(
            flag="--router-watch",
            help="Seconds between two checks of routers for foreign workers (from inside the cluster); 0: no checks.",
            part_of="registry.enabled",
            ge=0,
        ),
    ] = 0.0
    """The default is 0 because outside of the cluster the registries of routers have no address that the operator could
    reach, or somebody else has that address. The chart sets 60."""
    well_known_models: Annotated[
        str,
        Option(
            flag="--well-known-models",
            help="Facts of well-known models: a file or folder; `package`: those of this program; empty: none.",
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
            help="Image (images/agent) that fetches data sets and makes reports; empty: BenchmarkJobs are refused.",
            part_of="benchmark.toolsImage",
        ),
    ] = ""
    """There is no default because anybody could take an image name without a registry on a public registry."""

    # --- the process ------------------------------------------------------------------------------------------------
    address: Annotated[
        str,
        Option(
            flag="--address",
            help="Address of probes and metrics; empty: every address. Without it: empty, with a kubeconfig 127.0.0.1.",
            computed=True,
        ),
    ] = ""
    """The kubelet probes the pod's address. With a kubeconfig the operator is a process on a person's machine."""
    health_port: Annotated[
        int,
        Option(
            flag="--health-port",
            help="Port of /healthz and /readyz; 0: a free port. Without it 8081, with a kubeconfig 18081.",
            computed=True,
        ),
    ] = 8081
    metrics_port: Annotated[
        int,
        Option(
            flag="--metrics-port",
            help="Port of /metrics; 0: a free port. Without it 8080, with a kubeconfig 18080.",
            computed=True,
        ),
    ] = 8080
    """18080 with a kubeconfig because a port-forward to a service listens on 8080."""
    metrics_per_service: Annotated[
        int,
        Option(
            flag="--metrics-per-service",
            help="Services with metrics of their own; the others are summed.",
            value="metrics.perService",
            ge=0,
        ),
    ] = 100
    """Such a service has some ten series, so a scrape of 100 services is 100 KB (docs/metrics.md)."""
    recorder_memory: Annotated[
        int,
        Option(
            flag="--recorder-memory",
            help="MiB of memory for the last reconciliations of services, which SIGUSR1 writes to a file; 0: none.",
            value="operator.recorderMiB",
            ge=0,
        ),
    ] = 16
    """The command is `kill -USR1` (docs/recorder.md)."""
    log_format: Annotated[
        str,
        Option(
            flag="--log-format",
            help="Format of the log: console or json.",
            value="operator.logFormat",
            choices=("console", "json"),
            chart_default="json",
        ),
    ] = "console"
    """The default is console for people, and in the chart json for log collectors."""
    log_level: Annotated[
        str,
        Option(
            flag="--log-level",
            help="Least level that is logged: DEBUG, INFO, WARNING or ERROR.",
            value="operator.logLevel",
            choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        ),
    ] = "INFO"
    stop_grace: float = 10.0
    """Passes that run may finish for so long after SIGTERM."""
