"""Tests of results as rows, and of which aims they meet."""

import io
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

import bench.__main__ as bench
from bench.counting import Count
from bench.processes import Usage
from bench.report import sections
from bench.results import (
    Churned,
    Deletion,
    Eyed,
    Labelled,
    Labels,
    Quiet,
    Ramp,
    Restart,
    Results,
    Started,
    SyncTimes,
    TenantWaits,
)
from bench.rows import Row
from bench.scenarios import SINGLE
from bench.table import markdown, show

FLOOR = Ramp(
    scenario=SINGLE[100].key, title="100 services", side="floor", repetition=0, pods_s=20.0, sent_s=15.0, services=100,
    pods=1100, objects=12, servers_cpu_s={"apiserver": 30.0}, pace_ms=2.0, deletion=Deletion(10.0, 9.0),
)  # fmt: skip
OURS = replace(
    FLOOR, side="operator", pods_s=22.0, ready_s=22.5, lags_s=(0.2, 0.4, 0.9), settled=True, usage=Usage(9.0, 100.0),
    count=Count(requests=1500, writes=1400, created=1200),
)  # fmt: skip


def rows(results: Results) -> dict[str, Row]:
    """Return the rows by their text."""
    return {row.what: row for section in sections(results) for row in section.rows}


def test_report_marks_met_aims() -> None:
    found = rows(Results(ramps=[FLOOR, OURS]))
    assert (found["last pod Ready"].ratio, found["last pod Ready"].met) == ("1.10 x", True)
    assert found["the slowest service"].met is True
    assert (found["writes per service"].ratio, found["writes per service"].met) == ("+2.0", True)
    assert found["deletion of everything"].ratio == "1.00 x"
    assert found["last pod Ready"].ome == "127.6 s"


def test_report_marks_missed_aims() -> None:
    late = replace(OURS, pods_s=26.0, lags_s=(0.1, 2.5), count=Count(requests=9, writes=1600, created=1200), settled=False)
    found = rows(Results(ramps=[FLOOR, late]))
    missed = {what for what, row in found.items() if row.met is False}
    assert missed == {"last pod Ready", "the slowest service", "writes per service", "writes ended"}


def test_report_ratio_compares_medians() -> None:
    floors = [replace(FLOOR, pods_s=seconds) for seconds in (20.0, 10.0, 90.0)]
    found = rows(Results(ramps=[*floors, OURS]))["last pod Ready"]
    assert (found.ratio, found.floor) == ("1.10 x", "20.0 s (10.0–90.0)")


def test_report_normalizes_results_of_a_slower_machine() -> None:
    slower = replace(OURS, pods_s=30.0, pace_ms=2.5)
    found = rows(Results(ramps=[FLOOR, slower]))
    assert (found["last pod Ready"].ratio, found["last pod Ready"].met) == ("1.50 x", False)
    told = found["pace of a core (less is faster); at one pace"]
    assert (told.floor, told.operator, told.ratio, told.met) == ("2.00 ms", "2.50 ms", "1.20 x", None)


def test_small_numbers_have_no_verdict() -> None:
    few = [replace(one, scenario="10-single", services=10, pods_s=1.0 + (one is OURS)) for one in (FLOOR, OURS)]
    found = rows(Results(ramps=few))["last pod Ready"]
    assert (found.ratio, found.aim, found.met, found.ome) == ("2.00 x", "", None, "")


def test_results_of_one_side_have_no_ratio() -> None:
    assert rows(Results(ramps=[FLOOR]))["last pod Ready"].ratio == ""
    assert rows(Results(ramps=[OURS]))["last pod Ready"].met is None


@pytest.mark.parametrize(("writes", "met"), [(0, True), (1, False)])
def test_writes_without_changes_miss_the_aim(writes: int, met: bool) -> None:
    counted = Count(requests=5, writes=writes, written={"patch services": writes} if writes else {})
    quiet = Quiet(services=50, seconds=30.0, count=counted, cpu_s=0.3)
    restart = Restart(services=100, stop_s=1.0, lead_s=2.0, count=counted, usage=Usage(1.0, 90.0))
    found = rows(Results(idle=quiet, scaled=quiet, restart=restart))
    assert {row.met for what, row in found.items() if what.startswith("writes")} == {met}
    assert found["writes a minute, 50 services, HPA statuses change every 15 s"].ome == "1,721"


@pytest.mark.parametrize(("slow", "met"), [(1.9, True), (2.1, False)])
def test_tenant_wait_is_judged_by_its_95th_percentile(slow: float, met: bool) -> None:
    alone, beside = (1.0,) * 50, (*(1.0,) * 40, *(slow,) * 10)
    found = rows(Results(beside=TenantWaits(2000, 5000, 8.0, alone, beside, 0.4)))
    row = found["a service Ready, 95 % of 50 (floor: alone)"]
    assert (row.ratio, row.met) == (f"{slow:.2f} x", met)
    assert found["a service Ready, 50 % of 50 (floor: alone)"].met is None


def test_table_and_json_contain_all_results() -> None:
    results = Results(ramps=[FLOOR, OURS], alone=SyncTimes(100.0, 50.0, 25_000, 17, 17))
    out = io.StringIO()
    show(sections(results), Console(file=out, width=160))
    assert "1.10 x" in out.getvalue() and "25,000 bytes" in out.getvalue() and "not in this run" in out.getvalue()
    assert json.loads(json.dumps(asdict(results)))["ramps"][1]["lags_s"] == [0.2, 0.4, 0.9]


def test_markdown_table_contains_all_results() -> None:
    """The Markdown table contains all rows of the results, for docs/performance.md. Columns that a section does not use are
    left out.
    """
    results = Results(ramps=[FLOOR, OURS], alone=SyncTimes(100.0, 50.0, 25_000, 17, 17))
    text = markdown(
        sections(results), {"began": "2026-11-24T10:00:00", "commit": "0123456789", "cpus": 2, "python": "3.11.9"}
    )
    lines = text.splitlines()
    assert lines[0] == ("Measured 2026-11-24 at commit 0123456: 2 cores, Python 3.11.9, load unknown before the run.")
    assert "|  | floor | operator | ratio | aim | met | OME \\* |" in lines
    assert "| last pod Ready | 20.0 s | 22.0 s | 1.10 x | <= 1.25 x | yes | 127.6 s |" in lines
    assert "|  | operator |" in lines, "`sync` alone has no floor and no aim"
    for section in sections(results):
        assert f"**{section.title}**" in lines
        assert all(any(line.startswith(f"| {row.what.strip()} |") for line in lines) for row in section.rows)
    tables = [line for line in lines if line.startswith("|")]
    assert all(line.endswith(" |") for line in tables)


def test_stored_results_can_be_printed_again(tmp_path: Path) -> None:
    """The command that docs/performance.md names prints the stored results of an earlier run again."""
    quiet = Quiet(services=50, seconds=30.0, count=Count(requests=5, written={"patch services": 1}, writes=1), cpu_s=0.3)
    results = Results(about={"began": "2026-11-24", "load_before": [0.5, 0.4, 0.3]}, ramps=[FLOOR, OURS], idle=quiet)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(asdict(results)))
    words = [sys.executable, "-m", "bench", "--read", str(file), "--markdown"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.rstrip() == markdown(sections(results), results.about)
    assert "1.10 x" in done.stdout and "load 0.5 before" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file"), ("{", "does not hold the figures of a run"), ('{"ramps": [1]}', "does not hold")],
)
def test_file_without_results_gives_a_one_line_error(
    tmp_path: Path, text: str | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(sys, "argv", ["bench", "--read", str(file)])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told and str(file) in told


EDITS = "  the slowest of {} edits of a service meanwhile (floor: as many bare requests)"


def test_expensive_labels_and_waiting_edits_miss_the_aim() -> None:
    cheap, dear = Labels("at once", 300, 2.0, 1.5, (0.2, 0.4)), Labels("in turn", 6000, 20.0, 7.0, (0.1, 1.2), (0.3, 0.2))
    found = rows(Results(labelled=Labelled(300, 207, 20, [cheap, dear], 150.0)))
    missed = {what for what, row in found.items() if row.met is False}
    assert missed == {"labels set in turn: 6000 requests in 20.0 s", EDITS.format(2)}
    assert found[EDITS.format(2)].floor == "0.30 s"
    assert found["labels set at once: 300 requests in 2.0 s"].met is True


def test_wave_without_a_finished_edit_misses_the_aim() -> None:
    found = rows(Results(labelled=Labelled(300, 207, 20, [Labels("at once", 300, 2.0, 1.5, ())], 150.0)))
    assert found[EDITS.format(0)].met is False


@pytest.mark.parametrize(("edit", "floor", "met"), [(0.9, 0.1, True), (1.9, 1.0, True), (2.1, 1.0, False)])
def test_edit_delay_is_judged_relative_to_the_api_server(edit: float, floor: float, met: bool) -> None:
    wave = Labels("at once", 300, 2.0, 1.5, (edit,), (floor,))
    found = rows(Results(labelled=Labelled(300, 207, 20, [wave], 150.0)))
    assert found[EDITS.format(1)].met is met


@pytest.mark.parametrize(("starts", "met"), [((5.9, 9.0, 5.8), True), ((6.1, 6.2, 5.0), False)])
def test_slow_start_misses_the_aim(starts: tuple[float, ...], met: bool) -> None:
    found = rows(Results(started=Started(5000, 207, 1000, lists_s=(4.0, 3.9, 4.1), starts_s=starts, peak_mib=300.0)))
    assert found["until it leads and knows all objects (floor: the same lists, decoded)"].met is met


@pytest.mark.parametrize(("last_mib", "met"), [(109.0, True), (111.0, False)])
def test_memory_growth_above_a_tenth_misses_the_aim(last_mib: float, met: bool) -> None:
    gone = Churned(800, 6400, pace=8.0, rounds_mib=(90.0, 100.0, 101.0, last_mib), peak_mib=112.0, cpu_s=9.0)
    found = rows(Results(churned=gone))["memory after all of them (floor: after half of them)"]
    assert (found.floor, found.met) == ("100 MiB", met)


def test_scrape_that_stalls_the_event_loop_misses_the_aim() -> None:
    good = Eyed(services=100, series=900, kib=80, scrape_ms=20, stall_ms=4, pass_us=50)
    found = rows(Results(eyes=[good, replace(good, services=1000, stall_ms=80)]))
    first, second = (row for what, row in found.items() if "services" in what)
    assert first.met and second.met
    assert found["  the longest time for which the loop is blocked"].met is False
