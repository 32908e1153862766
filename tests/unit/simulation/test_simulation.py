"""Tests of the simulator, and of how the decision follows short traces in it."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from ome_operator.core.demand.facts import Configuration, DemandSample, Fleet
from ome_operator.core.demand.queues import late_share
from ome_operator.simulation import engines, run, traces
from ome_operator.simulation.compare import GOOD, OURS, aims, backlogs, compare_controllers, perform, table
from ome_operator.simulation.controllers import (
    FixedController,
    OneByOneController,
    OperatorController,
    Oracle,
    needed_groups,
    peak,
)
from ome_operator.simulation.plot import svg_text
from ome_operator.simulation.run import SimulationResult, run_simulation
from ome_operator.simulation.traces import RequestKind, Trace


def test_single_request_takes_its_service_times() -> None:
    trace = traces.constant(3000.0, 0.01)
    result = run_simulation(trace, FixedController((1, 1)), (1, 1))
    assert result.share_on_time == 1.0
    assert result.gpu_hours == pytest.approx(2 * 8 * 3000 / 3600)


def test_mean_wait_in_a_prefill_queue_agrees_with_theory() -> None:
    """The mean wait in the simulated queue of a prefill group agrees with the theory of queues. With random arrivals at one
    server with constant service times, it is ρ S / (2 (1 − ρ)) (M/D/1).
    """
    seen = list[float]()

    class Looks(FixedController):
        def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> tuple[int, int]:
            seen.append(samples[-1].waiting or 0)
            return 1, 1

    trace = traces.constant(10_000.0, 2.0)
    run_simulation(trace, Looks((1, 1)), (1, 1))
    service = engines.prefill_seconds(8000)
    busy = 2.0 * service
    assert sum(seen) / len(seen) == pytest.approx(2.0 * busy * service / (2 * (1 - busy)), rel=0.15)


def test_group_serves_after_its_start_and_costs_from_its_creation() -> None:
    fleets = dict[float, Fleet]()

    def grows(now: float, samples: Sequence[DemandSample], fleet: Fleet) -> tuple[int, int]:
        fleets[now] = fleet
        return (2, 1) if now >= 100 else (1, 1)

    result = run_simulation(traces.constant(400.0, 0.5), grows, (1, 1))
    assert [fleets[at].prefill[:2] for at in (100.0, 110.0, 200.0, 210.0)] == [(1, 0), (1, 1), (1, 1), (2, 0)]
    assert result.gpu_hours == pytest.approx(8 * (2 * 400 + 300) / 3600)


def test_removed_group_finishes_its_requests() -> None:
    def shrinks(now: float, samples: Sequence[DemandSample], fleet: Fleet) -> tuple[int, int]:
        return (2, 2) if now < 300 else (2, 1)

    result = run_simulation(traces.constant(600.0, 4.0), shrinks, (2, 2))
    assert result.requests == len(result.late) and result.share_on_time > GOOD


def test_an_equal_seed_gives_an_equal_result() -> None:
    trace = traces.steps(60.0)
    assert run_simulation(trace, OperatorController(trace), (6, 2)) == run_simulation(
        trace, OperatorController(trace), (6, 2)
    )


SHORT = {"sinusoid": traces.sinusoid(1800.0, 1800.0, low=1.0, high=12.0), "steps": traces.steps(600.0, (2.0, 8.0, 2.0))}


@pytest.mark.parametrize("name", SHORT)
def test_demand_controller_follows_the_load_with_less_than_peak_cost(name: str) -> None:
    trace = SHORT[name]
    result = run_simulation(trace, OperatorController(trace), needed_groups(trace, 0.0, trace.rate(0.0)))
    most = peak(trace)
    assert result.share_on_time > (GOOD if name == "sinusoid" else 0.75)  # of a step of 10 minutes, two starts are late
    assert result.gpu_hours < 0.92 * sum(most) * 8 * trace.seconds / 3600


def test_backlog_is_served_within_two_group_starts() -> None:
    trace = SHORT["steps"]
    (step,) = backlogs(trace, run_simulation(trace, OperatorController(trace), (1, 1)))
    assert engines.START < step.seconds <= 2 * engines.START


def test_backlog_is_served_only_by_the_groups_that_had_it() -> None:
    """A backlog is worked off only by the groups that had it. Even if a dozen groups are requested at the first reading
    after the step, the old group must serve its own queue.
    """
    trace = traces.steps(600.0, (2.0, 8.0))
    (step,) = backlogs(trace, run_simulation(trace, lambda now, *_: (13 if now > 600 else 1, 2), (1, 2)))
    assert step.least == pytest.approx(113 * 8 * engines.prefill_seconds(8000) + 10)
    assert 0.9 * step.least < step.seconds < 1.1 * step.least


def test_oracle_with_removal_rules_removes_groups_one_by_one() -> None:
    trace = traces.steps(600.0, (10.0, 2.0, 10.0))
    free, patient = Oracle(trace, 1.0, 0.0, 0.0, 0.0), OneByOneController(trace, Oracle(trace, 1.0, 0.0, 0.0, 0.0))
    quick, slow = (run_simulation(trace, each, needed_groups(trace, 0.0, 10.0)) for each in (free, patient))
    steps = [(after[0], after[1] + after[2] - before[1] - before[2]) for before, after in pairwise(slow.changes)]
    assert [number for _, number in steps if number < 0] == [-1] * sum(number < 0 for _, number in steps)
    assert max(number for _, number in steps) > 1 and len(quick.changes) < len(slow.changes)
    downs = [at for at, number in steps if number < 0]
    assert downs[0] >= 690 and min(two - one for one, two in pairwise(downs)) >= 60


@pytest.mark.parametrize("rate", [2.0, 4.0, 6.0, 9.6, 14.0])
def test_constant_load_causes_no_reversals(rate: float) -> None:
    trace = traces.constant(3600.0, rate)
    assert run_simulation(trace, OperatorController(trace), needed_groups(trace, 0.0, rate)).reversal_count() == 0


def test_vanished_metrics_do_not_change_size() -> None:
    trace = traces.vanishing_metrics_trace(3600.0)
    first = needed_groups(trace, 0.0, 10.0)
    ours = OperatorController(trace)
    result = run_simulation(trace, ours, first)
    assert len(result.changes) == 1 and result.share_on_time > GOOD
    assert {one.hold for one in ours.decisions} >= {"Unknown", "Unmeasured"}


def test_rollout_to_slower_groups_removes_none_before_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the load falls, a rollout makes prefill 1.7 times slower. No group is removed before the new groups are
    measured.
    """
    rollout, factor, downs = 1400.0, [1.0], list[tuple[float, bool]]()
    monkeypatch.setattr(run, "prefill_seconds", lambda tokens: factor[0] * engines.prefill_seconds(tokens))

    class Rolled(OperatorController):
        def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> tuple[int, int]:
            factor[0] = 1.0 if now < rollout else 1.7
            runs = (Configuration("old" if now < rollout else "new"),)
            roles = fleet.prefill._replace(configurations=runs), fleet.decode._replace(configurations=runs)
            before = self.state.wanted
            size = super().__call__(now, samples, Fleet(*roles))
            known = self.state.learned
            if now > rollout and before is not None and size[0] < before[0]:
                downs.append((now, known.shown is not None or known.measured > 0))
            return size

    trace = traces.sinusoid(1800.0, 5400.0, low=1.0, high=9.0)
    result = run_simulation(trace, Rolled(trace), needed_groups(trace, 0.0, trace.rate(0.0)))
    assert len(downs) > 3 and all(shown for _, shown in downs)
    assert downs[0][0] > rollout + 120
    last = [late for at, late in result.late if at > 3600]
    assert 1 - sum(last) / len(last) > GOOD


def test_longer_prompts_increase_the_demand() -> None:
    trace = traces.sizes(600.0, shares=(0.02, 0.10))
    result = run_simulation(trace, OperatorController(trace), needed_groups(trace, 0.0, 10.0))
    assert max(one.prefill for one in result.moments) >= 4 > result.changes[0][1]


def test_comparison_has_a_row_per_controller_and_aims_for_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(traces.TRACES, "constant", lambda: traces.constant(1200.0, 4.0))
    found = compare_controllers("constant", lambda tasks: [perform(task) for task in tasks])
    assert len(table(found)) == 2 + len(found.results) == 9
    assert [aim for aim, _, _ in aims(found)][-1] == "no change that is taken back"
    assert svg_text(found).count("<polyline") == 4


def test_oracle_is_the_cheapest_controller_that_meets_the_target() -> None:
    from ome_operator.simulation.compare import best_oracle_point

    def result(good: float, hours: float) -> SimulationResult:
        return SimulationResult(1, good, hours, (), ())

    assert best_oracle_point([((1.0,), result(0.99, 5)), ((2.0,), result(0.96, 4)), ((3.0,), result(0.9, 1))])[0] == (2.0,)
    assert best_oracle_point([((1.0,), result(0.8, 5)), ((2.0,), result(0.7, 4))])[0] == (1.0,)


def test_reversals_of_one_role_are_counted() -> None:
    sizes = ((0.0, 1, 1), (1.0, 2, 1), (2.0, 2, 2), (3.0, 1, 2), (4.0, 1, 3))
    assert SimulationResult(1, 1.0, 1.0, sizes, ()).reversal_count() == 1


def test_the_needed_size_meets_the_target_by_theory() -> None:
    trace = Trace("x", "x", 10.0, lambda _: 10.0, 10.0, kinds=lambda _: (RequestKind(1.0, 8000, 1000),))
    prefill, decode = needed_groups(trace, 0.0, 10.0)
    service = engines.prefill_seconds(8000)
    assert late_share(prefill, 10 * service, service, 3.0 - service - engines.OVERHEAD) <= 0.05
    assert decode == 1
    assert OURS == "ours"
