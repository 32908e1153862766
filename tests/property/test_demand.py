"""Every decision about the size of a service keeps its limits, whatever has been observed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator.core.demand.configurations import bind_measurements
from ome_operator.core.demand.curves import FLATTEST, batch_within, extend_curve, make_monotonic, seconds_at
from ome_operator.core.demand.decide import DECISIONS, decide_size
from ome_operator.core.demand.facts import (
    DECODE,
    GROUPS,
    KEPT,
    NO_PLAN,
    PREFILL,
    ROUTER,
    CompletedWork,
    Configuration,
    Curve,
    DemandSample,
    Fleet,
    GroupBounds,
    LearnedProperties,
    PlannedSpeeds,
    RoleFleet,
    ScalingState,
    Targets,
)
from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.stored import from_status, to_status
from ome_operator.core.demand.task import APPLY, DemandTask, PeakTime
from tests.unit.core.demand.loads import KNOWN, NOW, samples

rates = st.none() | st.just(0.0) | st.floats(1 / 60, 1e4)  # one request per minute is the smallest rate that can be counted
counts = st.none() | st.integers(0, 10**6)
shares = st.none() | st.floats(0, 1)


def busy_groups(draw: st.DrawFn) -> CompletedWork:
    """Generate a number of groups, the requests that they have completed per second (at least one per minute), and their
    tokens.
    """
    requests = draw(st.just(0.0) | st.floats(1 / 60, 1e3))
    return CompletedWork(draw(st.integers(0, 3)), requests, requests * draw(st.floats(1, 1e6)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[DemandSample, ...]:
    """Generate up to ten minutes of samples. Their numbers are arbitrary, and some samples are missing."""
    times = sorted(draw(st.sets(st.integers(0, 60), max_size=12)))
    return tuple(
        DemandSample(
            NOW - KEPT + 10 * at, draw(rates), draw(counts), draw(rates), draw(counts), draw(rates), draw(rates),
            draw(rates), draw(rates), draw(rates), draw(shares), busy_groups(draw), busy_groups(draw), draw(counts),
        )
        for at in times
    )  # fmt: skip


sizes = st.integers(1, 8)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Fleet, Targets, ScalingState]:
    """Generate a fleet, its limits, and the state of earlier decisions."""
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


@settings(max_examples=200, deadline=None)
@given(histories(), situations())
def test_demand_decision_stays_within_its_limits(
    seen: tuple[DemandSample, ...], situation: tuple[Fleet, Targets, ScalingState]
) -> None:
    fleet, targets, state = situation
    made, after = decide_size(seen, fleet, targets, state, NOW)
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


@settings(max_examples=150, deadline=None)
@given(histories(), situations(), st.sampled_from([None, (0, 1440), (1, 2)]), st.booleans())
def test_demand_scales_to_zero_only_when_scheduled_and_idle(
    seen: tuple[DemandSample, ...],
    situation: tuple[Fleet, Targets, ScalingState],
    time: tuple[int, int] | None,
    is_quiet: bool,
) -> None:
    fleet, targets, state = situation
    bounds = {**targets.bounds, **{role: targets.bounds[role]._replace(low=0) for role in GROUPS}}
    peaks = (PeakTime(frozenset(range(7)), *time, dict.fromkeys(GROUPS, 0)),) if time else ()
    times = [NOW - KEPT + 10 * number for number in range(61)] if is_quiet else []
    calm = dict.fromkeys(("arrivals", "waiting", "running", "running_now", "requests", "ended", "errors", "in_flight"), 0)
    seen = tuple(DemandSample(at, **calm, prompt_tokens=0.0, output_tokens=0.0) for at in times) or seen
    before = (fleet.prefill.existing_groups, fleet.decode.existing_groups, fleet.routers)
    task = DemandTask(APPLY, fleet, targets._replace(bounds=bounds, gpus=None), before, peaks=peaks, fits=True)
    made, after = follow(seen, task, state, NOW, lambda more: more)
    assert (made.prefill == 0) == (made.decode == 0) == (made.hold == "ScheduledZero")
    if made.prefill == 0:
        assert is_quiet and time and task.rests_at(NOW) and not fleet.busy
        assert after.last[-1].hold == "ScheduledZero" and from_status(to_status(after)).wanted == made.size


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 200), st.integers(0, 900), st.integers(10, 900)), max_size=40), st.integers(1, 5))
def test_number_of_size_changes_per_hour_is_limited(loads: list[tuple[float, int, int]], cap: int) -> None:
    """In no hour does the autoscaler change the size of a service more often than permitted, whatever requests arrive and
    however often the load changes. In this test, groups exist as soon as they are decided.
    """
    bounds = {role: GroupBounds(1, 50) for role in (PREFILL, DECODE, ROUTER)}
    targets = Targets(3.0, 0.04, bounds=bounds, changes_an_hour=cap, in_flight_of_a_router=100)
    state, at, times = ScalingState(learned=KNOWN, wanted=(2, 2, 2)), NOW, list[float]()
    for rate, in_flight, seconds in loads:
        at += seconds
        seen = tuple(one._replace(at=one.at + at - NOW) for one in samples(rate, in_flight=in_flight))
        before = state.wanted
        assert before is not None
        fleet = Fleet(RoleFleet(before[0]), RoleFleet(before[1]), before[2])
        made, state = decide_size(seen, fleet, targets, state, at)
        times += [at] if made.size != before else []
    assert all(sum(at - 3600 < one <= at for one in times) <= cap for at in times)


points = st.tuples(st.floats(1, 1e4), st.floats(1e-4, 10))
curves = st.lists(points, min_size=1, max_size=6, unique_by=lambda one: one[0]).map(
    lambda found: make_monotonic(tuple(sorted(found)))
)


@settings(max_examples=150, deadline=None)
@given(histories(), situations(), points)
def test_single_measured_load_at_most_doubles_the_ready_groups(
    seen: tuple[DemandSample, ...], situation: tuple[Fleet, Targets, ScalingState], point: tuple[float, float]
) -> None:
    """If decode was measured at a single load, a decision requests at most twice as many groups of a role as are ready, or
    as many as the previous decision. Neither a single load of decode nor a queue of prefill proves that more groups are
    needed, even if the user's limits permit any number.
    """
    fleet, targets, state = situation
    bounds = {role: GroupBounds(1, 10**6) for role in (PREFILL, DECODE, ROUTER)}
    first = LearnedProperties(work=KNOWN.work, curve=(point,), starts=KNOWN.starts)
    quiet = tuple(one._replace(running=None, saturated=CompletedWork()) for one in seen)
    made, _ = decide_size(quiet, fleet, targets._replace(bounds=bounds, gpus=None), state._replace(learned=first), NOW)
    before = state.wanted
    assert before is not None
    for now, then, role in zip(made.size[:2], before[:2], (fleet.prefill, fleet.decode), strict=True):
        assert now <= max(then, 2 * role.ready)


@settings(max_examples=300, deadline=None)
@given(curves, st.floats(1e-3, 1))
def test_extrapolated_curve_stays_within_its_slope_limits(curve: Curve, target: float) -> None:
    """Beyond the last measured point, the time between tokens grows at most in proportion to the requests, and at least
    FLATTEST times as fast.
    """
    batch = batch_within(curve, target)
    (x0, y0), (x1, y1) = curve[0], curve[-1]
    if y0 > target:
        assert 0 <= batch <= x0 * target / y0 * (1 + 1e-9)
    elif y1 <= target:
        assert x1 * target / y1 * (1 - 1e-9) <= batch <= (x1 + (target - y1) * x1 / y1 / FLATTEST) * (1 + 1e-9)
    else:
        assert x0 <= batch <= x1
    more = batch_within(curve, 1.1 * target)
    assert more >= batch * (1 - 1e-9), "a longer target permits no fewer requests"


@settings(max_examples=200, deadline=None)
@given(curves, curves, st.floats(1, 1e4))
def test_a_plan_changes_no_measured_point(measured: Curve, planned: Curve, batch: float) -> None:
    found = extend_curve(measured, planned)
    assert {*measured} <= {*found} and [x for x, _ in found] == sorted({x for x, _ in found})
    if measured[0][0] <= batch <= measured[-1][0]:
        assert seconds_at(make_monotonic(found), batch) >= 0


@settings(max_examples=100, deadline=None)
@given(histories(), situations())
def test_a_prediction_alone_removes_no_group_and_is_not_stored(
    seen: tuple[DemandSample, ...], situation: tuple[Fleet, Targets, ScalingState]
) -> None:
    fleet, targets, state = situation
    nothing = CompletedWork()
    quiet = tuple(one._replace(running=None, saturated=nothing, queued=nothing, late=None) for one in seen)
    planned = PlannedSpeeds(KNOWN.work, KNOWN.curve)
    before = state._replace(learned=LearnedProperties(starts=KNOWN.starts))
    made, after = decide_size(quiet, fleet, targets, before, NOW, planned)
    assert state.wanted is not None and made.prefill >= state.wanted[0] and made.decode >= state.wanted[1]
    assert after.learned._replace(request=None) == before.learned


@settings(max_examples=100, deadline=None)
@given(histories(), situations(), st.sampled_from(["8x H100", "8x H200", ""]), st.booleans(), st.booleans())
def test_measurements_from_before_a_rollout_remove_no_group(
    seen: tuple[DemandSample, ...],
    situation: tuple[Fleet, Targets, ScalingState],
    hardware: str,
    is_planned: bool,
    has_started: bool,
) -> None:
    fleet, targets, state = situation
    old, new = Configuration("old", "8x H200"), (Configuration("new", hardware),)
    prefill, decode = (one._replace(configurations=new) for one in (fleet.prefill, fleet.decode))
    learned = KNOWN._replace(configurations=(old, old))
    planned = PlannedSpeeds(KNOWN.work, KNOWN.curve) if is_planned else NO_PLAN
    begin = state._replace(learned=learned if has_started else KNOWN, configured=(NOW - 9, NOW - 9))
    if not has_started:  # stored by an earlier version; the first decision of this version was during the rollout
        begin = bind_measurements(begin, fleet._replace(prefill=RoleFleet(1, configurations=(old, *new))), NOW - 9)
        begin = bind_measurements(begin, fleet._replace(decode=RoleFleet(1, configurations=(old, *new))), NOW - 9)
    made, after = decide_size(seen, fleet._replace(prefill=prefill, decode=decode), targets, begin, NOW, planned)
    assert state.wanted is not None and made.prefill >= state.wanted[0] and made.decode >= state.wanted[1]
    if made.hold != "Unknown":
        assert not after.learned.measured and not after.learned.curve


@settings(max_examples=100, deadline=None)
@given(histories(), situations())
def test_stored_demand_state_is_parsed_back(
    seen: tuple[DemandSample, ...], situation: tuple[Fleet, Targets, ScalingState]
) -> None:
    _, after = decide_size(seen, *situation, NOW)
    stored = to_status(after)
    assert to_status(from_status(stored)) == stored
