"""Collect the results of all runs from the files of `inside.py`, and create a summary that fits into a termination
message. Pure functions.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.benchmark_pod.inside import CUT
from ome_operator.util.untrusted_json import PARSE_ERRORS
from ome_operator.util.visible import make_visible

Json = dict[str, Any]
SUMMARY_BYTES = 4096
"""Maximum bytes of a termination message. The kubelet cuts off longer messages."""
_MESSAGE_LENGTH = 300
_ARGUMENTS = (
    *("max_concurrency", "random_input_len", "random_output_len", "random_range_ratio", "sharegpt_output_len"),
    "completed",
)
"""Numbers in the benchmark's result that are not metrics, because they are arguments or are counted in this module."""
_LATENCIES = ("ttft", "tpot", "itl", "e2e_latency")
_SHOWN = (
    ("ttft", "median_ttft_ms", "%.1f"),
    ("tpot", "median_tpot_ms", "%.1f"),
    ("tokensPerSecond", "output_throughput", "%.1f"),
    ("accuracy", "accuracy", "%.3f"),
)
_SHARES = ("mean", "median", "p90", "p95", "p99")


def results(plan: Json, raw: Mapping[int, Json]) -> Json:
    """Return the content of results.json. `raw` maps the number of a run to its outcome; runs that the container did not
    finish are missing.
    """
    missing: Json = {"error": "the container exited before this run ended"}
    runs = [_run(run, raw.get(number, missing)) for number, run in enumerate(plan["runs"])]
    return {"name": plan["name"], "target": plan["target"], "service": plan["service"], "runs": runs}


def _run(run: Json, outcome: Any) -> Json:
    """Return the counts, errors and metrics of one run. `outcome` is untrusted, because a user chooses the image of the
    benchmark.
    """
    try:
        return _read(run, outcome)
    except PARSE_ERRORS as error:
        problem = f"the result of this run cannot be read: {type(error).__name__}: {error}"
        return _read(run, {"error": problem})


def _read(run: Json, outcome: Any) -> Json:
    shared: Json = {"scenario": run["scenario"], "concurrency": run["concurrency"]}
    result = outcome.get("result")
    if result is None:
        errors_of_run = _errors([str(outcome["error"])])
        return {**shared, "requests": 0, "failed": 1, "unfinished": 0, "errors": errors_of_run, "metrics": {}}
    if run["program"] == "gsm8k":
        metrics = {name: value for name, value in result.items() if name != "questions" and _measured(value)}
        return {
            **shared,
            "requests": _count(result["questions"]),
            "failed": 0,
            "unfinished": 0,
            "errors": [],
            "metrics": metrics,
        }
    errors = [str(error) for error in result["errors"] if error and error != CUT]
    if not result["completed"] and not errors:
        errors = ["no request was completed within spec.maxTimePerIteration"]
    return {
        **shared,
        "requests": _count(result["completed"]),
        "failed": len(errors),
        "unfinished": result["errors"].count(CUT),
        "errors": _errors(errors),
        "metrics": {name: value for name, value in result.items() if name not in _ARGUMENTS and _measured(value)},
    }


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError("a count is not a whole number")
    return value


def _measured(value: Any) -> bool:
    """Return whether the value is a number that JSON can represent."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _errors(messages: Iterable[str]) -> list[Json]:
    """Return the most frequent errors first. Each error is represented by its last line, the most informative line of a
    traceback.
    """
    lines = Counter(
        make_visible(([line.strip() for line in message.splitlines() if line.strip()] or [""])[-1][:_MESSAGE_LENGTH])[
            :_MESSAGE_LENGTH
        ]
        for message in messages
    )
    return [{"error": line, "count": count} for line, count in lines.most_common(5)]


def has_failed(found: Json) -> bool:
    """Return whether a request or a run failed."""
    return any(run["failed"] for run in found["runs"])


def summary(found: Json, place: str) -> str:
    """Return the BenchmarkReport as JSON. If the JSON is longer than SUMMARY_BYTES, the last runs are left out. If this
    does not suffice, the longest texts are shortened. `place` is the location of the complete results.
    """
    rows = [_row(run) for run in found["runs"]]
    best = max(found["runs"], key=lambda run: run["metrics"].get("output_throughput") or 0.0)
    errors = [run["errors"][0]["error"] for run in found["runs"] if run["errors"]]
    totals: Json = {
        **_row(best),
        **{name: sum(run[name] for run in found["runs"]) for name in ("requests", "failed", "unfinished")},
        "output": place,
        **({"error": errors[0]} if errors else {}),
    }
    while len(text := json.dumps({**totals, "results": rows}).encode()) > SUMMARY_BYTES:
        if rows:
            rows.pop()
        else:
            longest = max(("output", "error", "scenario"), key=lambda name: len(json.dumps(totals.get(name, ""))))
            totals[longest] = f"{totals[longest][: len(totals[longest]) // 2]}…"
    return text.decode()


def _row(run: Json) -> Json:
    """Return a run as a BenchmarkResult."""
    metrics = run["metrics"]
    counts = {name: run[name] for name in ("requests", "failed", "unfinished")}
    numbers = {name: form % metrics[key] for name, key, form in _SHOWN if metrics.get(key) is not None}
    return {"scenario": run["scenario"], "concurrency": run["concurrency"], **counts, **numbers}


def latencies(run: Json, which: str) -> dict[str, float]:
    """Return the measured statistics of one latency in milliseconds: mean, median, p90, p95 and p99."""
    assert which in _LATENCIES
    shares = {share: run["metrics"].get(f"{share}_{which}_ms") for share in _SHARES}
    return {share: value for share, value in shares.items() if value is not None}
