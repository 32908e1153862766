"""How far predictions were off, by class: data/crossvalidated.csv, in which no row was predicted by what it had taught."""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ome_operator.sizing.loop import Load, Role
from ome_operator.sizing.rows import Row, shipped
from ome_operator.sizing.steps import ServingStack
from ome_operator.util import package_data

FIGURES = ("ttft", "tpot", "tokens")
NARROW = 8
"""GPUs of a worker up to which a class is `narrow`."""
DEPLOYMENT, GPU, ENGINE, MODEL = "deployment", "gpu", "engine", "model"
"""What was left out of the fit: a deployment at all its loads, or all rows of a GPU, an engine, a family of models."""
ENOUGH = 8
"""Rows of a class that has a bar of its own."""


@dataclass(frozen=True)
class Bar:
    """Errors of a figure: of the size of predicted / measured - 1."""

    rows: int
    median: float
    ninth: float
    """Nine of ten rows are within it."""
    worst: float


@dataclass(frozen=True)
class Held:
    """A row that was predicted by a fit that had not seen it."""

    id: str
    left_out: str
    ratios: Mapping[str, float]
    """Figure -> predicted / measured."""


def class_of(place: ServingStack, roles: Iterable[Role | None], mtp: bool = False) -> str:
    """The class of a run: engine, GPU, precision, width, and whether drafts are known to have been on."""
    widest = max(role.worker.gpus for role in roles if role is not None)
    width = "narrow" if widest <= NARROW else "wide"
    return f"{place.engine} {place.gpu.name} {place.shape.precision} {width}{' mtp' if mtp else ''}"


@cache
def held() -> tuple[Held, ...]:
    """All rows of the cross-validation."""
    text = package_data.text("ome_operator.sizing", "crossvalidated.csv")
    return tuple(
        Held(said["id"], said["left_out"], {name: float(said[name]) for name in FIGURES if said[name]})
        for said in csv.DictReader(io.StringIO(text))
    )


def bars(ratios: Iterable[Mapping[str, float]]) -> dict[str, Bar]:
    """Figure -> its errors over these rows."""
    found: dict[str, list[float]] = {}
    for each in ratios:
        for name, ratio in each.items():
            found.setdefault(name, []).append(abs(ratio - 1))
    return {name: bar(errors) for name, errors in found.items()}


def bar(errors: Sequence[float]) -> Bar:
    """Of a list of errors."""
    ordered = sorted(errors)
    return Bar(
        len(ordered), statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], ordered[-1]
    )


@cache
def by_class() -> Mapping[str, Mapping[str, Bar]]:
    """Class -> figure -> errors, with a deployment left out at a time."""
    rows = {row.id: class_of(row.place, (row.prefill, row.decode)) for row in shipped()}
    found: dict[str, list[Mapping[str, float]]] = {}
    for each in held():
        if each.left_out == DEPLOYMENT:
            found.setdefault(rows[each.id], []).append(each.ratios)
    return {name: bars(ratios) for name, ratios in sorted(found.items())}


@cache
def left_out(what: str) -> Mapping[str, Bar]:
    """Figure -> errors over all rows, with what is named left out."""
    return bars(each.ratios for each in held() if each.left_out == what)


@dataclass(frozen=True)
class Trust:
    """How far a prediction may be off, and why."""

    bars: Mapping[str, Bar]
    basis: str
    """What the bars are of."""
    extrapolated: str
    """Why no row is near; "" where one is."""


def trust(place: ServingStack, prefill: Role | None, decode: Role | None, load: Load) -> Trust:
    """The error bars of a prediction."""
    rows = shipped()
    if place.engine not in {row.place.engine for row in rows}:
        return Trust(left_out(ENGINE), "all rows, their engine left out", f"no row of {place.engine}")
    if place.gpu.name not in {row.place.gpu.name for row in rows}:
        return Trust(left_out(GPU), "all rows, their GPU left out", f"no row of {place.gpu.name.upper()}")
    families = {row.place.shape.facts.model_type for row in rows}
    if place.shape.facts.model_type not in families:
        return Trust(
            left_out(MODEL), "rows of rarer models, their model left out", f"no row of a model like {place.shape.name}"
        )
    if far := _far(place, prefill, decode, load, rows):
        return Trust(left_out(GPU), "all rows, their GPU left out", far)
    title = class_of(place, (prefill, decode))
    own = by_class().get(title, {})
    known = {name: found for name, found in own.items() if found.rows >= ENOUGH}
    known = {**left_out(DEPLOYMENT), **known}
    basis = (
        f"class {title}"
        if len(own) == len(FIGURES) and own["tokens"].rows >= ENOUGH
        else "all rows, their deployment left out"
    )
    return Trust(known, basis, "")


def _far(place: ServingStack, prefill: Role | None, decode: Role | None, load: Load, rows: Sequence[Row]) -> str:
    """Why no row is near; "" where one is."""
    here = [row for row in rows if (row.place.engine, row.place.gpu.name) == (place.engine, place.gpu.name)]
    here = [row for row in here if row.place.shape.precision == place.shape.precision]
    if not here:
        return f"no row of {place.engine} on {place.gpu.name.upper()} in {place.shape.precision}"
    families = {row.place.shape.facts.model_type for row in here}
    if place.shape.facts.model_type not in families:
        return f"no row of a model like {place.shape.name}"
    if prefill is None:
        return "no row of engines that read and answer"
    for title, role, have in (
        ("prefill", prefill, [row.prefill for row in here]),
        ("decode", decode, [row.decode for row in here]),
    ):
        if role is not None and not any(_alike(role, other) for other in have if other):
            return f"no row with {title} of {role.worker}"
    if not any(_close(row.isl, load.prompt) and (row.osl == 1 or _close(row.osl, load.answer)) for row in here):
        return f"no row of about {load.prompt:,.0f} tokens in and {load.answer:,.0f} out"
    return ""


def _alike(role: Role, other: Role) -> bool:
    return role.worker.kind == other.worker.kind and 0.5 <= role.worker.gpus / other.worker.gpus <= 2


def _close(mine: float, other: float) -> bool:
    return 0.4 <= mine / other <= 2.5
