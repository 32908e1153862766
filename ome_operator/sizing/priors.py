"""The constants on which the prediction of a row depends, and what is assumed about each constant before a fit."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from ome_operator.sizing import steps
from ome_operator.sizing.calibration import Row
from ome_operator.sizing.queueing import Role, slots_keys
from ome_operator.sizing.steps import PAIR, TOGETHER

MEASURED: Mapping[str, float] = {
    "decode.weights": 1.62,
    "decode.matrices": 1.62,
    "decode.attention": 2.01,
    "prefill.experts": 1.90,
    "prefill.matrices": 1.66,
    "prefill.attention": 1.70,
}
"""Maps each term of kernels to a ratio on Hopper GPUs: the measured time, divided by the time at the rates of the data
sheet (docs/gpu.md). The latest fit used these ratios. A test verifies that `tests/gpu/measured.py` computes them to
within 4 %."""
_MEASURED_ON = "hopper"
_SURE, _UNSURE = 0.15, 0.3
"""Standard deviations of the priors of kernels: on the measured family of GPUs, and on other families."""
_PARTS = ("layer", "moe", "request", "hop", "wire", "far")
"""First words of the names of terms that do not describe the work of kernels."""
_WAITS = ("fixed", "burst", "queue", "ranks")


class ConstantPrior(NamedTuple):
    """What is assumed about a constant before a fit."""

    mean: float
    """The expected logarithm of the constant."""
    spread: float
    """The standard deviation of the logarithm."""


def factors(row: Row) -> dict[str, tuple[str, ...]]:
    """Return the names of the constants of each factor of a row. A factor is the product of its constants.

    The factors `decode` and `prefill` multiply all terms of a phase, `decode.TERM` and `prefill.TERM` a single term, and the
    other factors parts of TTFT.
    """
    place, mode = row.place, TOGETHER if row.together else PAIR
    out: dict[str, tuple[str, ...]] = {}
    for phase, role in phases(row).items():
        terms = (steps.decode_terms if phase == "decode" else steps.prefill_terms)(place, role.worker, 1, 1)
        out |= {f"{phase}.{term}": place.term_keys(phase, term) for term in terms}
        out[phase] = place.phase_keys(phase, role.worker, mode)
    if row.decode and (row.prefill or row.together):
        out |= {what: place.wait_keys(what, mode) for what in _WAITS}
        if mode == PAIR and row.decode.copies > 1:
            out["slots"] = slots_keys(place, row.decode.worker)
    return out


def phases(row: Row) -> dict[str, Role]:
    """Return the roles of a row by phase. If the engines do both prefill and decode, both phases have the same role."""
    reads = row.prefill or (row.decode if row.together else None)
    return {phase: role for phase, role in (("decode", row.decode), ("prefill", reads)) if role is not None}


def constants(row: Row) -> set[str]:
    """Return the names of all constants on which the prediction of a row depends. The names for an unknown engine version,
    which end with `.any`, are left out, because such constants are not fitted.
    """
    return {name for names in factors(row).values() for name in names if not name.endswith(".any")}


def prior_of(name: str) -> ConstantPrior:
    """Return the prior of the constant with this name."""
    head, *rest = name.split(".")
    term = ".".join([head, *rest[:1]])
    if head == "slots":
        return ConstantPrior(-3.5 if not rest else 0.0, (0.7, 0.3, 0.0, 1.5, 0.5)[len(rest)])
    if head in (PAIR, TOGETHER):
        means = {"pair.ranks": -0.7, "together.ranks": -0.7, "together.fixed": -1.0}
        return ConstantPrior(means.get(name, 0.0), 0.7 if len(rest) == 1 else 0.4)
    if term in MEASURED:
        return ConstantPrior(math.log(MEASURED[term]), _SURE if name.endswith(f".{_MEASURED_ON}") else _UNSURE)
    if rest[0] in _PARTS:
        own = len(rest) == 1 + (rest[0] in ("hop", "wire", "far"))  # whether the constant is common to all engines
        return ConstantPrior(math.log(2.0) if own and head == "prefill" else 0.0, 0.7 if own else 0.4)
    spread = 0.15 if head == "decode" else 0.225
    return ConstantPrior(0.0, 2 * spread if f".{PAIR}" in name else spread)
