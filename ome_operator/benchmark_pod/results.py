"""Results of all runs from what `inside.py` left, and the summary that fits into a termination message. Pure."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.benchmark_pod.inside import CUT
from ome_operator.util.unread import UNREAD

Json = dict[str, Any]
SUMMARY_BYTES = 4096
"""What the kubelet keeps of a termination message."""
_SAID = 300
_ARGUMENTS = (
    *("max_concurrency", "random_input_len", "random_output_len", "random_range_ratio", "sharegpt_output_len"),
    "completed",
)
"""Numbers of the benchmark's result that are no metrics: what it was called with, and what is counted here."""
_LATENCIES = ("ttft", "tpot", "itl", "e2e_latency")
_SHOWN = (
    ("ttft", "median_ttft_ms", "%.1f"),
    ("tpot", "median_tpot_ms", "%.1f"),
    ("tokensPerSecond", "output_throughput", "%.1f"),
    ("accuracy", "accuracy", "%.3f"),
)
_SHARES = ("mean", "median", "p90", "p95", "p99")


def results(plan: Json, raw: Mapping[int, Json]) -> Json:
    """The content of results.json; `raw`: number of a run -> its outcome, absent where the container ended before."""
    lost: Json = {"error": "the container ended before this run was over"}
    runs = [_run(told, raw.get(number, lost)) for number, told in enumerate(plan["runs"])]
    return {"name": plan["name"], "target": plan["target"], "service": plan["service"], "runs": runs}


def _run(told: Json, outcome: Any) -> Json:
    """One run: counts, errors, and what was measured. The image of the benchmark is a user's, and may have left anything."""
    try:
        return _read(told, outcome)
    except UNREAD as error:
        why = f"the result of this run cannot be read: {type(error).__name__}: {error}"
        return _read(told, {"error": why})


def _read(told: Json, outcome: Any) -> Json:
    shared: Json = {"scenario": told["scenario"], "concurrency": told["concurrency"]}
    found = outcome.get("result")
    if found is None:
        said = _errors([str(outcome["error"])])
        return {**shared, "requests": 0, "failed": 1, "unfinished": 0, "errors": said, "metrics": {}}
    if told["program"] == "gsm8k":
        metrics = {name: value for name, value in found.items() if name != "questions" and _measured(value)}
        return {
            **shared,
            "requests": _count(found["questions"]),
            "failed": 0,
            "unfinished": 0,
            "errors": [],
            "metrics": metrics,
        }
    errors = [str(error) for error in found["errors"] if error and error != CUT]
    if not found["completed"] and not errors:
        errors = ["no request was answered within maxTimePerIteration"]
    return {
        **shared,
        "requests": _count(found["completed"]),
        "failed": len(errors),
        "unfinished": found["errors"].count(CUT),
        "errors": _errors(errors),
        "metrics": {name: value for name, value in found.items() if name not in _ARGUMENTS and _measured(value)},
    }


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError("a count is no whole number")
    return value


def _measured(value: Any) -> bool:
    """Whether it is a number that JSON knows."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _errors(said: Iterable[str]) -> list[Json]:
    """The commonest first, each by its last line, where tracebacks tell most."""
    lines = Counter(([line.strip() for line in one.splitlines() if line.strip()] or [""])[-1][:_SAID] for one in said)
    return [{"error": line, "count": count} for line, count in lines.most_common(5)]


def failed(found: Json) -> bool:
    """Whether any request, or run, failed."""
    return any(run["failed"] for run in found["runs"])


def summary(found: Json, place: str) -> str:
    """The BenchmarkReport as JSON; only the first runs stand in it when it would be too long."""
    rows = [_row(run) for run in found["runs"]]
    best = max(found["runs"], key=lambda run: run["metrics"].get("output_throughput") or 0.0)
    errors = [run["errors"][0]["error"] for run in found["runs"] if run["errors"]]
    whole: Json = {
        **_row(best),
        **{name: sum(run[name] for run in found["runs"]) for name in ("requests", "failed", "unfinished")},
        "output": place,
        **({"error": errors[0]} if errors else {}),
    }
    while len(text := json.dumps({**whole, "results": rows}).encode()) > SUMMARY_BYTES and rows:
        rows.pop()
    return text.decode()


def _row(run: Json) -> Json:
    """A BenchmarkResult."""
    metrics = run["metrics"]
    counts = {name: run[name] for name in ("requests", "failed", "unfinished")}
    numbers = {name: form % metrics[key] for name, key, form in _SHOWN if metrics.get(key) is not None}
    return {"scenario": run["scenario"], "concurrency": run["concurrency"], **counts, **numbers}


def latencies(run: Json, which: str) -> dict[str, float]:
    """Shares of one latency in milliseconds: mean, median, p90, p95, p99 as far as they were measured."""
    assert which in _LATENCIES
    found = {share: run["metrics"].get(f"{share}_{which}_ms") for share in _SHARES}
    return {share: value for share, value in found.items() if value is not None}
