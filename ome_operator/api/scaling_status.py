"""The field `scaling` in the status of an InferenceService (docs/demand.md)."""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Spec
from ome_operator.api.values import Open


class ServiceSize(Spec):
    """A size of the service."""

    prefill: int | None = None
    """Prefill groups."""
    decode: int | None = None
    """Decode groups."""
    routers: int | None = None
    """Routers."""


class ScalingDecision(ServiceSize):
    """A decision that changed the wanted size, or the reason to hold it."""

    time: str
    """Time of the decision."""
    hold: str | None = None
    """Reason for which the wanted size is not the size that the demand needs."""
    why: str | None = None
    """The numbers that decided, in a sentence."""


class PrefillSpeed(Spec):
    """Time that a request takes in a prefill group."""

    fixed_milliseconds: float | None = None
    """Time of a request, regardless of its prompt."""
    token_microseconds: float | None = None
    """Time of a prompt token."""
    scale: float | None = None
    """Measured time, divided by the time according to the other fields."""
    measurements: int | None = None
    """Number of measurements."""
    shown_prompt: float | None = None
    """Mean prompt tokens of the requests to which shownMilliseconds applies."""
    shown_milliseconds: float | None = None
    """Upper bound of the time of such a request; otherwise the groups could not have served so many requests in time."""


class DecodeSpeed(Spec):
    """The time between tokens of a decode group with this number of requests."""

    requests: float
    """Requests in the group."""
    milliseconds: float
    """Time between two tokens of a request."""


class RequestLength(Spec):
    """Mean lengths of a request in tokens."""

    prompt: float | None = None
    """Prompt tokens."""
    answer: float | None = None
    """Output tokens."""


class LearnedSpeeds(Spec):
    """Measured speeds and request lengths."""

    prefill: PrefillSpeed | None = None
    decode: Annotated[list[DecodeSpeed] | None, ATOMIC] = None
    """Speeds of decode groups."""
    request: RequestLength | None = None
    start_seconds: Annotated[list[float] | None, ATOMIC] = None
    """Seconds that the last starts of a group took."""
    configurations: Annotated[dict[str, str] | None, ATOMIC_MAP] = None
    """What the measured groups of a role (prefill, decode) run: a digest of their pods and weights, and their GPUs."""


class ScalingDay(Spec):
    """The cost and the quality of a day (UTC)."""

    day: str
    """Date."""
    gpu_hours: Annotated[float | None, Field(alias="gpuHours")] = None
    """GPU-hours of the groups that existed."""
    gpu_hours_wanted: Annotated[float | None, Field(alias="gpuHoursWanted")] = None
    """GPU-hours of the wanted size."""
    requests: float | None = None
    """Requests of which the time to the first token is known."""
    met: float | None = None
    """Requests that reached the target of the time to the first token."""
    met_wanted: float | None = None
    """Upper bound of `met` with the wanted size."""


class ScalingSummary(Spec):
    """What the autoscaler of the class Demand decided."""

    mode: str | None = None
    """Recommend or Apply."""
    wanted: ServiceSize | None = None
    """The size that the service should have, one step at a time."""
    applied: Annotated[dict[str, int] | None, ATOMIC_MAP] = None
    """Number of groups that the operator uses, by component. It is set only by the mode Apply."""
    hold: str | None = None
    """Reason for which the wanted size is not the size that the demand needs, or why nothing is decided; "" if there is
    none."""
    why: str | None = None
    """The numbers that decided, in a sentence."""
    at_maximum: Annotated[dict[str, int] | None, ATOMIC_MAP] = None
    """Maximum of each role that needs more groups."""
    speeds: Annotated[dict[str, str] | None, ATOMIC_MAP] = None
    """How the speed of the groups of a role (prefill, decode) is known: Measured; FirstEstimate, from a single load or from
    a queue; Former, measured before the groups changed; or Planned, from `ome plan`."""
    changed_at: str | None = None
    """Time of the last change of the wanted size."""
    changes: Annotated[list[str] | None, ATOMIC] = None
    """Times of the changes within the last hour."""
    decisions: Annotated[list[ScalingDecision] | None, ATOMIC] = None
    """The last ten decisions, the newest last."""
    learned: LearnedSpeeds | None = None
    former: Open | None = None
    """The same as `learned`, measured before the groups of a role changed."""
    days: Annotated[list[ScalingDay] | None, ATOMIC] = None
    """The last days, the newest last, at most eight."""
