"""The field `traffic` in the status of an InferenceService."""

from typing import Annotated

from ome_operator.api.base import ATOMIC, Spec


class TimeBounds(Spec):
    """The bounds of a time in seconds. Engines count times in buckets, so only the bounds of a bucket are known."""

    above: float
    """Lower bound of the time."""
    up_to: float | None = None
    """Upper bound of the time; unset if the engine's last bucket has no upper bound."""


class TimePercentiles(Spec):
    """The median and the 95th percentile of a time."""

    p50: TimeBounds | None = None
    """The median."""
    p95: TimeBounds | None = None
    """The 95th percentile."""


class RoleTraffic(Spec):
    """The requests in the leaders of a role. Sums contain only the leaders whose numbers are known."""

    name: str
    """prefill, decode, or engine without disaggregation."""
    leaders: int | None = None
    """Number of leaders to which routers may send requests."""
    with_load: int | None = None
    """Number of leaders whose requests are known."""
    with_work: int | None = None
    """Number of leaders whose tokens are known. SGLang reports them with --enable-metrics."""
    running: int | None = None
    """Requests that are being computed."""
    waiting: int | None = None
    """Requests that wait in the leaders."""
    cache_use: float | None = None
    """Used share of the KV cache of the fullest leader, from 0 to 1."""


class TrafficSummary(Spec):
    """The requests of the service, as the registries of its routers report them. A number that is unknown is unset."""

    time: str
    """Time of the numbers. They are written at most once a minute, if one of them has changed by more than a fifth, and
    otherwise every ten minutes."""
    routers: int | None = None
    """Number of ready routers."""
    routers_heard: int | None = None
    """Number of ready routers whose numbers are known."""
    requests_per_second: float | None = None
    """Requests per second that arrived at these routers."""
    prompt_tokens_per_second: float | None = None
    """Tokens of prompts per second. With disaggregation, tokens and times are those of decode."""
    output_tokens_per_second: float | None = None
    """Generated tokens per second."""
    time_to_first_token: TimePercentiles | None = None
    time_between_tokens: TimePercentiles | None = None
    roles: Annotated[list[RoleTraffic] | None, ATOMIC] = None
    """The requests in the leaders of each role."""
