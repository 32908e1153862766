"""Rows of a calibration file from a finished BenchmarkJob, and beside the rows of other runs."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator.sizing.refused import PlanRefused
from ome_operator.sizing.rows import COLUMNS, Row, read
from ome_operator.sizing.workers import workers

_FIXED = re.compile(r"D\((\d+),(\d+)\)")
_NORMAL = re.compile(r"N\((\d+),\d+\)/\((\d+),\d+\)")
_EVEN = re.compile(r"U\((\d+),(\d+)\)/\((\d+),(\d+)\)")
_PREFIX = re.compile(r"P\((\d+),(\d+)\)/(\d+)")
MEDIANS = "medians of a BenchmarkJob, lengths are means"


def rows(job: Any, said: Mapping[str, str]) -> list[dict[str, str]]:
    """A row for each run. `said`: columns that people say: model, engine, gpu, precision, prefill, decode, hit.

    An engine and a GPU that nobody says are those of the job's serviceMetadata.
    """
    if not isinstance(job, Mapping) or job.get("kind") != "BenchmarkJob":
        raise PlanRefused("This is no BenchmarkJob: kubectl get benchmarkjob NAME -o yaml shows it.")
    status, metadata = _map(job.get("status")), _map(_map(job.get("spec")).get("serviceMetadata"))
    if status.get("state") != "Completed":
        raise PlanRefused(f"The BenchmarkJob is {status.get('state') or 'not begun'}: only what has ended can be compared.")
    name = str(_map(job.get("metadata")).get("name") or "job")
    layout = {
        **said,
        "engine": said.get("engine") or str(metadata.get("engine") or "sglang").lower(),
        "gpu": said.get("gpu") or str(metadata.get("gpuType") or ""),
        "version": str(metadata.get("version") or ""),
    }
    if not layout["gpu"]:
        raise PlanRefused(f"{name} does not say its GPUs (spec.serviceMetadata.gpuType): --hardware does.")
    report = _map(status.get("report"))
    results = report.get("results") or [report]
    found = list(_rows(name, results if isinstance(results, list) else [], layout))
    if not found:
        raise PlanRefused(f"No run of {name} has lengths, a TTFT and a TPOT: nothing of it can be compared.")
    return found


def _map(value: Any) -> Mapping[str, Any]:
    """What is no map has no fields."""
    return value if isinstance(value, Mapping) else {}


def _rows(name: str, results: list[Any], layout: Mapping[str, str]) -> Iterator[dict[str, str]]:
    copies, worker = workers(layout["decode"])
    gpus = copies * worker.gpus
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
            "out_tps_per_decode_gpu": _each(result.get("tokensPerSecond"), gpus),
            "kind": MEDIANS,
        }


def _each(tokens: Any, gpus: int) -> str:
    """Tokens a second of a GPU; "" for what is no number."""
    try:
        return f"{float(tokens) / gpus:g}"
    except (TypeError, ValueError):
        return ""


def _lengths(scenario: str) -> tuple[float, float] | None:
    """Mean tokens in and out; None for traffic that does not say them."""
    if found := _FIXED.fullmatch(scenario) or _NORMAL.fullmatch(scenario):
        return float(found[1]), float(found[2])
    if found := _EVEN.fullmatch(scenario):
        return (float(found[1]) + float(found[2])) / 2, (float(found[3]) + float(found[4])) / 2
    if found := _PREFIX.fullmatch(scenario):
        return float(found[1]) + float(found[2]), float(found[3])
    return None


def table(found: Iterable[Mapping[str, str]]) -> str:
    """The rows as a calibration file."""
    out = io.StringIO()
    written = csv.DictWriter(out, COLUMNS, lineterminator="\n", extrasaction="ignore")
    written.writeheader()
    written.writerows(found)
    return out.getvalue()


class Merged(NamedTuple):
    """A calibration file with new rows."""

    text: str
    others: list[Row | tuple[str, str]]
    """The rows that were there and are not replaced."""


def merged(old: str, new: list[dict[str, str]]) -> Merged:
    """The rows of a file, and behind them new rows in place of those with their ids; PlanRefused where it is none."""
    ids = {row["id"] for row in new}
    others = [each for each in read(old, "--calibration") if (each.id if isinstance(each, Row) else each[0]) not in ids]
    kept = [row for row in csv.DictReader(io.StringIO(old, newline="")) if (row.get("id") or "").strip() not in ids]
    return Merged(table([*kept, *new]), others)
