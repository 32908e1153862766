"""Compare the operator's decision with the oracle for several seeds of the arrivals of a trace.

`python -m ome_operator.simulation.seeds TRACE [SEEDS]` runs the seeds 1 to SEEDS, by default 20, in one process for each
core, and prints a line for each seed and a summary. The oracle of each seed is the best point of the grid for the arrivals
of this seed.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing import Pool
from statistics import fmean
from typing import NamedTuple

from ome_operator.simulation.compare import COST, ORACLE, PATIENT, backlogs, best_oracle_point
from ome_operator.simulation.controllers import OneByOneController, OperatorController, Oracle, grid, needed_groups
from ome_operator.simulation.engines import START
from ome_operator.simulation.run import run_simulation
from ome_operator.simulation.traces import trace_by_name

SEEDS = 20
LATE = 60.0
"""Seconds after which one of the oracles learns the lengths of requests. The operator knows only means over 60 s."""


class SeedOutcome(NamedTuple):
    """The results of a seed."""

    seed: int
    share_on_time: float
    """Share of the requests that met both targets with the operator's decision."""
    oracle_good: float
    ratios: tuple[float, float, float]
    """Ratios of the GPU-hours of the operator's decision to the GPU-hours of three oracles: the oracle; an oracle that
    removes groups as the operator does; and the second oracle if it learns the lengths of requests `LATE` seconds late."""
    backlog: float
    """Longest time in seconds from a step of the load until its backlog was gone; 0 without steps."""


def seed_outcome(name: str, seed: int) -> SeedOutcome:
    """Return the results of a seed of a trace."""
    trace = trace_by_name(name)
    first = needed_groups(trace, 0.0, trace.rate(0.0))
    ours = run_simulation(trace, OperatorController(trace), first, seed)
    point, oracle = best_oracle_point(
        (point, run_simulation(trace, Oracle(trace, *point), first, seed)) for point in grid(trace)
    )
    busy, ahead, keep, clear = point
    patient, late = (
        run_simulation(trace, OneByOneController(trace, Oracle(trace, busy, ahead, keep, clear, seconds)), first, seed)
        for seconds in (0.0, LATE)
    )
    ratios = tuple(ours.gpu_hours / one.gpu_hours for one in (oracle, patient, late))
    backlog = max((one.seconds for one in backlogs(trace, ours)), default=0.0)
    return SeedOutcome(seed, ours.share_on_time, oracle.share_on_time, (ratios[0], ratios[1], ratios[2]), backlog)


def line(seed_outcome: SeedOutcome) -> str:
    """Return the results of a seed as a line of text."""
    ratios = ", ".join(f"{ratio:.3f}" for ratio in seed_outcome.ratios)
    gone = f", backlog gone after {seed_outcome.backlog:.0f} s" if seed_outcome.backlog else ""
    return (
        f"seed {seed_outcome.seed}: goodput {seed_outcome.share_on_time:.1%} (oracle {seed_outcome.oracle_good:.1%}), "
        f"GPU-hours {ratios}{gone}"
    )


def summary(found: Sequence[SeedOutcome]) -> list[str]:
    """Return the lines that summarize the results of all seeds."""
    out = [f"goodput at least {min(one.share_on_time for one in found):.1%}"]
    for place, name in enumerate((ORACLE, PATIENT, f"{PATIENT}, that learns lengths {LATE:.0f} s late")):
        ratios = sorted(one.ratios[place] for one in found)
        met = sum(ratio <= COST for ratio in ratios)
        out.append(
            f"GPU-hours, divided by those of the {name}: {ratios[0]:.2f} to {ratios[-1]:.2f}, {fmean(ratios):.3f} on "
            f"average, at most {COST} with {met} of {len(ratios)} seeds"
        )
    if any(one.backlog for one in found):
        met = sum(one.backlog <= 2 * START for one in found)
        worst = max(one.backlog for one in found)
        within = f"{2 * START:.0f} s with {met} of {len(found)} seeds"
        out.append(f"backlog gone after {within}, and at most {worst:.0f} s")
    return out


def main(arguments: Sequence[str]) -> None:
    """Run the seeds of a trace, and print the results."""
    name, number = arguments[0], int(arguments[1]) if len(arguments) > 1 else SEEDS
    found = list[SeedOutcome]()
    with Pool(os.cpu_count()) as pool:
        for one in pool.imap(partial(seed_outcome, name), range(1, number + 1)):
            found.append(one)
            print(line(one), flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
