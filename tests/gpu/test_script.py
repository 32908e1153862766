"""Tests of the script that measures on GPUs: its steps, its time limits, its data, and the tables of the pages. The tests
need no GPU.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.gpu import __main__ as script
from tests.gpu import cases, models, tables
from tests.gpu.__main__ import Step

ROOT = Path(__file__).parents[2]


def step(name: str, code: str, limit: float = 20.0, needs: tuple[str, ...] = ()) -> Step:
    """Return a step that runs some Python code."""
    return Step(name, ("-c", code), limit, "for a test", needs)


def test_the_dry_run_names_every_step(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The dry run prints the command, the limit and the order of each step, and runs nothing."""
    monkeypatch.setattr(sys, "argv", ["tests.gpu", "--dry-run"])
    script.main()
    printed = capsys.readouterr().out.splitlines()
    for number, each in enumerate(script.STEPS, 1):
        first = next(at for at, line in enumerate(printed) if line.split()[:2] == [f"{number}.", each.name])
        assert f"at most {each.limit:3.0f} s" in printed[first] and each.purpose in printed[first]
        assert f"python {' '.join(each.argv)}" in printed[first + 1]


def test_module_of_every_step_exists() -> None:
    """The modules of all steps exist. A step that names a missing module would fail only on the machine with the GPU."""
    for each in script.STEPS:
        assert each.argv[0] == "-m"
        path = ROOT / each.argv[1].replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), each.argv


def test_the_steps_of_models_name_models_of_the_cases() -> None:
    """The steps measure every model of cases.json in decode and in prefill."""
    named = {
        (each.argv[2], each.argv[3]) for each in script.STEPS if each.argv[1] == "tests.gpu.kernels" and len(each.argv) > 3
    }
    assert named == {(kind, model.name) for model in cases.models() for kind in ("decode", "prefill")}


def test_json_lines_of_a_step_are_results(tmp_path: Path) -> None:
    """The lines of a step's output that are JSON objects are results, and all other lines go to the log. A step that fails
    does not end the run.
    """
    result = {"step": "one", "part": "read", "seconds": 1.5}
    printing = f"import json; print('compiling'); print(json.dumps({result})); print('{{broken')"
    results = script.run([step("one", printing), step("two", "raise SystemExit(3)")], 60, tmp_path)
    kept = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert kept == results and kept[0]["step"] == "machine"
    assert kept[1] == {"step": "one", "part": "read", "seconds": 1.5}
    assert [(line["step"], line["ok"], line["exit"]) for line in kept if line.get("ended")] == [
        ("one", True, 0),
        ("two", False, 3),
    ]
    assert "compiling" in (tmp_path / "log.txt").read_text() and "{broken" in (tmp_path / "log.txt").read_text()


def test_hanging_step_is_killed_at_its_own_limit(tmp_path: Path) -> None:
    """A step that hangs is killed at its own limit. Its output is kept, and the next step runs."""
    hanging = 'import time; print(\'{"step": "slow", "part": "read"}\', flush=True); time.sleep(60)'
    results = script.run([step("slow", hanging, limit=2.0), step("next", "pass")], 60, tmp_path)
    assert {"step": "slow", "part": "read"} in results
    ended = {line["step"]: line for line in results if line.get("ended")}
    assert not ended["slow"]["ok"] and ended["slow"]["why"] == "killed after 2 s"
    assert ended["next"]["ok"]


def test_a_step_is_skipped_with_a_reason(tmp_path: Path) -> None:
    """A step that cannot run is skipped with the reason: a missing module, or that no time is left."""
    results = script.run([step("lacks", "pass", needs=("no_such_module",)), step("late", "pass")], 0.0, tmp_path)
    skipped = {line["step"]: line["skipped"] for line in results if "skipped" in line}
    assert skipped == {"lacks": "no_such_module is not installed", "late": "no time was left"}


def test_an_unknown_step_is_refused() -> None:
    """An unknown name of a step is refused, with a message that lists the steps."""
    with pytest.raises(SystemExit, match=r"Unknown step rooflines\. The steps are: compile, roofline, "):
        script.planned(["rooflines"])


def test_gpu_cases_equal_those_of_the_planner() -> None:
    """cases.json is what the planner writes. If this test fails, run `python -m tests.gpu.cases`; measured batches then need
    a new run on a GPU.
    """
    assert models.FILE.read_text() == cases.text()
    assert models.models(models.FILE.read_text()) == cases.models()


@pytest.mark.parametrize("page", tables.tables())
def test_tables_on_the_pages_are_up_to_date(page: str) -> None:
    """The tables on the pages are up to date. If this test fails, run `python -m tests.gpu.tables`."""
    text = (tables.DOCS / page).read_text()
    assert tables.updated(text, tables.tables()[page]) == text


def test_a_page_without_a_marker_is_refused() -> None:
    """A page without the marker of a table is refused. The table would otherwise be lost."""
    with pytest.raises(ValueError, match="has no markers <!-- rates --> and <!-- end of rates -->"):
        tables.updated("# A page\n", {"rates": ["| a |"]})


def test_recorded_measurements_passed_check_against_fp32() -> None:
    """All results in tests/gpu/results passed the check against FP32, and no step ended early."""
    for run in tables.runs():
        for line in run.lines:
            assert line.get("ok") in (True, None), (run.name, line)


def test_times_of_the_parts_sum_to_the_time_of_a_layer() -> None:
    """The sum of the parts is the time of a whole layer in one CUDA graph, within 5 % (docs/gpu.md)."""
    compared = 0
    for run in tables.runs():
        for model in cases.models():
            for batch in model.batches:
                for context in model.contexts:
                    whole = run.parts("decode", model.name, tokens=batch, context=context, part="layer")
                    terms = tables.decode_terms(run, model, batch, context)
                    for line in whole:
                        compared += 1
                        assert model.layers * line["seconds"] == pytest.approx(
                            sum(term.measured for term in terms), rel=0.05
                        )
    assert compared == 32
