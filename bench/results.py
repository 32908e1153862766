"""The results as plain data, for the JSON file and the table."""

from dataclasses import dataclass, field

from bench.counting import Count
from bench.processes import Usage


@dataclass(frozen=True)
class Deletion:
    """The times in which all objects of a ramp were deleted."""

    seconds: float
    """Seconds from the first request to delete an owner until the last pod and the last child object are deleted."""
    pods_s: float
    """Seconds from the first request to delete an owner until the last pod is deleted."""


@dataclass(frozen=True)
class Ramp:
    """One side of one repetition: from nothing until the last pod is Ready."""

    scenario: str
    title: str
    side: str
    """Side of the comparison: floor or operator."""
    repetition: int
    pods_s: float
    """Seconds from the first request until the last pod is Ready."""
    sent_s: float
    """Seconds until all of the benchmark's own requests, which create objects or services, were answered."""
    services: int
    pods: int
    objects: int
    """Number of objects that the operator should create per service."""
    servers_cpu_s: dict[str, float]
    pace_ms: float
    """Milliseconds that a fixed amount of work took on a core during the ramp; higher means a slower machine."""
    deletion: Deletion | None = None
    # only for the side of the operator
    ready_s: float = 0.0
    """Seconds from the first request until the last service is Ready."""
    lags_s: tuple[float, ...] = ()
    count: Count | None = None
    usage: Usage | None = None
    started_cpu_s: float = 0.0
    """CPU seconds that the operator used for its start, before any service existed. They are included in `usage`."""
    settled: bool = True
    complaints: int = 0
    """Lines of the operator's log at level WARNING or above."""


@dataclass(frozen=True)
class Planned:
    """The duration of `ome plan` for Kimi K2 on 16 nodes, and the errors of the planner in cross-validation (medians of
    |predicted / measured - 1|).
    """

    seconds: float
    rows: int
    tokens: float
    tpot: float
    ttft: float


@dataclass(frozen=True)
class Linted:
    """The duration of `ome lint -f config`, and CPU times of a reconciliation of a new service of config/samples."""

    seconds: float
    services: int
    without: float
    """CPU seconds of a reconciliation without the rules."""
    first: float
    """CPU seconds of a reconciliation with the rules, for a revision that has not been checked before."""
    again: float


@dataclass(frozen=True)
class Heard:
    """The cost of the operator's requests for the summaries of routers."""

    routers: int
    fresh: int
    """Smallest number of routers whose summaries were fresh at the same time."""
    share: float
    """Share of a core that the operator used."""
    mib: float
    """Growth of the resident memory that the reports and the connections cause, in MiB."""
    oldest_s: float
    """Age in seconds of the oldest fresh summary at any time."""
    dirty: int
    """Number of reconciliations that changes of the reported numbers have caused."""


@dataclass(frozen=True)
class Eyed:
    """Medians of scrapes of the operator's metrics."""

    services: int
    series: int
    kib: float
    """Size of the page in KiB."""
    scrape_ms: float
    stall_ms: float
    """The longest time within a scrape during which the event loop was blocked."""
    pass_us: float
    """Microseconds that the metrics add to a reconciliation."""


@dataclass(frozen=True)
class Quiet:
    """The operator's activity while the services do not change."""

    services: int
    seconds: float
    count: Count
    cpu_s: float

    @property
    def writes_a_minute(self) -> float:
        """Writes per minute, except those of the Lease."""
        return self.count.writes * 60 / self.seconds


@dataclass(frozen=True)
class Restart:
    """The cost of a restart of the operator while nothing else changes."""

    services: int
    stop_s: float
    lead_s: float
    """Seconds from the operator's start until it leads and has listed everything."""
    count: Count
    usage: Usage
    """Resources of the new process until it had settled."""


@dataclass(frozen=True)
class SyncTimes:
    """The durations of calls of `sync` without a cluster."""

    first_us: float
    """Microseconds of a call that renders everything, because nothing exists yet."""
    steady_us: float
    """Microseconds of a call with nothing to do, because everything exists and is ready."""
    revision_bytes: int
    objects: int
    pods: int


@dataclass(frozen=True)
class Fetched:
    """The result of one download of a model's files by one side."""

    side: str
    """agent, huggingface_hub, or cp (with sha256sum)."""
    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class SharedDownload:
    """The results of several nodes that download a model at the same time from a throttled hub: once without and once with
    downloads from each other (peers).
    """

    nodes: int
    bytes: int
    hub_rate: float
    alone_s: float
    peers_s: float
    alone_sent: int
    """Bytes that the hub sent when the nodes did not download from each other."""
    peers_sent: int


@dataclass(frozen=True)
class Paged:
    """The result of one measurement in which an engine reads the weights of a model after an image was pulled."""

    side: str
    """cold, prefetched, or warm."""
    bytes: int
    pull_s: float
    seconds: float
    """Seconds that the engine needed to read the weights."""
    cached: int
    """Bytes of the weights in the page cache when the engine began."""
    agent_s: float
    """Seconds that the agent needed to read the weights; 0 if the agent did not read them."""
    load: float
    """Load average of the machine over the last minute, at the end of the measurement."""


@dataclass(frozen=True)
class TenantWaits:
    """The times that a quiet tenant waits for a service, alone and next to other tenants."""

    models: int
    """Number of BaseModels of another tenant."""
    services: int
    """Number of services of a third tenant, which wait for a model."""
    edits_a_second: float
    """Edits per second of the runtime of all these services."""
    alone_s: tuple[float, ...]
    """Seconds from creation to Ready of each service of the quiet tenant without other tenants. The services are created one
    after another."""
    beside_s: tuple[float, ...]
    operator_cores: float
    """CPU seconds of the operator per second while the other tenants are active."""


@dataclass(frozen=True)
class Wave:
    """The cost of a wave: events of one kind for all objects of a fleet, and the reconciliations that follow."""

    what: str
    cpu_s: float
    stall_s: float
    """The longest CPU time of the thread during which its event loop was blocked."""
    garbage_s: float = 0.0
    """Part of `stall_s` that Python's garbage collector took."""
    where: str = ""
    """The stack in which the thread spent most of the longest stall."""


@dataclass(frozen=True)
class Fleet:
    """The cost of a fleet of some size, measured in its own process."""

    grows: str
    """The dimension that differs from the base size; "" for a fleet with a size of its own."""
    size: dict[str, int]
    waves: list[Wave]
    decode_s: float
    """CPU seconds that only decoding the pages of all lists takes."""
    rest_mib: float
    """Resident MiB some time after the start, when nothing remains to be done."""
    peak_mib: float
    """Maximum resident MiB from the start until nothing remained to be done. The value includes the memory of the benchmark
    itself: a page of each list, and its objects about pods.
    """
    status_bytes: int
    """Bytes of the largest status that was written."""


@dataclass(frozen=True)
class Labels:
    """The result of a wave of label changes on nodes."""

    what: str
    changes: int
    """Number of requests, each about one node."""
    seconds: float
    """Seconds until the last request was answered."""
    cpu_s: float
    """CPU seconds of the operator until it wrote nothing more."""
    edits_s: tuple[float, ...]
    """Seconds from the request of each edit of a service during the wave until the operator had acted on the edit."""
    floors_s: tuple[float, ...] = ()
    """Seconds that a bare client needed for the same number of consecutive writes, measured after each of these edits."""


@dataclass(frozen=True)
class Labelled:
    """The results of label changes on nodes that hold many models, on a real API server."""

    nodes: int
    models: int
    services: int
    waves: list[Labels]
    peak_mib: float


@dataclass(frozen=True)
class Started:
    """The results of repeated starts of the operator with a large fleet on a real API server."""

    nodes: int
    models: int
    services: int
    lists_s: tuple[float, ...]
    """Seconds in which a bare client lists and decodes the same objects."""
    starts_s: tuple[float, ...]
    """Seconds from the start of the operator until it leads and has listed everything."""
    peak_mib: float


@dataclass(frozen=True)
class Churned:
    """The results of creating and deleting many services."""

    services: int
    objects: int
    """Number of objects that the operator created for the services, without their pods."""
    pace: float
    """Services that were created and deleted per second."""
    rounds_mib: tuple[float, ...]
    """MiB that the operator held after each round."""
    peak_mib: float
    cpu_s: float


@dataclass
class Results:
    """The results of a run of the benchmark."""

    about: dict[str, object] = field(default_factory=dict)
    alone: SyncTimes | None = None
    ramps: list[Ramp] = field(default_factory=list)
    idle: Quiet | None = None
    restart: Restart | None = None
    scaled: Quiet | None = None
    fetched: list[Fetched] = field(default_factory=list)
    shared: SharedDownload | None = None
    paged: list[Paged] = field(default_factory=list)
    beside: TenantWaits | None = None
    fleets: list[Fleet] = field(default_factory=list)
    labelled: Labelled | None = None
    started: Started | None = None
    churned: Churned | None = None
    planned: Planned | None = None
    linted: Linted | None = None
    eyes: list[Eyed] = field(default_factory=list)
    ear: Heard | None = None
    failures: list[str] = field(default_factory=list)
