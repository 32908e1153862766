"""Tests of the three objects in docs/your-own-model.md: they are as short as the page states, valid, and refer to each
other.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.api import InferenceService, Model, Runtime
from ome_operator.cli.app import app
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.selection.runtime import select
from tests.support import parts
from tests.support.parts import ROOT, ensure_valid, read_documents

PAGE = (ROOT / "docs/your-own-model.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
KINDS = (Model, Runtime, InferenceService)


def written(folder: Path) -> Path:
    for number, block in enumerate(BLOCKS):
        (folder / f"{number}.yaml").write_text(block)
    return folder


def test_stated_line_counts_of_the_examples_are_correct() -> None:
    said = re.search(r"they have (\d+), (\d+) and (\d+) lines", PAGE)
    assert said is not None
    assert [len(block.splitlines()) for block in BLOCKS] == [int(number) for number in said.groups()]


def test_lint_has_no_findings_for_the_documented_objects(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["lint", "-f", str(written(tmp_path))])
    assert (done.exit_code, done.stdout) == (0, "no findings\n")


@pytest.mark.parametrize(("left_out", "severity", "code"), [(1, "warning", 0), (0, "error", 2)])
def test_missing_runtime_file_is_no_error_but_missing_model_file_is(
    tmp_path: Path, left_out: int, severity: str, code: int
) -> None:
    """If the file of the runtime is not passed to `ome lint`, the finding is not an error, because the runtime may be on
    the cluster. If the file of the model is not passed, the finding is an error.
    """
    (written(tmp_path) / f"{left_out}.yaml").unlink()
    done = CliRunner().invoke(app, ["lint", "-f", str(tmp_path), "-o", "json"])
    (finding,) = json.loads(done.stdout)
    assert (finding["severity"], done.exit_code) == (severity, code)
    assert "add -f with " in finding["remedy"] and "`ome diff -f` with the same files finds it there" in finding["remedy"]


def test_a_given_runtime_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    other = written(tmp_path) / "1.yaml"
    other.write_text(other.read_text().replace("OlmoeForCausalLM", "LlamaForCausalLM"))
    done = CliRunner().invoke(app, ["lint", "-f", str(tmp_path)])
    assert done.exit_code == 2 and "error refused: no runtime fits model acme-moe" in done.stdout


def on_cpus() -> dict[str, Any]:
    """Return the runtime of the page with the lines for CPUs."""
    (lines,) = re.findall(r"```\n(  engineConfig:\n.*?)```", PAGE, re.S)
    runtime: dict[str, Any] = yaml.safe_load(BLOCKS[1])
    runtime["spec"] |= yaml.safe_load(lines)
    return runtime


def test_documented_cpu_settings_limit_the_memory(tmp_path: Path) -> None:
    runtime, file = on_cpus(), written(tmp_path) / "1.yaml"
    file.write_text(yaml.safe_dump(runtime))
    done = CliRunner().invoke(app, ["lint", "-f", str(tmp_path), "--strict"])
    assert (done.exit_code, done.stdout) == (0, "no findings\n")
    runner = runtime["spec"]["engineConfig"]["runner"]
    (shipped,) = read_documents(ROOT / "config/runtimes/srt/kimi-k2-tiny-pd-cpu-rt.yaml")
    own = shipped["spec"]["engineConfig"]["runner"]
    assert set(runner["args"]) <= set(own["args"])
    assert (runner["image"], runner["resources"]) == (own["image"], own["resources"])
    runner["args"].remove("--max-total-tokens=4096")
    del runner["resources"]
    file.write_text(yaml.safe_dump(runtime))
    assert "warning cpu-memory-unbounded" in CliRunner().invoke(app, ["lint", "-f", str(tmp_path)]).stdout


@pytest.mark.parametrize("left_out", ["", "modelFormat", "modelArchitecture"])
def test_runtime_is_selected_because_its_declared_values_match_the_model(left_out: str) -> None:
    bodies: list[dict[str, Any]] = [yaml.safe_load(block) for block in BLOCKS]
    bodies[0]["spec"].pop(left_out, None)
    model, runtime, service = (ensure_valid(kind.parse(body)) for kind, body in zip(KINDS, bodies, strict=True))
    selection = select(service, profile_of(model), parts.deps(model, runtime))
    assert (selection.selected_runtime is not None) == (not left_out)
    if left_out:
        assert f"asks for {left_out}: " in selection.sentence(model.name)
