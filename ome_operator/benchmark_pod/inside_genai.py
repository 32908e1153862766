"""Perform a run with genai-bench, in an image that contains it. Build the command line, and convert the result to the
format of SGLang's benchmark.

Like inside.py, this module imports no other module of this project. Requests are chat completions, which genai-bench also
uses for SGLang and vLLM.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
COMMAND = (sys.executable, "-c", "from genai_bench.cli.cli import cli; cli()", "benchmark")
_SHARES = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCIES = ("ttft", "tpot", "e2e_latency")
_RATES = {
    "request_throughput": "requests_per_second",
    "input_throughput": "mean_input_throughput_tokens_per_s",
    "output_throughput": "mean_output_throughput_tokens_per_s",
    "total_throughput": "mean_total_tokens_throughput_tokens_per_s",
    "duration": "run_duration",
}
"""Metric name in SGLang's benchmark -> metric name in genai-bench."""


def serving(plan: Json, run: Json, file: Path) -> Json:
    """Perform one run. Raises RuntimeError with a message."""
    if run["scenario"] in ("dataset", "gsm8k"):
        raise RuntimeError(
            f"trafficScenarios {run['scenario']} is supported only by images with SGLang's benchmark, but this image "
            "has genai-bench"
        )
    folder = file.with_suffix("")
    done = subprocess.run([*COMMAND, *words(plan, run, folder)], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    files = [path for path in folder.glob("*.json") if path.name != "experiment_metadata.json"]
    if done.returncode or len(files) != 1:
        output_lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        raise RuntimeError(
            f"genai-bench exited with code {done.returncode}: {output_lines[-1] if output_lines else 'it printed nothing'}"
        )
    return result(json.loads(files[0].read_text()))


def words(plan: Json, run: Json, folder: Path) -> list[str]:
    """Return the options of genai-bench for one run."""
    options = {
        option: after for option, after in zip(plan["serving"], plan["serving"][1:], strict=False) if option.startswith("--")
    }
    args = dict(zip(run["args"][::2], run["args"][1::2], strict=False))
    backend = (
        "openai" if options["--backend"].startswith("openai") else "vllm" if "vllm" in options["--backend"] else "sglang"
    )
    model = options.get("--served-model-name", options["--tokenizer"])
    parameters = _parameters(options)
    return [
        *("--api-backend", backend, "--api-base", options["--base-url"], "--api-model-name", model),
        *("--api-key", os.environ.get("OPENAI_API_KEY", "EMPTY"), "--task", "text-to-text"),
        *("--model", Path(model).name, "--model-tokenizer", options["--tokenizer"]),
        *("--traffic-scenario", run["scenario"], "--num-concurrency", str(run["concurrency"])),
        *("--max-requests-per-run", args["--num-prompts"], "--max-time-per-run", str(math.ceil(plan["seconds"] / 60))),
        *("--experiment-base-dir", str(folder.parent.absolute()), "--experiment-folder-name", folder.name),
        *(("--additional-request-params", json.dumps(parameters)) if parameters else ()),
    ]


def _parameters(options: Json) -> Json:
    """Return the additional parameters that every request contains."""
    parameters: Json = json.loads(options.get("--extra-request-body", "{}"))
    for option, name in (("--temperature", "temperature"), ("--top-p", "top_p")):
        if option in options:
            parameters[name] = float(options[option])
    return parameters | ({"ignore_eos": False} if "--disable-ignore-eos" in options else {})


def result(report: Json) -> Json:
    """Return the result in the format of SGLang's benchmark."""
    totals = report["aggregated_metrics"]
    scale = 1.0 if report.get("_time_unit") == "ms" else 1000.0
    numbers = {name: totals.get(theirs) for name, theirs in _RATES.items()}
    return {
        "completed": totals["num_completed_requests"],
        "errors": list(_errors(report["individual_request_metrics"])),
        **{name: value for name, value in numbers.items() if value is not None},
        **dict(_latencies(totals["stats"], scale)),
    }


def _latencies(stats: Json, scale: float) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each latency. `scale` converts the values of genai-bench to milliseconds."""
    for name in _LATENCIES:
        for ours, theirs in _SHARES.items():
            value = (stats.get(name) or {}).get(theirs)
            if value is not None:
                yield f"{ours}_{name}_ms", value * scale


def _errors(requests: list[Json]) -> Iterator[str]:
    """Yield the error of each request, or "" for a successful request."""
    for request in requests:
        code = request.get("error_code")
        yield "" if code is None else f"{code}: {request.get('error_message') or ''}"
