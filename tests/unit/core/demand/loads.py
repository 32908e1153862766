"""Samples of a service with a constant load, for the tests of decisions."""

from typing import Any

from ome_operator.core.demand.facts import (
    DECODE,
    KEPT,
    PREFILL,
    ROUTER,
    DemandSample,
    Fleet,
    GroupBounds,
    LearnedProperties,
    PrefillWork,
    RoleFleet,
    ScalingState,
    Targets,
)

NOW = 1_800_000_000.0
KNOWN = LearnedProperties(
    work=PrefillWork(0.0, 0.25 / 1000), measured=1, curve=((10.0, 0.02), (210.0, 0.06)), starts=(100.0,)
)
"""A prefill group serves 4 prompts of 1,000 tokens per second; a decode group reaches 40 ms with 110 requests."""
TARGETS = Targets(3.0, 0.04, bounds={PREFILL: GroupBounds(1, 9), DECODE: GroupBounds(1, 9), ROUTER: GroupBounds(1, 9)})


def running(rate: float) -> float:
    """Return the requests in a decode group that generates 100 tokens for each of `rate` requests per second, by Little's
    law and the curve of `KNOWN`. From 50 requests per second on, a group cannot keep up.
    """
    return 1.8 * rate / (1 - 0.02 * rate) if rate < 49 else 5000.0


def sample(at: float = NOW, rate: float = 4.0, **other: Any) -> DemandSample:
    """Return a sample of a load that is served without a queue: `rate` requests per second, each with 1,000 input tokens and
    100 output tokens.
    """
    values: dict[str, Any] = {
        "arrivals": rate, "waiting": 0, "running": running(rate), "running_now": round(running(rate)), "requests": rate,
        "prompt_tokens": 1000 * rate, "ended": rate, "output_tokens": 100 * rate, "errors": 0.0, "late": 0.0,
        "in_flight": 40,
    }  # fmt: skip
    return DemandSample(at, **{**values, **other})


def samples(rate: float = 4.0, **other: Any) -> tuple[DemandSample, ...]:
    """Return the samples of the ten minutes until `NOW`, with `rate` requests per second. `other` are fields of the newest
    sample.
    """
    times = [NOW - KEPT + 10.0 * number for number in range(61)]
    return (*(sample(at, rate) for at in times[:-1]), sample(NOW, rate, **other))


def fleet(prefill: int = 2, decode: int = 1, **other: Any) -> Fleet:
    """Return a fleet whose groups all serve."""
    return Fleet(RoleFleet(prefill), RoleFleet(decode), **other)


def state(prefill: int = 2, decode: int = 1, routers: int = 1, **other: Any) -> ScalingState:
    """Return the state of a service that has had this size for an hour, and for which fewer groups would have been enough
    for as long.
    """
    values: dict[str, Any] = {"learned": KNOWN, "lower_since": (NOW - 3600, NOW - 3600), "changed": NOW - 3600}
    return ScalingState(wanted=(prefill, decode, routers), **{**values, **other})
