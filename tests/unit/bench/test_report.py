"""Results as rows, and which aims they meet."""

import io
import json
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from bench.counting import Count
from bench.processes import Usage
from bench.report import Row, sections
from bench.results import Alone, Deletion, Quiet, Ramp, Restart, Results
from bench.scenarios import SINGLE
from bench.table import show

FLOOR = Ramp(
    scenario=SINGLE[100].key, title="100 services", side="floor", repetition=0, pods_s=20.0, sent_s=15.0, services=100,
    pods=1100, objects=12, servers_cpu_s={"apiserver": 30.0}, pace_ms=2.0, deletion=Deletion(10.0, 9.0),
)  # fmt: skip
OURS = replace(
    FLOOR, side="operator", pods_s=22.0, ready_s=22.5, lags_s=(0.2, 0.4, 0.9), settled=True, usage=Usage(9.0, 100.0),
    count=Count(requests=1500, writes=1400, created=1200),
)  # fmt: skip


def rows(results: Results) -> dict[str, Row]:
    """By their words."""
    return {row.what: row for section in sections(results) for row in section.rows}


def test_aims_that_are_met() -> None:
    found = rows(Results(ramps=[FLOOR, OURS]))
    assert (found["last pod Ready"].ratio, found["last pod Ready"].met) == ("1.10 x", True)
    assert found["the slowest service"].met is True
    assert (found["writes per service"].ratio, found["writes per service"].met) == ("+2.0", True)
    assert found["deletion of everything"].ratio == "1.00 x"
    assert found["last pod Ready"].ome == "127.6 s"


def test_aims_that_are_missed() -> None:
    late = replace(OURS, pods_s=26.0, lags_s=(0.1, 2.5), count=Count(requests=9, writes=1600, created=1200), settled=False)
    found = rows(Results(ramps=[FLOOR, late]))
    missed = {what for what, row in found.items() if row.met is False}
    assert missed == {"last pod Ready", "the slowest service", "writes per service", "writes ended"}


def test_ratio_is_between_medians() -> None:
    floors = [replace(FLOOR, pods_s=seconds) for seconds in (20.0, 10.0, 90.0)]
    found = rows(Results(ramps=[*floors, OURS]))["last pod Ready"]
    assert (found.ratio, found.floor) == ("1.10 x", "20.0 s (10.0–90.0)")


def test_a_machine_that_became_slower_is_told() -> None:
    slower = replace(OURS, pods_s=30.0, pace_ms=2.5)
    found = rows(Results(ramps=[FLOOR, slower]))
    assert (found["last pod Ready"].ratio, found["last pod Ready"].met) == ("1.50 x", False)
    told = found["pace of a core (less is faster); at one pace"]
    assert (told.floor, told.operator, told.ratio, told.met) == ("2.00 ms", "2.50 ms", "1.20 x", None)


def test_small_numbers_are_shown_but_not_judged() -> None:
    few = [replace(one, scenario="10-single", services=10, pods_s=1.0 + (one is OURS)) for one in (FLOOR, OURS)]
    found = rows(Results(ramps=few))["last pod Ready"]
    assert (found.ratio, found.aim, found.met, found.ome) == ("2.00 x", "", None, "")


def test_one_side_alone_has_no_ratio() -> None:
    assert rows(Results(ramps=[FLOOR]))["last pod Ready"].ratio == ""
    assert rows(Results(ramps=[OURS]))["last pod Ready"].met is None


@pytest.mark.parametrize(("writes", "met"), [(0, True), (1, False)])
def test_nothing_is_written_when_nothing_changes(writes: int, met: bool) -> None:
    counted = Count(requests=5, writes=writes, written={"patch services": writes} if writes else {})
    quiet = Quiet(services=50, seconds=30.0, count=counted, cpu_s=0.3)
    restart = Restart(services=100, stop_s=1.0, lead_s=2.0, count=counted, usage=Usage(1.0, 90.0))
    found = rows(Results(idle=quiet, scaled=quiet, restart=restart))
    assert {row.met for what, row in found.items() if what.startswith("writes")} == {met}
    assert found["writes a minute, 50 services, HPA statuses move every 15 s"].ome == "1,721"


def test_the_table_and_the_file_hold_everything() -> None:
    results = Results(ramps=[FLOOR, OURS], alone=Alone(100.0, 50.0, 25_000, 17, 17))
    out = io.StringIO()
    show(sections(results), Console(file=out, width=160))
    assert "1.10 x" in out.getvalue() and "25,000 bytes" in out.getvalue() and "not in this run" in out.getvalue()
    assert json.loads(json.dumps(asdict(results)))["ramps"][1]["lags_s"] == [0.2, 0.4, 0.9]
