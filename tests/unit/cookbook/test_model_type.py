"""Tests of --model-type: an engine that does not support a model's own type loads it as another type, and the model's
files are not changed.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.preset import RenderedPreset, in_pods, in_shell
from ome_operator.cookbook.request import RecipeRefused, RecipeRequest
from tests.support import parts

TOLD = {"model_type": "deepseek_v3"}
GGUF = {"model": "gguf", "engine": "ktransformers", "strategy": "cpu"}
MPI = {"engine": "tensorrt-llm", "strategy": "tp+dp+ep", "tp": 16}


def filled(shelf: Library, pods: bool = True, **asked: Any) -> RenderedPreset:
    whole = {"hardware": "h200", "model": "instruct", "model_type": "deepseek_v3", **asked}
    return (in_pods if pods else in_shell)(plan(RecipeRequest(**whole), shelf))


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ({}, "--json-model-override-args"),
        ({"version": "0.4.9.post2", "strategy": "pd"}, "--json-model-override-args"),
        ({"engine": "vllm"}, "--hf-overrides"),
        ({"engine": "vllm", "strategy": "dp+ep"}, "--hf-overrides"),
    ],
)
def test_engines_with_a_model_type_flag_get_the_flag(asked: dict[str, Any], flag: str, shelf: Library) -> None:
    for launch in filled(shelf, **asked).launches:
        for one in (launch, launch.worker or launch):
            (value,) = [word.value for word in one.flags if word.name == flag]
            assert json.loads(value or "") == TOLD
    without = filled(shelf, **asked, model_type=None).launches
    assert [word for launch in without for word in launch.flags if word.name == flag] == []


@pytest.mark.parametrize("pods", [True, False])
def test_the_copy_has_the_other_type_and_all_files(pods: bool, shelf: Library, tmp_path: Path) -> None:
    source, copy = tmp_path / "model", tmp_path / "copy"
    source.mkdir()
    inner = {"vision": {"model_type": "other"}}
    (source / "config.json").write_text(json.dumps({"model_type": "kimi_k2", **inner}))
    (source / "weights.gguf").write_text("weights")
    (launch,) = filled(shelf, pods, **GGUF).launches
    lines = "\n".join(launch.before).replace("/tmp/model", str(copy))
    for _ in range(2):  # A restarted container finds the copy from its previous run.
        done = subprocess.run(
            ["bash", "-ec", lines], env={"PATH": "/usr/bin:/bin", "MODEL_PATH": str(source)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert json.loads((copy / "config.json").read_text()) == TOLD | inner
    assert (copy / "weights.gguf").read_text() == "weights"
    assert json.loads((source / "config.json").read_text())["model_type"] == "kimi_k2"


@pytest.mark.parametrize("asked", [GGUF, MPI])
def test_engines_without_a_model_type_flag_read_the_copy(asked: dict[str, Any], shelf: Library) -> None:
    (launch,) = filled(shelf, **asked).launches
    read = [*launch.after, *(word.value for word in launch.flags if word.name == "--model_path")]
    assert read == ["/tmp/model"]
    if launch.worker:
        assert "ln -sf" in "\n".join(launch.worker.before), "ranks of other nodes read the same path"


def test_invalid_model_type_is_refused(shelf: Library) -> None:
    with pytest.raises(RecipeRefused, match=r"--model-type x; rm -rf is not a model type: write the model_type of"):
        filled(shelf, model_type="x; rm -rf")


def test_documentation_shows_the_lines_that_pods_run(shelf: Library) -> None:
    (launch,) = filled(shelf, **GGUF).launches
    page = (parts.ROOT / "docs/engines.md").read_text()
    assert "\n".join(line for line in launch.before if not line.startswith("set ")) in page
