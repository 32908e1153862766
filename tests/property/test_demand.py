"""Whatever is observed, a decision about the size of a service keeps its limits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator.core.demand.decide import DECISIONS, decide
from ome_operator.core.demand.facts import (
    DECODE,
    KEPT,
    PREFILL,
    ROUTER,
    DemandSample,
    Fleet,
    GroupBounds,
    RoleFleet,
    ScalingState,
    Targets,
)
from ome_operator.core.demand.stored import from_status, to_status
from tests.unit.core.demand.loads import KNOWN, NOW

rates = st.none() | st.just(0.0) | st.floats(1 / 60, 1e4)  # a request a minute is the smallest rate that can be counted
counts = st.none() | st.integers(0, 10**6)
shares = st.none() | st.floats(0, 1)


def busy_groups(draw: st.DrawFn) -> tuple[int, float, float]:
    """Return a number of groups, the requests that they completed each second, at least one a minute, and their tokens."""
    requests = draw(st.just(0.0) | st.floats(1 / 60, 1e3))
    return draw(st.integers(0, 3)), requests, requests * draw(st.floats(1, 1e6))


@st.composite
def histories(draw: st.DrawFn) -> tuple[DemandSample, ...]:
    """Up to ten minutes of samples with any numbers and holes."""
    times = sorted(draw(st.sets(st.integers(0, 60), max_size=12)))
    return tuple(
        DemandSample(
            NOW - KEPT + 10 * at, draw(rates), draw(counts), draw(rates), draw(counts), draw(rates), draw(rates),
            draw(rates), draw(rates), draw(rates), draw(shares), *busy_groups(draw), *busy_groups(draw), draw(counts),
        )
        for at in times
    )  # fmt: skip


sizes = st.integers(1, 8)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Fleet, Targets, ScalingState]:
    """A fleet with limits and a past."""
    roles = [
        RoleFleet(draw(sizes), draw(st.integers(0, 2)), draw(st.integers(0, 2)), room=draw(st.none() | sizes))
        for _ in range(2)
    ]
    lows = [draw(sizes) for _ in range(3)]
    bounds = {
        role: GroupBounds(low, low + draw(st.integers(0, 8)), draw(st.integers(0, 2)))
        for role, low in zip((PREFILL, DECODE, ROUTER), lows, strict=True)
    }
    least = 8 * (lows[0] + lows[1])
    targets = Targets(
        draw(st.floats(0.1, 100)), draw(st.floats(0.001, 1)), bounds=bounds,
        gpus=draw(st.none() | st.integers(least, least + 64)), in_flight_of_a_router=draw(st.integers(0, 100)),
    )  # fmt: skip
    since = st.none() | st.floats(NOW - 1000, NOW)
    state = ScalingState(
        learned=KNOWN, wanted=(draw(sizes), draw(sizes), draw(sizes)), changed=draw(st.floats(NOW - 1000, NOW)),
        lower_since=(draw(since), draw(since)),
    )  # fmt: skip
    return Fleet(roles[0], roles[1], draw(sizes), busy=draw(st.sampled_from(["", "a rollout"]))), targets, state


@settings(max_examples=300, deadline=None)
@given(histories(), situations())
def test_a_decision_keeps_its_limits(seen: tuple[DemandSample, ...], situation: tuple[Fleet, Targets, ScalingState]) -> None:
    fleet, targets, state = situation
    made, after = decide(seen, fleet, targets, state, NOW)
    before = state.wanted
    assert before is not None and after.wanted == made.size
    steps = [now - then for now, then in zip(made.size, before, strict=True)]
    assert sum(steps) == -1 or min(steps) >= 0, "groups are removed one at a time, and never while others are added"
    for role, now, then in zip((PREFILL, DECODE, ROUTER), made.size, before, strict=True):
        assert now <= max(then, targets.bounds[role].high)
        assert now >= min(then, targets.bounds[role].low)
    if targets.gpus is not None:
        assert 8 * sum(made.size[:2]) <= max(targets.gpus, 8 * sum(before[:2]))
    if fleet.busy:
        assert min(steps) >= 0
    newest = seen[-1] if seen else None
    if newest is None or newest.arrivals is None or newest.waiting is None or newest.at < NOW - 20:
        assert made.size == before
    assert len(after.last) <= DECISIONS and made.why


@settings(max_examples=100, deadline=None)
@given(histories(), situations())
def test_what_is_stored_is_read_as_it_was(
    seen: tuple[DemandSample, ...], situation: tuple[Fleet, Targets, ScalingState]
) -> None:
    _, after = decide(seen, *situation, NOW)
    stored = to_status(after)
    assert to_status(from_status(stored)) == stored
