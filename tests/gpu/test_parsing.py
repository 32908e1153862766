"""Tests that samples can be parsed in parallel, without SGLang."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import parsing

MODEL = "/mnt/models/Kimi-K2-Instruct"


def engine(name: str, image: str = "docker.io/lmsysorg/sglang:v0.5.23") -> dict[str, Any]:
    """Return a StatefulSet that serves MODEL."""
    box = {
        "image": image, "command": ["python3", "-m", "sglang.launch_server"], "args": ["--model-path=$(MODEL_PATH)"],
        "env": [{"name": "MODEL_PATH", "value": MODEL}],
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [box]}}}}


def test_config_file_in_use_by_a_parser_is_not_rewritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A config.json that a parser may be reading is not written again. Services share models, and several parsers run at the
    same time.
    """
    config = tmp_path / Path(MODEL).name / "config.json"
    written: list[int] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[-1] == f"--model-path={config.parent}"
        json.loads(config.read_text())
        time.sleep(0.02)
        written.append(config.stat().st_mtime_ns)
        return subprocess.CompletedProcess(command, 0, '{"page_size": 1}\n', "")

    monkeypatch.setattr(subprocess, "run", run)
    samples = [engine(f"engine-{letter}") for letter in "abcdefghijkl"]
    found = parsing.parsed([*samples, engine("group-0-w"), engine("older", "sglang:v0.5.1")], tmp_path)
    assert len(written) == 12 and len(set(written)) == 1
    assert [one["args"] for one in found.values() if "args" in one] == [{"page_size": 1}] * 12
    assert [name for name, one in found.items() if "skipped" in one] == ["group-0-w", "older"]


def test_parser_timeout_does_not_affect_other_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A parser that never answers and times out does not affect the results of the others."""

    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        if env["SLOW"]:
            raise subprocess.TimeoutExpired(command, 150)
        return subprocess.CompletedProcess(command, 0, "{}", "")

    monkeypatch.setattr(subprocess, "run", run)
    samples = [engine("slow"), engine("quick")]
    for one, value in zip(samples, ("yes", ""), strict=True):
        one["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "SLOW", "value": value})
    found = parsing.parsed(samples, tmp_path)
    assert found["slow"]["refused"] == "no answer within 150 s" and found["quick"]["args"] == {}
