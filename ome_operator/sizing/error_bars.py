"""Compute error bars of predictions from data/crossvalidated.csv. In this file, each row is predicted with constants that
were fitted without that row.
"""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ome_operator.sizing.calibration import Row, shipped
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
ENOUGH = 8
"""Minimum number of rows for which a class has its own error bars."""


@dataclass(frozen=True)
class Bar:
    """The distribution of the error |predicted / measured - 1| of a figure over several rows."""

    rows: int
    median: float
    ninth: float
    """The error that nine of ten rows do not exceed."""
    worst: float


@dataclass(frozen=True)
class Held:
    """A row of the cross-validation, predicted with constants that were fitted without this row."""

    id: str
    left_out: str
    ratios: Mapping[str, float]
    """Name of a figure -> predicted value / measured value."""


def class_of(place: ServingStack, roles: Iterable[Role | None], mtp: bool = False) -> str:
    """Return the class of a run: engine, GPU, precision, width (narrow or wide), and `mtp` if multi-token prediction was
    on.
    """
    widest = max(role.worker.gpus for role in roles if role is not None)
    width = "narrow" if widest <= NARROW else "wide"
    return f"{place.engine} {place.gpu.name} {place.shape.precision} {width}{' mtp' if mtp else ''}"


@cache
def held() -> tuple[Held, ...]:
    """Return all rows of the cross-validation."""
    text = package_data.text("ome_operator.sizing", "crossvalidated.csv")
    return tuple(
        Held(said["id"], said["left_out"], {name: float(said[name]) for name in FIGURES if said[name]})
        for said in csv.DictReader(io.StringIO(text))
    )


def bars(ratios: Iterable[Mapping[str, float]]) -> dict[str, Bar]:
    """Return the error bar of each figure over these rows; an item of `ratios` maps a figure to predicted / measured."""
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
    """Return the error bars by class, and in each class by figure. They come from the fits that left out one deployment
    each.
    """
    rows = {row.id: class_of(row.place, (row.prefill, row.decode)) for row in shipped()}
    found: dict[str, list[Mapping[str, float]]] = {}
    for each in held():
        if each.left_out == DEPLOYMENT:
            found.setdefault(rows[each.id], []).append(each.ratios)
    return {name: bars(ratios) for name, ratios in sorted(found.items())}


@cache
def left_out(what: str) -> Mapping[str, Bar]:
    """Return the error bar of each figure over all rows, from the fits that left out the rows of one group. `what` is the
    kind of the groups: DEPLOYMENT, GPU, ENGINE or MODEL.
    """
    return bars(each.ratios for each in held() if each.left_out == what)


@dataclass(frozen=True)
class Trust:
    """The error bars of a prediction, and the rows from which they are computed."""

    bars: Mapping[str, Bar]
    basis: str
    """A phrase that describes the rows from which the error bars are computed."""
    extrapolated: str
    """A text that states why no calibration row is similar to the prediction; "" if a row is similar."""


def trust(place: ServingStack, prefill: Role | None, decode: Role | None, load: Load) -> Trust:
    """Return the error bars of a prediction for these roles and this load.

    If a similar calibration row exists, the error bars are those of its class. Otherwise the prediction is an extrapolation,
    and its error bars are those of rows whose engine, GPU or model was left out of the fit.
    """
    rows = shipped()
    if place.engine not in {row.place.engine for row in rows}:
        return Trust(
            left_out(ENGINE),
            "all rows, each predicted without the rows of its engine",
            f"the calibration has no row of {place.engine}",
        )
    if place.gpu.name not in {row.place.gpu.name for row in rows}:
        return Trust(
            left_out(GPU),
            ("all rows, each predicted without the rows of its GPU"),
            f"the calibration has no row of {place.gpu.name.upper()}",
        )
    families = {row.place.shape.facts.model_type for row in rows}
    if place.shape.facts.model_type not in families:
        return Trust(
            left_out(MODEL),
            ("rows of rarer models, each predicted without the rows of its model"),
            f"the calibration has no row of a model like {place.shape.name}",
        )
    if far := _far(place, prefill, decode, load, rows):
        return Trust(left_out(GPU), "all rows, each predicted without the rows of its GPU", far)
    title = class_of(place, (prefill, decode))
    own = by_class().get(title, {})
    known = {name: found for name, found in own.items() if found.rows >= ENOUGH}
    known = {**left_out(DEPLOYMENT), **known}
    basis = (
        f"class {title}"
        if len(own) == len(FIGURES) and own["tokens"].rows >= ENOUGH
        else "all rows, each predicted without the rows of its deployment"
    )
    return Trust(known, basis, "")


def _far(place: ServingStack, prefill: Role | None, decode: Role | None, load: Load, rows: Sequence[Row]) -> str:
    """Return a text that states why no row is similar to this deployment and load; "" if a row is similar."""
    here = [row for row in rows if (row.place.engine, row.place.gpu.name) == (place.engine, place.gpu.name)]
    here = [row for row in here if row.place.shape.precision == place.shape.precision]
    if not here:
        return f"the calibration has no row of {place.engine} on {place.gpu.name.upper()} in {place.shape.precision}"
    families = {row.place.shape.facts.model_type for row in here}
    if place.shape.facts.model_type not in families:
        return f"the calibration has no row of a model like {place.shape.name}"
    if prefill is None:
        return "the calibration has no row of engines that do both prefill and decode"
    for title, role, have in (
        ("prefill", prefill, [row.prefill for row in here]),
        ("decode", decode, [row.decode for row in here]),
    ):
        if role is not None and not any(_alike(role, other) for other in have if other):
            return f"the calibration has no row with {title} of {role.worker}"
    if not any(_close(row.isl, load.prompt) and (row.osl == 1 or _close(row.osl, load.answer)) for row in here):
        return f"the calibration has no row of about {load.prompt:,.0f} tokens in and {load.answer:,.0f} out"
    return ""


def _alike(role: Role, other: Role) -> bool:
    return role.worker.kind == other.worker.kind and 0.5 <= role.worker.gpus / other.worker.gpus <= 2


def _close(mine: float, other: float) -> bool:
    return 0.4 <= mine / other <= 2.5
