"""The records that a decision about the size of a service reads and returns. None stands for an unknown number."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from ome_operator import keys

PREFILL, DECODE, ROUTER = "prefill", "decode", "router"
GROUPS = (PREFILL, DECODE)
"""The roles whose numbers of groups are decided together, in the order in which they serve a request."""
COMPONENT_OF = {PREFILL: keys.ENGINE, DECODE: keys.DECODER, ROUTER: keys.ROUTER}
"""Maps each role to the component of the service."""
KEPT = 600.0
"""Length in seconds of the period whose samples a decision uses."""
BEFORE = 3.0
"""Number of seconds before the first sample for which the first sample is also used. A sample is a mean over `WINDOW`
seconds. If it were used for a much earlier time, the same requests would be counted in two windows, and a rate that
increases would be estimated too high."""
STALE = 20.0
"""Age in seconds from which a sample is not used any more. A longer pause between two samples is a gap, in which the load
is unknown."""
WINDOW = 60.0
"""Seconds over which the rates of a sample are averaged (docs/telemetry.md)."""


class CompletedWork(NamedTuple):
    """The requests and prompt tokens per second that several prefill groups completed together, averaged over the last
    `WINDOW` seconds.
    """

    groups: int = 0
    requests: float = 0.0
    tokens: float = 0.0
    """Prompt tokens per second of the completed requests."""


class DemandSample(NamedTuple):
    """The numbers that the routers and engines of a service reported at one time. Rates are means per second over the last
    `WINDOW` seconds.
    """

    at: float
    """Time in seconds since the epoch."""
    arrivals: float | None = None
    """Requests per second that arrived at the routers, without probes and without retries of the router."""
    waiting: int | None = None
    """Number of requests that wait for prefill now, in all groups together."""
    running: float | None = None
    """Number of requests in decode in all groups together, averaged over the last `WINDOW` seconds."""
    running_now: int | None = None
    """Number of requests in decode now, in all groups together."""
    requests: float | None = None
    """Requests per second that the prefill groups completed."""
    prompt_tokens: float | None = None
    """Prompt tokens per second of the requests that the prefill groups completed."""
    ended: float | None = None
    """Requests per second that the decode groups completed."""
    output_tokens: float | None = None
    """Output tokens per second of the requests that the decode groups completed."""
    errors: float | None = None
    """Responses of the routers per second with an HTTP status of 500 or more."""
    late: float | None = None
    """Share of the requests in the window whose time to the first token exceeded the target; None if there were too few
    requests.
    """
    saturated: CompletedWork = CompletedWork()
    """The rates of those prefill groups that were busy during the whole window: at each reading, at least as many
    requests waited as the group completed until the next reading."""
    queued: CompletedWork = CompletedWork()
    """The rates of those prefill groups in which requests waited at each reading of the window. These groups may have
    been idle between two readings."""
    in_flight: int | None = None
    """Number of requests in flight now, in all routers together."""


def nearest_sample(samples: Sequence[DemandSample], at: float) -> DemandSample | None:
    """Return the sample nearest to the time `at`. Return None if no sample is within half of `STALE`, or if `at` is more
    than `BEFORE` seconds before the first sample. The distance between two samples varies: it is the pause between two
    rounds of decisions, plus the duration of a round.
    """
    found = min(samples, key=lambda one: abs(one.at - at), default=None)
    is_known = found is not None and abs(found.at - at) <= STALE / 2 and at >= samples[0].at - BEFORE
    return found if is_known else None


class Configuration(NamedTuple):
    """The properties of the groups of a role that determine how fast a group serves: its pods, weights and GPUs."""

    template: str = ""
    """Digest of the pods and of the weights of a role; "" if they are not known."""
    hardware: str = ""
    """The GPUs of a group, such as "8x NVIDIA-H200", or "8x NVIDIA-H100, NVIDIA-H200" if the GPUs of groups differ; "" if
    they are not known."""

    def __str__(self) -> str:
        return f"{self.template} {self.hardware}".rstrip()

    def is_equally_fast(self, other: "Configuration") -> bool:
        """Return whether groups of both configurations are equally fast. A part that is unknown in one configuration is
        assumed to be equal to the part of the other configuration.
        """
        return (not self.template or not other.template or self.template == other.template) and self.same_gpus(other)

    def same_gpus(self, other: "Configuration") -> bool:
        """Return whether groups of both configurations have equally many GPUs, and have a GPU product in common. So if the
        groups of a role run on different products, the measurements of the role stay valid when the groups on one of the
        products become unready, are removed, or come back.
        """
        (number, _, products), (others, _, theirs) = (one.hardware.partition("x ") for one in (self, other))
        shared = not {*products.split(", ")}.isdisjoint(theirs.split(", "))
        return not self.hardware or not other.hardware or (number == others and shared)


class RoleFleet(NamedTuple):
    """The groups of a role that exist."""

    ready: int
    """Number of groups that serve."""
    starting: int = 0
    draining: int = 0
    gpus: int = 8
    """Number of GPUs of one group."""
    room: int | None = None
    """Largest number of groups of the role that the nodes of the cluster can hold; None if this is not known."""
    configurations: tuple[Configuration, ...] = ()
    """The configurations, without repetitions, of the groups that serve; if none serves, those of the existing groups. The
    configuration of the oldest revision comes first. There are several during a rollout; () if there are no groups."""

    @property
    def existing_groups(self) -> int:
        """Number of groups that serve or are starting."""
        return self.ready + self.starting


class Fleet(NamedTuple):
    """The groups and routers that exist, and circumstances that forbid changes of their numbers."""

    prefill: RoleFleet
    decode: RoleFleet
    routers: int = 1
    busy: str = ""
    """Why no group may be removed now: a rollout, a recycle, a move or a drain is in progress; "" if there is no reason."""
    frozen: str = ""
    """Why the size may not be changed now: the service is frozen or paused; "" if there is no reason."""

    def role(self, name: str) -> RoleFleet:
        """Return the groups of the role `prefill` or `decode`."""
        return self.prefill if name == PREFILL else self.decode


class GroupBounds(NamedTuple):
    """The minimum and maximum of a role, and its number of spare groups."""

    low: int
    high: int
    spare: int = 0
    """Number of groups to keep beyond those that the demand needs."""

    def clamp(self, number: int) -> int:
        """Return the number that is nearest to `number` and not below the minimum or above the maximum."""
        return min(max(number, self.low), self.high)


class Targets(NamedTuple):
    """The latencies that a service should have, and the limits of its size."""

    ttft: float
    """Time to the first token in seconds. At least the fraction `share` of the requests must not exceed it."""
    tbt: float
    """Mean time between two tokens of a request, in seconds."""
    share: float = 0.95
    bounds: Mapping[str, GroupBounds] = {PREFILL: GroupBounds(1, 1), DECODE: GroupBounds(1, 1), ROUTER: GroupBounds(1, 1)}
    gpus: int | None = None
    """Largest number of GPUs that all groups together may have; None if the service sets no budget."""
    in_flight_of_a_router: int = 0
    """Number of requests in flight that one router should handle. If it is 0, routers are not scaled."""
    changes_an_hour: int = 40
    """Largest number of changes of the size within an hour."""
    cool_down: float = 60.0
    """Seconds between a change and the removal of a group."""


class PrefillWork(NamedTuple):
    """The time for which a request occupies a prefill group: `fixed` seconds, and `token` seconds for each prompt token."""

    fixed: float
    token: float

    def seconds(self, requests: float, tokens: float) -> float:
        """Return the seconds for which `requests` requests with `tokens` prompt tokens in total occupy a prefill group."""
        return requests * self.fixed + tokens * self.token


Curve = tuple[tuple[float, float], ...]
"""(requests in a decode group, seconds between two tokens of a request), in ascending order of the requests."""


FULL = 60.0
"""The time between tokens, in seconds, that a curve contains for one request more than the KV cache of a group holds. It is
longer than any target."""


class Basis(StrEnum):
    """How the speed of the groups of a role is known."""

    MEASURED = "Measured"
    """Prefill: groups were busy for a whole window. Decode: several loads were measured, or a single load was measured and
    the prediction gives the shape of the curve."""
    FIRST = "FirstEstimate"
    """The known speed is a lower bound. Prefill: requests waited at each reading of a window, or groups served more
    requests in time than the prediction permits. Decode: a single load was measured, and there is no prediction."""
    PLANNED = "Planned"
    """Nothing was measured. The prediction of `ome plan` is used, with times that are increased by its usual error."""
    FORMER = "Former"
    """Nothing was measured since the configuration of the groups changed. The earlier measurements are used."""


class PlannedSpeeds(NamedTuple):
    """The speed of a group of each role as `ome plan` predicts it, with times that are increased by the usual error of the
    prediction (`sizing/speeds.py`).
    """

    work: PrefillWork | None = None
    """The predicted time for which a request occupies a prefill group; None if there is no prediction."""
    curve: Curve = ()
    """The time between tokens of decode groups; empty if there is no prediction. If the last point has `FULL` seconds, it
    is not a prediction. It marks the number of requests that is one more than the KV cache of a group holds."""
    missing: str = ""
    """Why there is no prediction, in a sentence without a full stop; "" if there is one."""
    former: frozenset[str] = frozenset()
    """Roles whose speed here is not a prediction, but was measured on the groups of the previous configuration
    (`speeds.expected_speeds`)."""

    def basis_of(self, role: str) -> Basis:
        """Return how the speed of a role whose present groups were not measured is known: `FORMER` if groups of the former
        configuration were measured, otherwise `PLANNED`.
        """
        return Basis.FORMER if role in self.former else Basis.PLANNED


NO_PLAN = PlannedSpeeds()


class LearnedProperties(NamedTuple):
    """The properties of a service that were measured."""

    work: PrefillWork | None = None
    """The time for which a request occupies a prefill group, before it is multiplied by `scale`; None if nothing was
    measured yet."""
    scale: float = 1.0
    """Measured time for which requests occupied prefill groups, divided by the time according to `work`."""
    measured: int = 0
    """Number of measurements of saturated groups from which `scale` was computed; 0 if `scale` is only a first estimate
    from a queue."""
    shown: tuple[float, float] | None = None
    """A pair (prompt tokens, seconds): a request of this mean length occupies a prefill group for at most this time.
    Otherwise the groups could not have served the observed load in time. None if no such bound is known. Only the pair
    with the shortest time is kept."""
    curve: Curve = ()
    """Measured time between tokens in a decode group; empty if nothing was measured yet."""
    request: tuple[float, float] | None = None
    """Mean numbers of prompt and output tokens in the last samples with completed requests."""
    starts: tuple[float, ...] = ()
    """Durations of the last starts of groups of this service, in seconds (`MeasuredStart.seconds`)."""
    configurations: tuple[Configuration, Configuration] = (Configuration(), Configuration())
    """The configurations of the prefill groups and of the decode groups that were measured."""


SPEED = {PREFILL: ("work", "scale", "measured", "shown"), DECODE: ("curve",)}
"""Maps each role to the fields of `LearnedProperties` that state how fast its groups are."""


class SizeDecision(NamedTuple):
    """The size that the service should have."""

    at: float
    prefill: int
    decode: int
    routers: int
    hold: str = ""
    """Why the size differs from the size that the demand needs: a key of `holds.HOLDS`; "" if they are equal."""
    why: str = ""
    """A sentence with the numbers on which the decision is based."""
    basis: Mapping[str, Basis] = {}
    """States for each role how the speed of its groups is known; empty if there was no estimate."""
    at_maximum: Mapping[str, int] = {}
    """If `hold` is `HoldReason.MAXIMUM`: the maximum of each role of which the demand needs more groups. Otherwise empty."""

    @property
    def size(self) -> tuple[int, int, int]:
        """The numbers of prefill groups, decode groups and routers."""
        return self.prefill, self.decode, self.routers

    def groups_of(self, role: str) -> int:
        """Return the number of groups of the role `prefill` or `decode` in this size."""
        return self.prefill if role == PREFILL else self.decode


class ScalingState(NamedTuple):
    """The state that is kept from one decision to the next, in the status of the service."""

    learned: LearnedProperties = LearnedProperties()
    former: LearnedProperties = LearnedProperties()
    """The measurements of the groups of each role from before the last change of their configuration: only the fields in
    `SPEED`, and `configurations`."""
    configured: tuple[float, float] = (0.0, 0.0)
    """Two times in seconds since the epoch: since when all prefill groups, and since when all decode groups, have had the
    configuration in `learned`, as far as this process has observed it; 0 if it has observed no other configuration."""
    doubted: bool = False
    """Whether requests were late for minutes under a load that the previous prefill groups would have served in time. If
    so, the speed that was measured on the previous groups is not used any more. This field is not stored."""
    wanted: tuple[int, int, int] | None = None
    """Prefill groups, decode groups and routers of the last decision; None before the first decision."""
    changed: float = 0.0
    """Time of the last change of the size, in seconds since the epoch; 0 before the first change."""
    lower_since: tuple[float | None, float | None] = (None, None)
    """Two times in seconds since the epoch: since when fewer prefill groups, and since when fewer decode groups, have
    been enough. A role that needs all of its groups has None instead."""
    changes: tuple[float, ...] = ()
    """Times of the changes of the size within the last hour, in seconds since the epoch."""
    last: tuple[SizeDecision, ...] = ()
    """The last decisions that changed the size, or that began or ended a reason in `decide.LASTING`; at most ten, the newest
    last."""
