"""Tests of measuring two commits alternately, and of comparing their figures by name."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench import against
from bench.results import Fleet, Labelled, Labels, Results, Wave
from tests.unit.bench.test_report import FLOOR, OURS

FLEET = Fleet("", {"services": 1820}, [Wave("start", 20.0, 0.1), Wave("heartbeats", 3.0, 0.2)], 2.0, 400.0, 500.0, 10)
LABELS = Labelled(300, 207, 20, [Labels("in turn", 6000, 100.0, 8.0, (0.5,))], 90.0)
RESULTS = Results(ramps=[FLOOR, OURS], fleets=[FLEET, replace(FLEET, grows="nodes")], labelled=LABELS)


def test_every_aim_belongs_to_a_figure_of_a_run() -> None:
    found = against.figures_of_run(asdict(RESULTS))
    assert set(found) >= against.AIMS.keys()
    assert found["the operator's CPU (its start included), 100 services"] == 9.0
    assert found["last pod Ready, in multiples of the floor, 100 services"] == pytest.approx(1.1)
    assert found["CPU of all other events, 20,020 pods"] == 3.0


def test_ratios_compare_medians_of_figures_of_both_commits() -> None:
    cpu, floor = "the operator's CPU, labels in turn", "last pod Ready, in multiples of the floor, 100 services"
    that = [{cpu: 8.0, floor: 1.3, "gone": 1.0}, {cpu: 10.0, floor: 1.3, "gone": 1.0}, {cpu: 90.0, floor: 1.3}]
    rows = {row.what: row for row in against.section("both", that, [{cpu: 4.0, floor: 1.25, "new": 1.0}]).rows}
    assert rows.keys() == {cpu, floor}
    assert (rows[cpu].floor, rows[cpu].ratio, rows[cpu].met) == ("10 (8–90)", "0.40 x", True)
    assert rows[floor].met is False, "1.25 is above the aim of 1.2, whatever the result of the other commit"


def test_order_of_the_two_commits_alternates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order = []

    @contextmanager
    def checkout(commit: str) -> Iterator[tuple[Path, str]]:
        yield tmp_path, commit

    def wait(words: Sequence[str], where: Path) -> None:
        order.append("that" if where == tmp_path else "this")
        assert list(words[1:5]) == ["-m", "bench", "--only", "labels"]
        half = replace(LABELS.waves[0], cpu_s=8.0 if where == tmp_path else 4.0)
        results = replace(RESULTS, ramps=[], fleets=[], labelled=replace(LABELS, waves=[half]))
        if len(order) == 4:
            results = Results(failures=["too slow"])
        Path(words[-1]).write_text(json.dumps(asdict(results)))

    compiled = []
    monkeypatch.setattr(against, "_compile", lambda python, where: compiled.append(where))
    monkeypatch.setattr(against, "_checkout", checkout)
    monkeypatch.setattr(against, "_wait", wait)
    table, failures = against.compare("abc", ["--only", "labels"], 2)
    assert compiled == [tmp_path, against.ROOT], "no measured start compiles modules"
    assert order == ["that", "this", "this", "that"]
    assert [row.ratio for row in table.rows] == ["0.50 x", "1.00 x"]
    assert failures == ["that, 2: too slow"]
