"""Compute error bars of predictions from data/crossvalidated.csv. In this file, each row is predicted with constants that
were fitted without that row.
"""

import csv
import io
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ome_operator.sizing.calibration import Row, shipped, shipped_of
from ome_operator.sizing.queueing import Load, Role
from ome_operator.sizing.steps import ServingStack
from ome_operator.util import package_data

FIGURES = ("ttft", "tpot", "tokens")
NARROW = 8
"""Largest number of GPUs of a worker for which a run has the width `narrow`; runs with larger workers have the width
`wide`."""
DEPLOYMENT, GPU, ENGINE, MODEL = "deployment", "gpu", "engine", "model"
"""The kinds of groups that cross-validation leaves out: all rows of a deployment, of a GPU, of an engine, or of a model
family."""
KINDS = (DEPLOYMENT, GPU, ENGINE, MODEL)
ENOUGH = 8
"""Minimum number of rows for which a class has its own error bars."""
_DATE = re.compile(r"\b20\d\d[-_][01]\d[-_][0-3]\d")


@dataclass(frozen=True)
class Bar:
    """The distribution of the error |predicted / measured - 1| of a figure over several rows."""

    rows: int
    median: float
    ninth: float
    """The error that nine of ten rows do not exceed."""
    worst: float


@dataclass(frozen=True)
class HeldOutPrediction:
    """A row of the cross-validation, predicted with constants that were fitted without the rows of one of its groups, such
    as its deployment.
    """

    id: str
    left_out: str
    ratios: Mapping[str, float]
    """Maps each figure to the predicted value divided by the measured value."""


def class_of_row(row: Row) -> str:
    """Return the class of a run: engine, GPU, precision, width, and `mtp` if multi-token prediction was on. The width is
    `together` for engines that do both prefill and decode, otherwise `narrow` or `wide`.
    """
    place = row.place
    widest = max(role.worker.gpus for role in (row.prefill, row.decode) if role is not None)
    width = "together" if row.together else "narrow" if widest <= NARROW else "wide"
    return f"{place.engine} {place.gpu.name} {place.shape.precision} {width}{' mtp' if row.drafts.tokens else ''}"


@cache
def held_out_predictions() -> tuple[HeldOutPrediction, ...]:
    """Return all predictions of the cross-validation. There are four for each row, made with constants that were fitted
    without the rows of its deployment, of its GPU, of its engine, and of its model family.
    """
    text = package_data.text("ome_operator.sizing", "crossvalidated.csv")
    return tuple(
        HeldOutPrediction(fields["id"], what, {name: float(cell) for name in FIGURES if (cell := fields[f"{what}_{name}"])})
        for fields in csv.DictReader(io.StringIO(text))
        for what in KINDS
    )


def bars(ratios: Iterable[Mapping[str, float]]) -> dict[str, Bar]:
    """Return the error bar of each figure over several rows. `ratios` contains, for each row, a mapping from the figure to
    the predicted value divided by the measured value.
    """
    found: dict[str, list[float]] = {}
    for each in ratios:
        for name, ratio in each.items():
            found.setdefault(name, []).append(abs(ratio - 1))
    return {name: bar(errors) for name, errors in found.items()}


def bar(errors: Sequence[float]) -> Bar:
    """Return the error bar of a list of errors, each of which is |predicted / measured - 1|."""
    ordered = sorted(errors)
    return Bar(
        len(ordered), statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], ordered[-1]
    )


@cache
def by_class() -> Mapping[str, Mapping[str, Bar]]:
    """Return the error bars by class, and in each class by figure. The errors come from the fits that
    left out deployments.
    """
    rows = _rows()
    found: dict[str, list[Mapping[str, float]]] = {}
    for each in held_out_predictions():
        if each.left_out == DEPLOYMENT:
            found.setdefault(class_of_row(rows[each.id]), []).append(each.ratios)
    return {name: bars(ratios) for name, ratios in sorted(found.items())}


@cache
def left_out(grouping: str, together: bool | None = None) -> Mapping[str, Bar]:
    """Return the error bar of each figure over all rows, from the fits that left out the rows of some groups. `grouping` is
    the kind of the groups: DEPLOYMENT, GPU, ENGINE or MODEL. If `together` is true, only rows whose engines do both
    prefill and decode are used; if it is false, only the other rows.
    """
    rows = _rows()
    return bars(
        each.ratios
        for each in held_out_predictions()
        if each.left_out == grouping and together in (None, rows[each.id].together)
    )


@cache
def _rows() -> Mapping[str, Row]:
    return {row.id: row for row in shipped()}


@dataclass(frozen=True)
class Trust:
    """The error bars of a prediction, and the rows from which they are computed."""

    error_bars: Mapping[str, Bar]
    """The error bars by figure. Empty if too few rows are similar to the prediction."""
    basis: str
    """A phrase that describes the rows from which the error bars are computed."""
    extrapolated: str
    """A text that states why no calibration row is similar to the prediction; "" if a row is similar."""
    rows: str = ""
    """A phrase that states the engine versions and the dates of the rows."""


def trust(place: ServingStack, prefill: Role | None, decode: Role | None, load: Load) -> Trust:
    """Return the error bars of the prediction for a deployment with the roles `prefill` and `decode` under the load `load`.

    The error bars are computed from the calibration rows with the same engine, family of GPUs, and mode (prefill and decode
    on the same GPUs or on different GPUs). Each row was predicted by several fits, each without the rows of one group of
    the row. One of these fits determines the error of the row:

    * usually, the fit without the rows of its deployment,
    * if no row has the GPU (or the model) of the prediction, the fit without the rows of its GPU (or model),
    * if no row has a similar layout or load, the fit without its GPU or the fit without its model, whichever has the larger
      error.
    """
    if place.shape.estimated:
        why = f"the family of {place.shape.name} is unknown: its sizes are estimated from its files"
        return Trust({}, f"no rows of this model, and {why}, so the figures are rough, at the rates of the data sheet", why)
    together = prefill is None
    here = [row for row in shipped_of(place.engine, place.gpu.family) if row.together == together]
    mode = "engines that do both prefill and decode" if together else "disaggregation"
    family = f"{place.engine} on {place.gpu.family.capitalize()} GPUs, {mode}"
    if len(here) < ENOUGH:
        return Trust({}, f"only {len(here)} rows of {family}", f"the calibration has too few rows of {family}")
    near = [row for row in here if (row.place.gpu.name, row.place.shape.precision) == _gpu_and_precision(place)]
    kinds, missing = _left_out(place, here)
    unlike = _far(place, (prefill, decode), load, near or here)
    if unlike:
        kinds = (GPU, MODEL)
    chosen = near if not unlike and not missing and len(near) >= ENOUGH else here
    ids = {row.id for row in chosen}
    each_kind = [
        bars(each.ratios for each in held_out_predictions() if each.left_out == what and each.id in ids) for what in kinds
    ]
    found = {name: max((each[name] for each in each_kind), key=lambda bar: bar.ninth) for name in each_kind[0]}
    title = f"{place.engine} {place.gpu.name} {place.shape.precision}, {mode}" if chosen is near else family
    without = "each predicted without the rows of its " + " or of its ".join(_NOUN[what] for what in kinds)
    basis = f"{len(chosen)} rows of {title}, {without}{'; the larger of the two errors is shown' if len(kinds) > 1 else ''}"
    known = {name: each for name, each in found.items() if each.rows >= ENOUGH}
    return Trust(known, basis, missing or unlike, _described(chosen))


_NOUN = {DEPLOYMENT: "deployment", GPU: "GPU", ENGINE: "engine", MODEL: "model"}


def _gpu_and_precision(place: ServingStack) -> tuple[str, str]:
    return place.gpu.name, place.shape.precision


def _left_out(place: ServingStack, here: Sequence[Row]) -> tuple[tuple[str, ...], str]:
    """Return the kinds of groups (DEPLOYMENT, GPU or MODEL) that a fit must have left out so that its errors are
    representative of this prediction. Also return a text that states which rows `here` lacks: rows with the GPU, or rows
    with the model, of the prediction. The text is "" if `here` contains both.
    """
    why = {}
    if place.gpu.name not in {row.place.gpu.name for row in here}:
        why[GPU] = f"on {place.gpu.name.upper()}"
    if place.shape.facts.model_type not in {row.place.shape.facts.model_type for row in here}:
        why[MODEL] = f"with a model like {place.shape.name}"
    if not why:
        return (DEPLOYMENT,), ""
    return tuple(why), f"the calibration has no row of {place.engine} {', and none '.join(why.values())}"


def _described(rows: Sequence[Row]) -> str:
    """Return a phrase with the versions and the dates of the rows, as far as the rows state them."""
    versions = sorted({row.place.version for row in rows if row.place.version}, key=version_key)
    dates = sorted({found[0].replace("_", "-") for row in rows if (found := _DATE.search(f"{row.id} {row.source}"))})
    when = f"published {_span(dates)}" if dates else "without a date"
    return f"{_span(versions)}, {when}" if versions else when


def _span(ordered: Sequence[str]) -> str:
    """Return `A to B` for the first and the last of several ordered texts, or the text if both are equal."""
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def _far(place: ServingStack, roles: tuple[Role | None, Role | None], load: Load, rows: Sequence[Row]) -> str:
    """Return a text that states why no row is similar to this layout and load; "" if a row is similar."""
    if place.shape.precision not in {row.place.shape.precision for row in rows}:
        return f"the calibration has no row of {place.engine} on {place.gpu.name.upper()} in {place.shape.precision}"
    for title, role, have in (
        ("prefill", roles[0], [row.prefill for row in rows]),
        ("decode", roles[1], [row.decode for row in rows]),
    ):
        if role is not None and not any(_alike(role, other) for other in have if other):
            return f"the calibration has no row with {title} of {role.worker}"
    if not any(_close(row.isl, load.prompt) and (row.osl == 1 or _close(row.osl, load.answer)) for row in rows):
        return f"the calibration has no row of about {load.prompt:,.0f} tokens in and {load.answer:,.0f} out"
    return ""


def _alike(role: Role, other: Role) -> bool:
    return role.worker.kind == other.worker.kind and 0.5 <= role.worker.gpus / other.worker.gpus <= 2


def _close(mine: float, other: float) -> bool:
    return 0.4 <= mine / other <= 2.5


def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key of an engine version: the numbers in it. Builds without a release number sort before releases."""
    found = re.match(r"v?(\d+(?:\.\d+)+)(.*)", version)
    if found is None:
        return ()
    numbers = tuple(int(part) for part in found[1].split("."))
    candidate = not re.search(r"rc|dev|alpha|beta", found[2])
    return *numbers, int(candidate), *(int(part) for part in re.findall(r"\d+", found[2]))


@cache
def newest_version(engine: str, family: str, together: bool) -> str:
    """Return the newest version of an engine that has rows on a family of GPUs in a mode; "" if there is none. The mode is
    prefill and decode on the same GPUs if `together` is true, and on different GPUs otherwise.
    """
    known = {row.place.version for row in shipped_of(engine, family) if row.together == together}
    return max(known, key=version_key, default="")
