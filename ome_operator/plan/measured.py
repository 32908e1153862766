"""Rows of a calibration file from a finished BenchmarkJob, as `kubectl get benchmarkjob NAME -o yaml` shows it."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator.plan.refused import RefusedError
from ome_operator.plan.rows import COLUMNS

_FIXED = re.compile(r"D\((\d+),(\d+)\)")
_NORMAL = re.compile(r"N\((\d+),\d+\)/\((\d+),\d+\)")
_EVEN = re.compile(r"U\((\d+),(\d+)\)/\((\d+),(\d+)\)")
MEDIANS = "medians of a BenchmarkJob, lengths are means"


def rows(job: Any, layout: Mapping[str, str]) -> list[dict[str, str]]:
    """A row for each run. `layout`: columns that no BenchmarkJob knows: model, engine, gpu, precision, prefill, decode."""
    if not isinstance(job, Mapping) or job.get("kind") != "BenchmarkJob":
        raise RefusedError("This is no BenchmarkJob: kubectl get benchmarkjob NAME -o yaml shows it.")
    status = _map(job.get("status"))
    if status.get("state") != "Completed":
        raise RefusedError(f"The BenchmarkJob is {status.get('state') or 'not begun'}: only what has ended can be compared.")
    name = str(_map(job.get("metadata")).get("name") or "job")
    report = _map(status.get("report"))
    results = report.get("results") or [report]
    found = list(_rows(name, results if isinstance(results, list) else [], layout))
    if not found:
        raise RefusedError(f"No run of {name} has lengths, a TTFT and a TPOT: nothing of it can be compared.")
    return found


def _map(value: Any) -> Mapping[str, Any]:
    """What is no map has no fields."""
    return value if isinstance(value, Mapping) else {}


def _rows(name: str, results: list[Any], layout: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for result in (result for result in results if isinstance(result, Mapping)):
        scenario = str(result.get("scenario", "")).replace(" ", "")
        lengths = _lengths(scenario)
        if lengths is None or not result.get("ttft") or not result.get("tpot") or not result.get("concurrency"):
            continue
        yield dict.fromkeys(COLUMNS, "") | {
            "id": f"{name}_{scenario.replace(',', 'x').replace('/', '_')}_c{result['concurrency']}",
            "source": f"BenchmarkJob {name}",
            **layout,
            "isl": f"{lengths[0]:g}",
            "osl": f"{lengths[1]:g}",
            "concurrency": str(result["concurrency"]),
            "ttft_ms": str(result["ttft"]),
            "tpot_ms": str(result["tpot"]),
            "kind": MEDIANS,
        }


def _lengths(scenario: str) -> tuple[float, float] | None:
    """Mean tokens in and out; None for traffic that does not say them."""
    if found := _FIXED.fullmatch(scenario) or _NORMAL.fullmatch(scenario):
        return float(found[1]), float(found[2])
    if found := _EVEN.fullmatch(scenario):
        return (float(found[1]) + float(found[2])) / 2, (float(found[3]) + float(found[4])) / 2
    return None


def table(found: list[dict[str, str]]) -> str:
    """The rows as a calibration file."""
    out = io.StringIO()
    written = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    written.writeheader()
    written.writerows(found)
    return out.getvalue()
