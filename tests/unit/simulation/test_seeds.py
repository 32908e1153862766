"""Tests of the comparison for several seeds of the arrivals."""

from pathlib import Path

from ome_operator.core.demand.facts import Fleet, RoleFleet
from ome_operator.simulation.compare import PATIENT
from ome_operator.simulation.controllers import Oracle
from ome_operator.simulation.seeds import LATE, SeedOutcome, line, seed_outcome, summary
from ome_operator.simulation.traces import sizes

HOURS = "GPU-hours, divided by those of the"
FLEET = Fleet(RoleFleet(2), RoleFleet(1))


def test_equal_sizes_have_the_ratio_one(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("seconds,rate,prompt,answer\n300,1,8000,100\n")
    found = seed_outcome(str(file), 1)
    assert found.ratios == (1.0, 1.0, 1.0) and found.share_on_time == found.oracle_good == 1.0 and found.backlog == 0.0


def test_oracle_may_learn_request_lengths_with_a_delay() -> None:
    trace = sizes()
    at_once, late = (Oracle(trace, 1.0, 0.0, 0.0, 0.0, late=seconds) for seconds in (0.0, LATE))
    before, after = at_once(1790.0, (), FLEET), at_once(1810.0, (), FLEET)
    assert before < after and late(1810.0, (), FLEET) == before and late(1800.0 + LATE, (), FLEET) == after


def test_the_summary_counts_the_seeds_that_meet_the_aims() -> None:
    found = [SeedOutcome(1, 0.96, 0.95, (1.1, 1.0, 0.9), 200.0), SeedOutcome(2, 0.94, 0.96, (1.3, 1.2, 1.1), 220.0)]
    assert line(found[0]) == (
        "seed 1: goodput 96.0% (oracle 95.0%), GPU-hours 1.100, 1.000, 0.900, backlog gone after 200 s"
    )
    assert summary(found) == [
        "goodput at least 94.0%",
        f"{HOURS} oracle: 1.10 to 1.30, 1.200 on average, at most 1.15 with 1 of 2 seeds",
        f"{HOURS} {PATIENT}: 1.00 to 1.20, 1.100 on average, at most 1.15 with 1 of 2 seeds",
        f"{HOURS} {PATIENT}, that learns lengths 60 s late: 0.90 to 1.10, 1.000 on average, at most 1.15 with 2 of 2 seeds",
        "backlog gone after 206 s with 1 of 2 seeds, and at most 220 s",
    ]
    assert len(summary([one._replace(backlog=0.0) for one in found])) == 4, "a trace without steps"
