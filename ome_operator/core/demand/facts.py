"""The records from which the size of a service is decided, and the decision. None stands for an unknown number."""

from collections.abc import Mapping
from typing import NamedTuple

PREFILL, DECODE, ROUTER = "prefill", "decode", "router"
GROUPS = (PREFILL, DECODE)
"""The roles that are decided together, in the order in which they serve a request."""
KEPT = 600.0
"""Seconds of samples that a decision uses."""
STALE = 20.0
"""Age in seconds from which a sample counts as unknown, and the longest pause between two samples that is no hole."""
WINDOW = 60.0
"""Seconds over which the rates of a sample are averaged (docs/telemetry.md)."""


class DemandSample(NamedTuple):
    """What the routers and engines of a service reported at one time. Rates are means per second over the last `WINDOW`
    seconds.
    """

    at: float
    """Time in seconds since the epoch."""
    arrivals: float | None = None
    """Requests that arrived at the routers. Probes and retries of the router are none."""
    waiting: int | None = None
    """Requests that wait for prefill, over all groups."""
    running: float | None = None
    """Mean number of requests in decode, over all groups and the window."""
    running_now: int | None = None
    """Requests in decode at this time, over all groups."""
    requests: float | None = None
    """Requests that prefill has completed."""
    prompt_tokens: float | None = None
    """Prompt tokens of these requests."""
    ended: float | None = None
    """Requests that decode has completed."""
    output_tokens: float | None = None
    """Output tokens of these requests."""
    errors: float | None = None
    """Responses with a status of 500 or more."""
    late: float | None = None
    """Share of the requests in the window whose time to the first token exceeded the bound; None if there were too few."""
    saturated: int = 0
    """Number of prefill groups that were busy during the whole window: at each reading at least as many requests waited as
    were completed until the next."""
    saturated_requests: float = 0.0
    """Requests that these groups completed."""
    saturated_tokens: float = 0.0
    """Prompt tokens of these requests."""
    in_flight: int | None = None
    """Requests in flight, over all routers."""


class RoleFleet(NamedTuple):
    """The groups of a role that exist."""

    ready: int
    """Groups that serve."""
    starting: int = 0
    draining: int = 0
    gpus: int = 8
    """GPUs of a group."""
    room: int | None = None
    """Largest number of groups for which the cluster has nodes; None if this is not known."""

    @property
    def exist(self) -> int:
        """Number of groups that serve or start."""
        return self.ready + self.starting


class Fleet(NamedTuple):
    """What exists, and what else happens to it."""

    prefill: RoleFleet
    decode: RoleFleet
    routers: int = 1
    busy: str = ""
    """Why nothing may be removed now: a rollout, a recycle, a move or a drain; "" if there is none."""
    frozen: str = ""
    """Why nothing may be changed now; "" if it may."""

    def role(self, name: str) -> RoleFleet:
        """Return the groups of the role `prefill` or `decode`."""
        return self.prefill if name == PREFILL else self.decode


class GroupBounds(NamedTuple):
    """The numbers between which a role is scaled."""

    low: int
    high: int
    spare: int = 0
    """Number of groups to keep beyond those that the demand needs."""

    def within(self, number: int) -> int:
        """Return the number nearest to `number` that is within these bounds."""
        return min(max(number, self.low), self.high)


class Targets(NamedTuple):
    """What the users of the service are to experience, and what this may cost."""

    ttft: float
    """Seconds to the first token that at least the share `share` of the requests must reach."""
    tbt: float
    """Mean time between two tokens of a request, in seconds."""
    share: float = 0.95
    bounds: Mapping[str, GroupBounds] = {PREFILL: GroupBounds(1, 1), DECODE: GroupBounds(1, 1), ROUTER: GroupBounds(1, 1)}
    gpus: int | None = None
    """Largest number of GPUs of all groups; None without a budget."""
    in_flight_of_a_router: int = 0
    """Requests in flight for which a router is counted; with 0, routers are not scaled."""
    changes_an_hour: int = 40
    """Changes within an hour after which nothing more is removed."""
    cool_down: float = 60.0
    """Seconds between a change and the removal of a group."""


class PrefillWork(NamedTuple):
    """The time of a prefill group that a request takes: `fixed` seconds, and `token` seconds for each prompt token."""

    fixed: float
    token: float

    def seconds(self, requests: float, tokens: float) -> float:
        """Return the seconds of a group that these requests with this number of tokens in all take."""
        return requests * self.fixed + tokens * self.token


Curve = tuple[tuple[float, float], ...]
"""(requests in a decode group, seconds between two tokens of a request), in ascending order of the requests."""


class Learned(NamedTuple):
    """What the service has shown about itself."""

    work: PrefillWork | None = None
    """Estimate of the time that prefill needs, from `ome plan` or a measurement; None if nothing is known yet."""
    scale: float = 1.0
    """Measured time of saturated prefill groups, divided by the time according to `work`."""
    measured: int = 0
    """Number of measurements in `scale`; 0 if only the estimate is known."""
    curve: Curve = ()
    """What decode groups need for a token, from `ome plan` and from measurements; empty if nothing is known yet."""
    request: tuple[float, float] | None = None
    """Mean prompt and output tokens of a request, when requests were completed last."""
    starts: tuple[float, ...] = ()
    """Seconds from the creation of a group until it served, of the last starts of this service."""


class SizeDecision(NamedTuple):
    """The size that the service should have."""

    at: float
    prefill: int
    decode: int
    routers: int
    hold: str = ""
    """The reason, from `holds.HOLDS`, for which the wanted size is not the size that the demand needs; "" if it is."""
    why: str = ""
    """A sentence with the numbers that decided."""

    @property
    def size(self) -> tuple[int, int, int]:
        """The numbers of prefill groups, decode groups and routers."""
        return self.prefill, self.decode, self.routers

    def of(self, role: str) -> int:
        """Return the number of groups of the role `prefill` or `decode`."""
        return self.prefill if role == PREFILL else self.decode


class ScalingState(NamedTuple):
    """What is kept between two decisions. It is stored in the status of the service."""

    learned: Learned = Learned()
    wanted: tuple[int, int, int] | None = None
    """Prefill groups, decode groups and routers of the last decision; None before the first."""
    changed: float = 0.0
    """Time of the last change of the number of groups."""
    lower_since: tuple[float | None, float | None] = (None, None)
    """Since when prefill and decode have needed fewer groups than wanted; None if they do not."""
    changes: tuple[float, ...] = ()
    """Times of the changes within the last hour."""
    last: tuple[SizeDecision, ...] = ()
    """The last decisions that changed something, or changed the reason to hold; the newest last, at most ten."""
