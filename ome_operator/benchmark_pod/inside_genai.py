"""A run with genai-bench, in an image that has it: its command line, and its result in the words of SGLang's benchmark.

Like inside.py it imports nothing of ours. Chat completions are asked, as genai-bench does for SGLang and vLLM, too.
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
"""As SGLang's benchmark calls it -> as genai-bench does."""


def serving(plan: Json, run: Json, file: Path) -> Json:
    """One run; raises RuntimeError with a sentence."""
    if run["scenario"] in ("dataset", "gsm8k"):
        raise RuntimeError(f"trafficScenarios {run['scenario']} needs an image of SGLang, and this image has genai-bench")
    folder = file.with_suffix("")
    done = subprocess.run([*COMMAND, *words(plan, run, folder)], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    found = [path for path in folder.glob("*.json") if path.name != "experiment_metadata.json"]
    if done.returncode or len(found) != 1:
        said = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        raise RuntimeError(f"genai-bench ended with {done.returncode}: {said[-1] if said else 'it said nothing'}")
    return result(json.loads(found[0].read_text()))


def words(plan: Json, run: Json, folder: Path) -> list[str]:
    """The run as options of genai-bench."""
    given = {one: after for one, after in zip(plan["serving"], plan["serving"][1:], strict=False) if one.startswith("--")}
    args = dict(zip(run["args"][::2], run["args"][1::2], strict=False))
    backend = "openai" if given["--backend"].startswith("openai") else "vllm" if "vllm" in given["--backend"] else "sglang"
    model = given.get("--served-model-name", given["--tokenizer"])
    more = _parameters(given)
    return [
        *("--api-backend", backend, "--api-base", given["--base-url"], "--api-model-name", model),
        *("--api-key", os.environ.get("OPENAI_API_KEY", "EMPTY"), "--task", "text-to-text"),
        *("--model", Path(model).name, "--model-tokenizer", given["--tokenizer"]),
        *("--traffic-scenario", run["scenario"], "--num-concurrency", str(run["concurrency"])),
        *("--max-requests-per-run", args["--num-prompts"], "--max-time-per-run", str(math.ceil(plan["seconds"] / 60))),
        *("--experiment-base-dir", str(folder.parent.absolute()), "--experiment-folder-name", folder.name),
        *(("--additional-request-params", json.dumps(more)) if more else ()),
    ]


def _parameters(given: Json) -> Json:
    """What every request says besides."""
    more: Json = json.loads(given.get("--extra-request-body", "{}"))
    for option, name in (("--temperature", "temperature"), ("--top-p", "top_p")):
        if option in given:
            more[name] = float(given[option])
    return more | ({"ignore_eos": False} if "--disable-ignore-eos" in given else {})


def result(told: Json) -> Json:
    """What SGLang's benchmark would have written."""
    whole = told["aggregated_metrics"]
    scale = 1.0 if told.get("_time_unit") == "ms" else 1000.0
    numbers = {name: whole.get(theirs) for name, theirs in _RATES.items()}
    return {
        "completed": whole["num_completed_requests"],
        "errors": list(_errors(told["individual_request_metrics"])),
        **{name: value for name, value in numbers.items() if value is not None},
        **dict(_latencies(whole["stats"], scale)),
    }


def _latencies(stats: Json, scale: float) -> Iterator[tuple[str, float]]:
    """Milliseconds."""
    for name in _LATENCIES:
        for ours, theirs in _SHARES.items():
            value = (stats.get(name) or {}).get(theirs)
            if value is not None:
                yield f"{ours}_{name}_ms", value * scale


def _errors(requests: list[Json]) -> Iterator[str]:
    """A text for each request, "" where it was answered."""
    for one in requests:
        code = one.get("error_code")
        yield "" if code is None else f"{code}: {one.get('error_message') or ''}"
