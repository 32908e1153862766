"""Rows of a calibration file: a published run each."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ome_operator.sizing import gpus, shapes
from ome_operator.sizing.loop import Load, Role
from ome_operator.sizing.refused import PlanRefused
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker, mislabelled, workers
from ome_operator.sizing.workloads import hit
from ome_operator.util import package_data

COLUMNS = (
    "id", "source", "model", "engine", "version", "gpu", "precision", "isl", "osl", "mtp", "prefill", "p_gpus", "decode",
    "d_gpus", "concurrency", "ttft_ms", "tpot_ms", "total_tps_per_gpu", "out_tps_per_decode_gpu", "in_tps_per_prefill_gpu",
    "kind", "note", "hit",
)  # fmt: skip
"""`hit`: the share of prompts that a cache of prefixes had, 0 without it."""
OPTIONAL = ("note", "kind", "source", "hit")
"""Columns that a file may lack."""
LITTLE = 0.9
"""Lengths of rows `tps derived` are drawn between 0.8 and 1 of their nominal length: the mean is this."""
_MOST = 1e9
ENGINES = ("sglang", "trtllm")
"""Engines with rows."""
_SAME = {
    **dict.fromkeys(
        ("tensorrt-llm", "tensorrt_llm", "tensorrtllm", "trt-llm", "trt", "dynamo-trt", "dynamo-trtllm"), "trtllm"
    ),
    "dynamo-sglang": "sglang",
    "dynamo-vllm": "vllm",
}
_PRECISIONS = {
    **dict.fromkeys(("nvfp4", "mxfp4", "int4", "w4a16", "w4a8"), "fp4"),
    **dict.fromkeys(("fp16", "bfloat16", "float16"), "bf16"),
}
"""Other words -> the precision whose weights are as large; a GPU computes in the next wider that it has."""
_NO_DRAFTS = frozenset({"", "?", "no", "off", "none", "false", "0", "-"})
"""Words of `mtp` that do not say that drafts were on."""


@dataclass(frozen=True)
class Row:
    """What was run and measured; None for what a row does not have."""

    id: str
    place: ServingStack
    isl: float
    osl: float
    share: float
    """Of the nominal lengths."""
    hit: float
    """Share of prompts that a cache of prefixes had."""
    mtp: bool
    """Whether drafts are known to have been on."""
    prefill: Role | None
    decode: Role | None
    concurrency: float | None
    ttft: float | None
    """Seconds."""
    tpot: float | None
    """Seconds."""
    read: float | None
    """Tokens of prompts a second on each prefill GPU."""
    written: float | None
    """Tokens of answers a second on each decode GPU."""

    @property
    def load(self) -> Load:
        """The mean lengths."""
        return Load(self.isl * self.share, self.osl * self.share, self.hit)

    @property
    def group(self) -> str:
        """What has to be left out together: runs of the same deployment."""
        return self.id.rsplit("_", 1)[-1] if "_cfg" in self.id else self.id


def engine(name: str) -> str:
    """The name of an engine as the fit has it."""
    low = name.strip().lower()
    return _SAME.get(low, low)


@cache
def shipped() -> tuple[Row, ...]:
    """The rows that the constants are fitted on. Every answer asks for them, to say how far it may be off."""
    text = package_data.text("ome_operator.sizing", "calibration.csv")
    return tuple(row for row in read(text, "calibration.csv") if isinstance(row, Row))


def read(text: str, name: str) -> Iterator[Row | tuple[str, str]]:
    """Every row of a file, or its id and the sentence that says why it is none."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=False)
    try:
        head = [word.strip() for word in next(lines, [])]
        if missing := [column for column in COLUMNS if column not in {*head, *OPTIONAL}]:
            raise PlanRefused(f"{name} has no column {', '.join(missing)}: it is no calibration file.")
        for number, cells in enumerate(lines, 2):
            if not any(cell.strip() for cell in cells):
                continue
            said = dict(zip(head, (cell.strip() for cell in cells), strict=False))
            title = said.get("id") or f"line {number}"
            try:
                yield row({column: said.get(column, "") for column in COLUMNS} | {"id": title})
            except PlanRefused as error:
                yield title, str(error)
    except csv.Error as error:
        raise PlanRefused(f"{name} cannot be read as CSV: {error}.") from error


def row(said: Mapping[str, str]) -> Row:
    """A row from its cells."""
    precision = said["precision"].lower()
    precision = _PRECISIONS.get(precision, precision)
    place = ServingStack(
        shapes.shape(said["model"], precision), gpus.gpu(said["gpu"]), engine(said["engine"]), said["version"]
    )
    prefill, decode = _role(said, "prefill", "p_gpus"), _role(said, "decode", "d_gpus")
    if mislabelled(said["decode"]) or mislabelled(said["prefill"]):
        prefill, decode = _whole(prefill), _whole(decode)
    found = Row(
        id=said["id"],
        place=place,
        isl=_needed(said, "isl"),
        osl=_needed(said, "osl"),
        share=LITTLE if "derived" in said["kind"] else 1.0,
        hit=_hit(said["hit"]),
        mtp=said["mtp"].lower() not in _NO_DRAFTS,
        prefill=prefill,
        decode=decode,
        concurrency=_number(said, "concurrency"),
        ttft=_scaled(said, "ttft_ms"),
        tpot=_scaled(said, "tpot_ms"),
        read=_number(said, "in_tps_per_prefill_gpu"),
        written=_number(said, "out_tps_per_decode_gpu"),
    )
    if not found.place.engine:
        raise PlanRefused("The row names no engine.")
    if found.prefill is None and found.decode is None:
        raise PlanRefused("The row names no layout, neither of prefill nor of decode.")
    if found.prefill and found.decode and found.concurrency is None:
        raise PlanRefused("The row names no concurrency, without which a closed loop has no state.")
    return found


def _whole(role: Role | None) -> Role | None:
    """Ranks with whole experts, in a row that calls them cut: it does so in both roles."""
    if role is None or role.worker.kind != "dtp":
        return role
    return Role(role.copies, Worker(1, role.worker.dp, role.worker.dp))


def _role(said: Mapping[str, str], column: str, count: str) -> Role | None:
    if not said[column]:
        return None
    role = Role(*workers(said[column]))
    counted = _number(said, count)
    if counted is not None and counted != role.gpus:
        raise PlanRefused(f"{column} {said[column]} has {role.gpus} GPUs, and {count} says {counted:g}.")
    return role


def _hit(text: str) -> float:
    try:
        return hit(float(text or 0))
    except ValueError:
        raise PlanRefused(f"hit is {text!r}, which is no number.") from None


def _needed(said: Mapping[str, str], column: str) -> float:
    found = _number(said, column)
    if found is None:
        raise PlanRefused(f"{column} is empty.")
    return found


def _scaled(said: Mapping[str, str], column: str) -> float | None:
    found = _number(said, column)
    return None if found is None else found / 1000


def _number(said: Mapping[str, str], column: str) -> float | None:
    text = said[column]
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        raise PlanRefused(f"{column} is {text!r}, which is no number.") from None
    if not (math.isfinite(found) and 0 < found < _MOST):
        raise PlanRefused(f"{column} is {text}, and has to be above 0 and below a billion.")
    return found
