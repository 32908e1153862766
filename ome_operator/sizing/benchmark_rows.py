"""Turn a completed BenchmarkJob into rows of a calibration file, and merge them with the rows of other runs."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator.sizing.calibration import COLUMNS, Row, read
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.workers import workers

_FIXED = re.compile(r"D\((\d+),(\d+)\)")
_NORMAL = re.compile(r"N\((\d+),\d+\)/\((\d+),\d+\)")
_EVEN = re.compile(r"U\((\d+),(\d+)\)/\((\d+),(\d+)\)")
_PREFIX = re.compile(r"P\((\d+),(\d+)\)/(\d+)")
_PLAIN = re.compile(r"^[-=+@\s]++|[^\w .,:()/+-]")
"""Matches the characters that are removed from a cell. The author of a BenchmarkJob chooses the content of some cells, and a
spreadsheet program evaluates a cell as a formula if it begins with a character such as `=`."""
MEDIANS = "TTFT and TPOT are medians of a BenchmarkJob run; the request lengths are means"
"""Value of the column `kind` in the rows of a BenchmarkJob. It states which figures of a row are medians and which are
means."""


def rows(job: Any, given: Mapping[str, str]) -> list[dict[str, str]]:
    """Return a calibration row for each run of a BenchmarkJob.

    `given` holds the columns that the job does not have: model, engine, gpu, precision, prefill, decode, hit. If engine or
    gpu is missing there, the values of the job's serviceMetadata are used. Raises PlanRefused if the object is not a
    completed BenchmarkJob or has no usable run.
    """
    if not isinstance(job, Mapping) or job.get("kind") != "BenchmarkJob":
        raise PlanRefused("The file is not a BenchmarkJob: create it with kubectl get benchmarkjob NAME -o yaml.")
    status, metadata = _map(job.get("status")), _map(_map(job.get("spec")).get("serviceMetadata"))
    if status.get("state") != "Completed":
        raise PlanRefused(
            f"The BenchmarkJob is {status.get('state') or 'not started'}, but only a completed job can be compared: wait "
            "until it is completed."
        )
    name = str(_map(job.get("metadata")).get("name") or "job")
    layout = {
        **given,
        "engine": given.get("engine") or str(metadata.get("engine") or "sglang").lower(),
        "gpu": given.get("gpu") or str(metadata.get("gpuType") or ""),
        "version": str(metadata.get("version") or ""),
    }
    layout = {column: _PLAIN.sub("", text) for column, text in layout.items()}
    if not layout["gpu"]:
        raise PlanRefused(f"{name} does not name its GPUs in spec.serviceMetadata.gpuType: pass --hardware.")
    report = _map(status.get("report"))
    results = report.get("results") or [report]
    found = list(_rows(name, results if isinstance(results, list) else [], layout))
    if not found:
        raise PlanRefused(
            f"No run of {name} has all of lengths, TTFT, TPOT and concurrency, so no run can be compared with a prediction."
        )
    return found


def _map(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, otherwise an empty mapping."""
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
            "id": f"{name}_{scenario.replace(',', 'x').replace('/', '_')}_c{_figure(result['concurrency'])}",
            "source": f"BenchmarkJob {name}",
            **layout,
            "isl": f"{lengths[0]:g}",
            "osl": f"{lengths[1]:g}",
            "concurrency": _figure(result["concurrency"]),
            "ttft_ms": _figure(result["ttft"]),
            "tpot_ms": _figure(result["tpot"]),
            "out_tps_per_decode_gpu": _each(result.get("tokensPerSecond"), gpus),
            "kind": MEDIANS,
        }


def _figure(value: Any) -> str:
    """Return a figure of a report as text; "" if the figure is not a positive number."""
    try:
        return str(value).strip().lstrip("+") if float(value) > 0 else ""
    except (TypeError, ValueError):
        return ""


def _each(tokens: Any, gpus: int) -> str:
    """Return the tokens per second of a single GPU, as text; "" if `tokens` is not a number. `tokens` are the tokens per
    second of all `gpus` GPUs together.
    """
    try:
        return f"{float(tokens) / gpus:g}"
    except (TypeError, ValueError):
        return ""


def _lengths(scenario: str) -> tuple[float, float] | None:
    """Return the mean numbers of input and output tokens of a traffic scenario such as `D(2000,100)`; None if the text of
    the scenario contains no lengths.
    """
    if found := _FIXED.fullmatch(scenario) or _NORMAL.fullmatch(scenario):
        return float(found[1]), float(found[2])
    if found := _EVEN.fullmatch(scenario):
        return (float(found[1]) + float(found[2])) / 2, (float(found[3]) + float(found[4])) / 2
    if found := _PREFIX.fullmatch(scenario):
        return float(found[1]) + float(found[2]), float(found[3])
    return None


def table(found: Iterable[Mapping[str, str]]) -> str:
    """Return the rows as the text of a calibration file."""
    out = io.StringIO()
    written = csv.DictWriter(out, COLUMNS, lineterminator="\n", extrasaction="ignore")
    written.writeheader()
    written.writerows(found)
    return out.getvalue()


class MergedCalibration(NamedTuple):
    """A calibration file into which new rows were merged."""

    text: str
    others: list[Row | tuple[str, str]]
    """The old rows that were kept. A row that cannot be used is represented by its id and the reason."""


def merge_rows(old: str, new: list[dict[str, str]]) -> MergedCalibration:
    """Return the old file with the new rows appended; an old row with the id of a new row is removed. Raises PlanRefused
    if `old` is not a calibration file.
    """
    ids = {row["id"] for row in new}
    others = [each for each in read(old, "--calibration") if (each.id if isinstance(each, Row) else each[0]) not in ids]
    kept = [row for row in csv.DictReader(io.StringIO(old, newline="")) if (row.get("id") or "").strip() not in ids]
    return MergedCalibration(table([*kept, *new]), others)
