"""Read calibration files: CSV files in which each row is a measured run of a deployment."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ome_operator import quantity
from ome_operator.sizing import gpus, shapes
from ome_operator.sizing.errors import PlanRefused, nearest
from ome_operator.sizing.queueing import NO_DRAFTS, Drafts, Load, Role, expected_drafts
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker, is_mislabelled, workers
from ome_operator.sizing.workloads import parse_hit_rate
from ome_operator.util import package_data

COLUMNS = (
    "id", "source", "model", "engine", "version", "gpu", "precision", "isl", "osl", "mtp", "prefill", "p_gpus", "decode",
    "d_gpus", "concurrency", "ttft_ms", "tpot_ms", "total_tps_per_gpu", "out_tps_per_decode_gpu", "in_tps_per_prefill_gpu",
    "kind", "note", "hit",
)  # fmt: skip
"""Columns of a calibration file. `hit` is the fraction of the prompt tokens that the prefix cache held; it is 0 without a
prefix cache."""
OPTIONAL = ("note", "kind", "source", "hit")
"""Columns that a file may omit."""
DERIVED_LENGTH = 0.9
"""Mean length of the requests in rows of kind `tps derived`, as a fraction of the nominal length. The lengths of these
requests are drawn between 0.8 and 1 of the nominal length."""
_LEAST, _MOST = 1e-6, 1e9
MOST_DRAFTS = 16
"""Largest number of draft tokens of a step. Engines use at most 8."""
ENGINES = ("sglang", "trtllm", "vllm")
"""Engines for which the shipped calibration file contains rows."""
_SAME = {
    **dict.fromkeys(
        ("tensorrt-llm", "tensorrt_llm", "tensorrtllm", "trt-llm", "trt", "dynamo-trt", "dynamo-trtllm"), "trtllm"
    ),
    "dynamo-sglang": "sglang",
    "dynamo-vllm": "vllm",
}
_PRECISIONS = {
    "nvfp4": "fp4",
    **dict.fromkeys(("w4a16", "w4a8", "awq", "gptq"), "int4"),
    **dict.fromkeys(("fp16", "bfloat16", "float16"), "bf16"),
}
"""Maps other names of precisions to the supported precision whose weights have the same size. A GPU that lacks a precision
computes in the next wider precision that it supports."""
_NO_DRAFTS = frozenset({"", "?", "no", "off", "none", "false", "0", "-"})
"""Values of the column `mtp` that do not state that multi-token prediction was on."""


@dataclass(frozen=True)
class Row:
    """A measured run of a deployment, with the deployment's layout and the measured figures. A field is None if the row
    has no value for it.
    """

    id: str
    source: str
    """The publication or benchmark that states the figures of the run, as text."""
    place: ServingStack
    isl: float
    osl: float
    share: float
    """Mean length of the requests as a fraction of the nominal lengths `isl` and `osl`."""
    hit: float
    """Fraction of the prompt tokens that the prefix cache held."""
    drafts: Drafts
    """Speculative decoding of the run. The number of draft tokens is 0 if the row does not state that speculative
    decoding was on, and 1 if the row states no number."""
    prefill: Role | None
    decode: Role | None
    concurrency: float | None
    ttft: float | None
    """Measured time to first token, in seconds."""
    tpot: float | None
    """Measured time per output token, in seconds."""
    read: float | None
    """Measured prompt tokens per second for each prefill GPU."""
    written: float | None
    """Measured output tokens per second for each decode GPU."""

    @property
    def load(self) -> Load:
        """The mean lengths of the requests, in tokens."""
        return Load(self.isl * self.share, self.osl * self.share, self.hit)

    @property
    def group(self) -> str:
        """The id of the row's deployment. Cross-validation leaves out all rows of a deployment together."""
        if self.together and self.decode:
            place, model = self.place, self.place.shape.facts
            title = f"{place.engine} {place.gpu.name} {model.model_type} {model.parameters} {place.shape.precision}"
            return f"{title} {self.decode.worker}"
        return self.id.rsplit("_", 1)[-1] if "_cfg" in self.id else self.id

    @property
    def together(self) -> bool:
        """Whether the engines of the row do both prefill and decode."""
        return self.prefill is None and self.decode is not None and self.ttft is not None


def engine(name: str) -> str:
    """Return the name of an engine as it is used in the fitted constants, for example `trtllm` for `TensorRT-LLM`. Raises
    PlanRefused for an unknown engine.
    """
    low = name.strip().lower()
    found = _SAME.get(low, low)
    if low and found not in ENGINES:
        raise PlanRefused(f"No data for the engine {name}: {nearest(low, ENGINES)}.")
    return found


@cache
def shipped() -> tuple[Row, ...]:
    """Return the rows of the shipped calibration file, on which the constants are fitted."""
    return _shipped_rows(lambda fields: True)


@cache
def shipped_of(engine_name: str, family: str) -> tuple[Row, ...]:
    """Return the rows of `shipped` with this engine and this family of GPUs. A plan computes its error bars from them. Only
    these rows are converted to Row objects, because the conversion of all rows takes longer than the rest of the
    computation.
    """
    return _shipped_rows(lambda fields: (engine(fields["engine"]), gpus.gpu(fields["gpu"]).family) == (engine_name, family))


Fields = Mapping[str, str]
"""A line of a calibration file: name of a column -> text of the cell."""
Models = Callable[[str, str], shapes.Shape]
"""A function from the name of a model and a precision to the model's sizes."""


def _shipped_rows(wanted: Callable[[Fields], bool]) -> tuple[Row, ...]:
    text = package_data.text("ome_operator.sizing", "calibration.csv")
    return tuple(row for row in read(text, "calibration.csv", wanted=wanted) if isinstance(row, Row))


def read(
    text: str, name: str, models: Models = shapes.shape, wanted: Callable[[Fields], bool] = lambda fields: True
) -> Iterator[Row | tuple[str, str]]:
    """Yield each row of a calibration file. For a row that cannot be used, yield its id and the reason.

    Raises PlanRefused if the text is not CSV or lacks a required column. `name` is the name of the file for the message.
    `models` finds the models that rows name. Lines for which `wanted` returns false are skipped.
    """
    lines = csv.reader(io.StringIO(text, newline=""), strict=False)
    try:
        head = [word.strip() for word in next(lines, [])]
        if missing := [column for column in COLUMNS if column not in {*head, *OPTIONAL}]:
            raise PlanRefused(f"{name} lacks the columns {', '.join(missing)}, so it is not a calibration file: add them.")
        empty = dict.fromkeys(COLUMNS, "")
        for number, cells in enumerate(lines, 2):
            fields = empty | dict(zip(head, map(str.strip, cells), strict=False))
            if not any(fields.values()):
                continue
            title = fields["id"] or f"line {number}"
            try:
                if wanted(fields):
                    yield row(fields | {"id": title}, models)
            except PlanRefused as error:
                yield title, str(error)
    except csv.Error as error:
        raise PlanRefused(f"{name} cannot be read as CSV: {error}.") from error


def row(fields: Fields, models: Models = shapes.shape) -> Row:
    """Return the row of a calibration file. `fields` maps the name of each column to the text of the row's cell. Raises
    PlanRefused with the reason if the row cannot be used.
    """
    precision = fields["precision"].lower()
    precision = _PRECISIONS.get(precision, precision)
    if precision == "fp4" and models(fields["model"], "").precision == "mxfp4":
        precision = "mxfp4"  # published runs use the name FP4 for both MXFP4 and NVFP4
    place = ServingStack(
        models(fields["model"], precision), gpus.gpu(fields["gpu"]), engine(fields["engine"]), fields["version"]
    )
    prefill, decode = _role(fields, "prefill", "p_gpus"), _role(fields, "decode", "d_gpus")
    if is_mislabelled(fields["decode"]) or is_mislabelled(fields["prefill"]):
        prefill, decode = _with_whole_experts(prefill), _with_whole_experts(decode)
    found = Row(
        id=fields["id"],
        source=fields["source"],
        place=place,
        isl=_needed(fields, "isl"),
        osl=_needed(fields, "osl"),
        share=DERIVED_LENGTH if "derived" in fields["kind"] else 1.0,
        hit=_hit(fields["hit"]),
        drafts=_drafts(fields["mtp"].lower()),
        prefill=prefill,
        decode=decode,
        concurrency=_number(fields, "concurrency"),
        ttft=_scaled(fields, "ttft_ms"),
        tpot=_scaled(fields, "tpot_ms"),
        read=_number(fields, "in_tps_per_prefill_gpu"),
        written=_number(fields, "out_tps_per_decode_gpu"),
    )
    if not found.place.engine:
        raise PlanRefused("The row has no engine.")
    if found.prefill is None and found.decode is None:
        raise PlanRefused("The row has no layout: fill in the layout of prefill or of decode.")
    if found.prefill and found.decode and found.concurrency is None:
        raise PlanRefused(
            "The row has no concurrency, from which the model computes a steady state: fill in the concurrency."
        )
    return found


def _drafts(text: str) -> Drafts:
    """Return the speculative decoding that the column `mtp` of a row states. A text in `_NO_DRAFTS` means that there is
    none. A number up to MOST_DRAFTS is the number of draft tokens per step. Any other text means one draft token per step.
    """
    if text in _NO_DRAFTS:
        return NO_DRAFTS
    drafts = quantity.whole_number(text)
    return expected_drafts(drafts if drafts is not None and drafts <= MOST_DRAFTS else 1)


def _with_whole_experts(role: Role | None) -> Role | None:
    """Return the role with complete experts on each rank; None if there is no role.

    Some rows are labeled as if experts were divided among more GPUs than an engine supports. If the label of a role is
    wrong, the label of the other role in the same row is wrong too.
    """
    if role is None or role.worker.kind != "dtp":
        return role
    return Role(role.copies, Worker(1, role.worker.dp, role.worker.dp))


def _role(fields: Fields, column: str, count: str) -> Role | None:
    if not fields[column]:
        return None
    role = Role(*workers(fields[column]))
    counted = _number(fields, count)
    if counted is not None and counted != role.gpus:
        raise PlanRefused(
            f"{column} {fields[column]} has {role.gpus} GPUs, but {count} is {counted:g}: correct one of the two."
        )
    return role


def _hit(text: str) -> float:
    try:
        return parse_hit_rate(float(text or 0))
    except ValueError:
        raise PlanRefused(f"hit is {text!r}, which is not a number: write a number from 0 to below 1.") from None


def _needed(fields: Fields, column: str) -> float:
    found = _number(fields, column)
    if found is None:
        raise PlanRefused(f"{column} is empty.")
    return found


def _scaled(fields: Fields, column: str) -> float | None:
    found = _number(fields, column)
    return None if found is None else found / 1000


def _number(fields: Fields, column: str) -> float | None:
    text = fields[column]
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        raise PlanRefused(f"{column} is {text[:80]!r}, which is not a number: write a number.") from None
    if not (math.isfinite(found) and 0 < found < _MOST):
        raise PlanRefused(f"{column} is {text[:80]}, and must be above 0 and below a billion.")
    if found < _LEAST:
        raise PlanRefused(f"{column} is {text[:80]}, which is below {_LEAST:g}: check its unit.")
    return found
