"""Run a trace with every controller, and compare the results with the aims (docs/demand.md)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ome_operator.core.demand.facts import LearnedProperties
from ome_operator.simulation.controllers import (
    FixedController,
    OneByOneController,
    OperatorController,
    Oracle,
    Queue,
    grid,
    mean_work,
    needed_groups,
    peak,
)
from ome_operator.simulation.engines import START
from ome_operator.simulation.run import TICK, SimulationResult, run_simulation
from ome_operator.simulation.traces import Trace, trace_by_name

GOOD = 0.95
COST = 1.15
OURS, NEW, ORACLE, PATIENT = "ours", "ours, nothing measured before", "oracle", "oracle, removing groups as ours"
FIXED, CPU, KEDA = "fixed at the peak", "HPA on CPU", "KEDA on queue length"

Task = tuple[str, str, tuple[float, ...]]
"""(trace, controller, point of the oracle's grid). The point is () for controllers that are not oracles."""


class TraceOutcome(NamedTuple):
    """The results of all controllers on a trace."""

    trace: Trace
    results: dict[str, SimulationResult]
    point: tuple[float, ...]
    """The point of the grid that the oracle uses."""


def tasks(name: str) -> tuple[Task, ...]:
    """Return the runs that a comparison of a trace needs."""
    return (
        *((name, controller, ()) for controller in (OURS, NEW, FIXED, CPU, KEDA)),
        *((name, ORACLE, point) for point in grid(trace_by_name(name))),
    )


def perform(task: Task) -> SimulationResult:
    """Simulate a trace with a controller. All controllers except the fixed size begin with the size that the first rate
    needs.
    """
    name, controller, point = task
    trace = trace_by_name(name)
    first = needed_groups(trace, 0.0, trace.rate(0.0))
    if controller == FIXED:
        return run_simulation(trace, FixedController(peak(trace)), peak(trace))
    if controller == OURS:
        return run_simulation(trace, OperatorController(trace), first)
    if controller == NEW:
        return run_simulation(trace, OperatorController(trace, LearnedProperties(starts=(START,))), first)
    if controller == KEDA:
        return run_simulation(trace, Queue(first), first)
    if controller in (ORACLE, PATIENT):
        busy, ahead, keep, clear = point
        oracle = Oracle(trace, busy, ahead, keep, clear)
        return run_simulation(trace, oracle if controller == ORACLE else OneByOneController(trace, oracle), first)
    # The controller scales by CPU usage. The processes of an engine poll without pause, so their CPU usage hardly depends on
    # the load, and the size does not change.
    return run_simulation(trace, FixedController(first), first)


def best_oracle_point(
    results: Iterable[tuple[tuple[float, ...], SimulationResult]],
) -> tuple[tuple[float, ...], SimulationResult]:
    """Return the point of the oracle's grid that is used for comparisons, with its result: the point with the fewest
    GPU-hours among those that reach the goodput `GOOD`. If no point reaches it, return the point with the highest goodput.
    """
    return max(results, key=lambda one: (min(one[1].share_on_time, GOOD), -one[1].gpu_hours))


def compare_controllers(name: str, run: Callable[[Sequence[Task]], Sequence[SimulationResult]]) -> TraceOutcome:
    """Return the results of all controllers on a trace. `run` performs the tasks, in any order."""
    work = tasks(name)
    done = list(zip(work, run(work), strict=True))
    results = {task[1]: result for task, result in done if task[1] != ORACLE}
    point, oracle = best_oracle_point((task[2], result) for task, result in done if task[1] == ORACLE)
    (patient,) = run([(name, PATIENT, point)])
    return TraceOutcome(trace_by_name(name), {**results, ORACLE: oracle, PATIENT: patient}, point)


class StepBacklog(NamedTuple):
    """The backlog of requests after the rate has increased in a step."""

    seconds: float
    """Time from the step until no more than two requests waited for each prefill group."""
    least: float
    """Shortest possible value of `seconds`. A router does not move queued requests to other groups, so the groups that
    existed at the step have to serve their own queues. These queues grow until new groups serve. The controller requests
    new groups at the first reading after the step, and observes one reading later that the queues are empty."""


def backlogs(trace: Trace, result: SimulationResult) -> list[StepBacklog]:
    """Return the backlog after each step in which the rate increases by more than a fifth of the peak."""
    moments = result.moments
    ups = [(one.prefill, two) for one, two in pairwise(moments) if two.rate > one.rate + 0.2 * trace.peak]
    found = []
    for groups, step in ups:
        up = step.at
        late = [one.at for one in moments if one.at >= up and one.waiting > 2 * one.prefill]
        end = up
        for at in late:
            if at - end > 60.0:
                break
            end = at
        busy = step.rate * mean_work(trace, up)[0] / groups
        found.append(StepBacklog(end - up, (START + TICK) * busy + TICK))
    return found


def aims(trace_outcome: TraceOutcome) -> list[tuple[str, str, bool]]:
    """Return a tuple (aim, measured value, whether the aim is met) for each aim of a trace."""
    ours, oracle, patient = (trace_outcome.results[name] for name in (OURS, ORACLE, PATIENT))
    wanted = min(GOOD, oracle.share_on_time)
    out = [
        (f"goodput at least {wanted:.1%}", f"{ours.share_on_time:.1%}", ours.share_on_time >= wanted),
        (
            f"GPU-hours at most {COST} times the oracle's",
            f"{ours.gpu_hours / oracle.gpu_hours:.2f}",
            ours.gpu_hours <= COST * oracle.gpu_hours,
        ),
        (
            f"GPU-hours at most {COST} times those of the oracle that removes groups as ours",
            f"{ours.gpu_hours / patient.gpu_hours:.2f}",
            ours.gpu_hours <= COST * patient.gpu_hours,
        ),
    ]
    if steps := backlogs(trace_outcome.trace, ours):
        worst = max(steps)
        limit = max(2 * START, worst.least)
        out.append((f"backlog gone {2 * START:.0f} s after a step", f"{worst.seconds:.0f} s", worst.seconds <= 2 * START))
        in_time = all(one.seconds <= max(2 * START, one.least) for one in steps)
        out.append((f"backlog gone as soon as it can be, {limit:.0f} s after a step", f"{worst.seconds:.0f} s", in_time))
    if trace_outcome.trace.missing:
        out.append(("no change of the size", str(len(ours.changes) - 1), len(ours.changes) == 1))
    elif trace_outcome.trace.constant:
        out.append(("no change that is taken back", str(ours.reversal_count()), ours.reversal_count() == 0))
    return out


def table(trace_outcome: TraceOutcome) -> list[str]:
    """Return the lines of a table with the results of all controllers."""
    peak_hours = trace_outcome.results[FIXED].gpu_hours
    out = ["| controller | goodput | GPU-hours | of the fixed size | changes |", "|---|---|---|---|---|"]
    for name in (OURS, NEW, ORACLE, PATIENT, FIXED, CPU, KEDA):
        one = trace_outcome.results[name]
        part = one.gpu_hours / peak_hours
        out.append(f"| {name} | {one.share_on_time:.1%} | {one.gpu_hours:,.0f} | {part:.0%} | {len(one.changes) - 1} |")
    return out
