"""Tests of a BenchmarkJob in an image of genai-bench. A stub with the options and results of version 0.0.5 replaces
genai-bench.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ome_operator.benchmark_pod import inside, inside_genai
from ome_operator.benchmark_pod.results import results
from tests.unit.benchmark_pod.test_inside import forget

PROGRAM = """
import argparse, json, pathlib
def cli():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["benchmark"])
    for flag in {flags}:
        parser.add_argument(flag, required=flag not in ("--additional-request-params", "--model"))
    given = parser.parse_args()
    if given.api_base == "http://down":
        raise SystemExit("cannot reach http://down")
    folder = pathlib.Path(given.experiment_base_dir) / given.experiment_folder_name
    folder.mkdir(parents=True)
    (folder / "experiment_metadata.json").write_text("{{}}")
    stat = {{"mean": 0.2, "p50": 0.1, "p90": 0.3, "p95": 0.4, "p99": None}}
    whole = {{"num_completed_requests": 3, "requests_per_second": 1.5, "mean_output_throughput_tokens_per_s": 90.0,
             "run_duration": 2.0, "stats": {{"ttft": stat, "tpot": stat, "e2e_latency": stat}}}}
    each = [{{"error_code": None}}] * 3 + [{{"error_code": 503, "error_message": "busy"}}]
    told = {{"aggregated_metrics": whole, "individual_request_metrics": each, "given": vars(given)}}
    (folder / "D100_100_text-to-text_num_concurrency_4_time_2s.json").write_text(json.dumps(told))
"""
FLAGS = (
    "--api-backend", "--api-base", "--api-model-name", "--api-key", "--task", "--model", "--model-tokenizer",
    "--traffic-scenario", "--num-concurrency", "--max-requests-per-run", "--max-time-per-run", "--experiment-base-dir",
    "--experiment-folder-name", "--additional-request-params",
)  # fmt: skip
"""Flags of `genai-bench benchmark`."""
ARGS = ["--num-prompts", "4", "--max-concurrency", "4", "--dataset-name", "random-ids", "--tokenize-prompt"]
RUN: dict[str, Any] = {"scenario": "D(100,100)", "concurrency": 4, "program": "serving", "args": ARGS}


def plan(url: str = "http://svc") -> dict[str, Any]:
    shared = [
        "--backend",
        "sglang",
        "--base-url",
        url,
        "--tokenizer",
        "/models/k2",
        "--disable-tqdm",
        "--temperature",
        "0.6",
    ]
    return {"serving": shared, "seconds": 90, "name": "team/job", "target": url, "service": {}, "runs": [RUN]}


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of a simulated image that contains genai-bench and not SGLang."""
    forget(monkeypatch)
    (tmp_path / "genai_bench/cli").mkdir(parents=True)
    for module in ("__init__", "cli/__init__"):
        (tmp_path / f"genai_bench/{module}.py").touch()
    (tmp_path / "genai_bench/cli/cli.py").write_text(PROGRAM.format(flags=FLAGS))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sglang", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "inside_genai", inside_genai)
    return tmp_path


def test_genai_bench_run_is_measured_and_reported(image: Path) -> None:
    found = inside.outcome(plan(), RUN, image / "raw/0.jsonl")
    told = json.loads(next((image / "raw/0").glob("D100*.json")).read_text())["given"]
    assert (told["api_backend"], told["api_model_name"], told["max_time_per_run"]) == ("sglang", "/models/k2", "2")
    assert json.loads(told["additional_request_params"]) == {"temperature": 0.6}
    (row,) = results(plan(), {0: found})["runs"]
    assert (row["requests"], row["failed"], row["errors"]) == (3, 1, [{"error": "503: busy", "count": 1}])
    assert row["metrics"]["median_ttft_ms"] == 100.0 and row["metrics"]["output_throughput"] == 90.0
    assert "p99_ttft_ms" not in row["metrics"], "a value that was not measured is absent, and not 0"


@pytest.mark.parametrize(
    ("url", "scenario", "said"),
    [
        ("http://down", "D(100,100)", "genai-bench exited with code 1: cannot reach http://down"),
        (
            "http://svc",
            "gsm8k",
            "trafficScenarios gsm8k is supported only by images with SGLang's benchmark, but this image has genai-bench",
        ),
    ],
)
def test_impossible_genai_bench_run_gives_a_one_line_error(image: Path, url: str, scenario: str, said: str) -> None:
    assert inside.outcome(plan(url), {**RUN, "scenario": scenario}, image / "raw/0.jsonl") == {"error": said}
