"""What was measured, as plain data: it becomes the JSON file and the table."""

from dataclasses import dataclass, field

from bench.counting import Count
from bench.processes import Usage


@dataclass(frozen=True)
class Deletion:
    """Everything goes."""

    seconds: float
    """From the first request to delete an owner until the last pod and the last child object are gone."""
    pods_s: float
    """Until the last pod is gone."""


@dataclass(frozen=True)
class Ramp:
    """One side of one repetition: from nothing until the last pod is Ready."""

    scenario: str
    title: str
    side: str
    """floor or operator."""
    repetition: int
    pods_s: float
    """From the first request until the last pod is Ready."""
    sent_s: float
    """Until the benchmark's own requests (objects, or services) were answered."""
    services: int
    pods: int
    objects: int
    """That the operator should create, per service."""
    servers_cpu_s: dict[str, float]
    pace_ms: float
    """What a fixed piece of work took of a core meanwhile; more is a slower machine."""
    deletion: Deletion | None = None
    # of the operator's side only
    ready_s: float = 0.0
    """Until the last service is Ready."""
    lags_s: tuple[float, ...] = ()
    count: Count | None = None
    usage: Usage | None = None
    started_cpu_s: float = 0.0
    """CPU of starting, before there was any service; part of `usage`."""
    settled: bool = True
    complaints: int = 0
    """Lines of the operator's log that say WARNING or worse."""


@dataclass(frozen=True)
class Planned:
    """`ome plan` for Kimi K2 on 16 nodes, and its errors in cross-validation (medians of |predicted / measured - 1|)."""

    seconds: float
    rows: int
    tokens: float
    tpot: float
    ttft: float


@dataclass(frozen=True)
class Linted:
    """`ome lint -f config`, and seconds of CPU of a pass over a new service of config/samples."""

    seconds: float
    services: int
    without: float
    """Without the rules."""
    first: float
    """With them, for a revision that they have not seen."""
    again: float


@dataclass(frozen=True)
class Eyed:
    """Scrapes of the operator's metrics; medians."""

    services: int
    series: int
    kib: float
    """Of the page."""
    scrape_ms: float
    stall_ms: float
    """The longest time within a scrape for which the event loop was not free."""
    pass_us: float
    """What a pass pays."""


@dataclass(frozen=True)
class Quiet:
    """The operator while nothing happens to the services."""

    services: int
    seconds: float
    count: Count
    cpu_s: float

    @property
    def writes_a_minute(self) -> float:
        """But for the Lease."""
        return self.count.writes * 60 / self.seconds


@dataclass(frozen=True)
class Restart:
    """The operator stops and starts again; nothing has changed."""

    services: int
    stop_s: float
    lead_s: float
    """From its start until it leads and has listed everything."""
    count: Count
    usage: Usage
    """Of the new process until it was settled."""


@dataclass(frozen=True)
class Alone:
    """`sync` without a cluster."""

    first_us: float
    """Nothing exists yet: everything is rendered."""
    steady_us: float
    """Everything exists and is ready: nothing to do."""
    revision_bytes: int
    objects: int
    pods: int


@dataclass(frozen=True)
class Fetched:
    """One side fetched the files of a model once."""

    side: str
    """agent, huggingface_hub, or cp (with sha256sum)."""
    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Shared:
    """Several nodes fetched one model at the same time from a throttled hub, alone and with peers."""

    nodes: int
    bytes: int
    hub_rate: float
    alone_s: float
    peers_s: float
    alone_sent: int
    """Bytes that the hub sent."""
    peers_sent: int


@dataclass(frozen=True)
class Beside:
    """What a quiet tenant waits for a service, alone and beside others."""

    models: int
    """BaseModels of another tenant."""
    services: int
    """Services of a third, which wait for a model."""
    edits_a_second: float
    """Of the runtime of all of these services."""
    alone_s: tuple[float, ...]
    """From creation to Ready, one service after the other."""
    beside_s: tuple[float, ...]
    operator_cores: float
    """CPU seconds of the operator per second meanwhile."""


@dataclass(frozen=True)
class Wave:
    """Events of a kind for all objects of a fleet, and the passes that follow."""

    what: str
    cpu_s: float
    stall_s: float
    """The longest time of a thread between two moments at which its event loop was free."""
    garbage_s: float = 0.0
    """Of it, for which Python's garbage collector ran."""
    where: str = ""
    """What the thread did most of it."""


@dataclass(frozen=True)
class Fleet:
    """What a fleet of some size costs, in a process of its own."""

    grows: str
    """The number that is another than usual, "" for a fleet of its own kind."""
    size: dict[str, int]
    waves: list[Wave]
    decode_s: float
    """CPU of decoding the bare pages of all lists."""
    rest_mib: float
    """Resident some time after its start, when all is as it should be."""
    peak_mib: float
    """The most until then; what the benchmark holds itself is in it: a page of each list, and what it tells of pods."""
    status_bytes: int
    """Of the largest status that was written."""


@dataclass(frozen=True)
class Labels:
    """Labels that changed on nodes, and what followed."""

    what: str
    changes: int
    """Requests, each about a node."""
    seconds: float
    """Until the last was answered."""
    cpu_s: float
    """Of the operator, until it wrote nothing more."""
    edits_s: tuple[float, ...]
    """Of edits of a service meanwhile, each from its request until the operator had acted on it."""
    floors_s: tuple[float, ...] = ()
    """Beside each edit: as many writes as it costs, one after the other, by a bare client."""


@dataclass(frozen=True)
class Labelled:
    """Nodes that hold many models, on a real API server."""

    nodes: int
    models: int
    services: int
    waves: list[Labels]
    peak_mib: float


@dataclass(frozen=True)
class Started:
    """The operator started in a large fleet, again and again, on a real API server."""

    nodes: int
    models: int
    services: int
    lists_s: tuple[float, ...]
    """Of a bare client: listing and decoding the same objects."""
    starts_s: tuple[float, ...]
    """From the start of the operator until it leads and has listed everything."""
    peak_mib: float


@dataclass(frozen=True)
class Churned:
    """Services that came and went."""

    services: int
    objects: int
    """That the operator made for them, without their pods."""
    pace: float
    """Services a second."""
    rounds_mib: tuple[float, ...]
    """What the operator held after each round."""
    peak_mib: float
    cpu_s: float


@dataclass
class Results:
    """Of one run of the benchmark."""

    about: dict[str, object] = field(default_factory=dict)
    alone: Alone | None = None
    ramps: list[Ramp] = field(default_factory=list)
    idle: Quiet | None = None
    restart: Restart | None = None
    scaled: Quiet | None = None
    fetched: list[Fetched] = field(default_factory=list)
    shared: Shared | None = None
    beside: Beside | None = None
    fleets: list[Fleet] = field(default_factory=list)
    labelled: Labelled | None = None
    started: Started | None = None
    churned: Churned | None = None
    planned: Planned | None = None
    linted: Linted | None = None
    eyes: list[Eyed] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
