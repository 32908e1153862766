"""The planner's fit, computed with arrays for all rows at once, and its variants (tests/gpu/variants.py)."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ome_operator.capacity.division import redundant_experts
from ome_operator.sizing import fit, steps
from ome_operator.sizing.calibration import Row, shipped
from ome_operator.sizing.error_bars import FIGURES
from ome_operator.sizing.queueing import BURST, slots_keys
from tests.gpu import tables
from tests.gpu.models import FILE, models

KERNELS = {"decode": ("weights", "cache", "attention", "matrices"), "prefill": ("matrices", "attention")}
"""The terms that are the work of kernels on one GPU."""
OWN = 7
"""Number of factors of a row beside those of its terms: all of decode, all of prefill, and five of the queues."""
ROUNDS, ENOUGH, HALVINGS = 60, 1e-5, 40


@dataclass(frozen=True)
class Variant:
    """A change of the planner's fit."""

    title: str
    spread: float = 0.0
    """Standard deviation of priors at the measured factors; 0 keeps the priors of the planner."""
    hopper: bool = False
    """Whether these priors apply to Hopper GPUs only. Hopper then has its own factors for the terms of kernels."""
    bound: bool = False
    """Whether the factor of a term of kernels is at least 1: no kernel is faster than the rates of the data sheet."""
    copies: bool = False
    """Whether decode reads the weights of redundant experts, with the number of copies that the planner places."""


VARIANTS = (
    Variant("present"),
    Variant("priors 0.1", spread=0.1),
    Variant("priors 0.15", spread=0.15),
    Variant("priors 0.3", spread=0.3),
    Variant("Hopper's priors 0.1", spread=0.1, hopper=True),
    Variant("Hopper's priors 0.15", spread=0.15, hopper=True),
    Variant("bound", bound=True),
    Variant("copies", copies=True),
    Variant("bound, copies", bound=True, copies=True),
    Variant("bound, priors 0.3", spread=0.3, bound=True),
    Variant("bound, Hopper's priors 0.15", spread=0.15, hopper=True, bound=True),
    Variant("bound, Hopper's priors 0.15, copies", spread=0.15, hopper=True, bound=True, copies=True),
)


@cache
def measured() -> Mapping[str, float]:
    """Return the factor of each term of kernels: measured time / time at the rates of the data sheet.

    A factor is the geometric mean over the GPUs, models and batches of tests/gpu/results. Attention is that of the longest
    prompts, because short ones take a constant time, which is part of the term `layer`.
    """
    ratios: dict[str, list[float]] = {}
    for run in tables.runs():
        for model in models(FILE.read_text()):
            for batch in model.batches:
                for term in tables.decode_terms(run, model, batch, max(model.contexts)):
                    ratios.setdefault(f"decode {term.name}", []).append(term.measured / term.peak)
            for term in tables.prefill_terms(run, model, max(model.prompts)):
                ratios.setdefault(f"prefill {term.name}", []).append(term.measured / term.peak)
    matrices = statistics.geometric_mean(ratios["decode experts"] + ratios["decode projections, head"])
    attention = statistics.geometric_mean(ratios["decode attention"])
    return {
        "decode.weights": matrices,
        "decode.matrices": matrices,
        "decode.cache": attention,
        "decode.attention": attention,
        "prefill.matrices": statistics.geometric_mean(ratios["prefill experts"] + ratios["prefill projections"]),
        "prefill.attention": statistics.geometric_mean(ratios["prefill attention"]),
    }


class Problem:
    """Rows of the calibration as arrays, and the constants on which a variant's predictions of these rows depend.

    A row has a fixed number of factors. A factor is the product of some constants, and multiplies a term of the row.
    """

    def __init__(self, rows: Sequence[Row], variant: Variant) -> None:
        self.variant = variant
        self.prior = _priors(rows, variant)
        column = {name: number for number, name in enumerate(self.prior)}
        self.mean = np.array([mean for mean, _ in self.prior.values()])
        self.spread = np.array([spread for _, spread in self.prior.values()])
        parts = [_row(row, variant) for row in rows]
        decode, prefill = (max(len(part[side]) for part in parts) for side in (0, 1))
        self.terms = np.zeros((len(rows), decode, 4))
        """Seconds of each term of decode at peak rates, multiplied by 1, by the batch, by its square root, and by the
        share of the experts that the batch selects."""
        self.prompts = np.zeros((len(rows), prefill))
        """Seconds of each term of prefill at peak rates."""
        self.kernels = np.zeros((len(rows), decode + prefill), bool)
        """Whether a term is the work of kernels."""
        self.chance = np.array([part[3] for part in parts])
        """Share of the experts that a single token selects."""
        places = []
        for number, (of_decode, of_prefill, own, _) in enumerate(parts):
            for at, (names, kernel, times) in enumerate(of_decode):
                self.terms[number, at], self.kernels[number, at] = times, kernel
                places += [(number, at, column[name]) for name in names if name in column]
            for at, (names, kernel, time) in enumerate(of_prefill):
                self.prompts[number, at], self.kernels[number, decode + at] = time, kernel
                places += [(number, decode + at, column[name]) for name in names if name in column]
            for at, names in enumerate(own):
                places += [(number, decode + prefill + at, column[name]) for name in names if name in column]
        self.places = np.array(places).T
        """Row, factor and constant, for each constant that is part of a factor."""
        self.factors = decode + prefill + OWN
        self.only_prefill = np.array([row.decode is None for row in rows])
        self.only_decode = np.array([row.prefill is None for row in rows])
        self.copies = np.array([row.decode.copies if row.decode else 1.0 for row in rows])
        self.gpus = np.array([row.decode.gpus if row.decode else 1.0 for row in rows])
        self.ranks = np.array([row.prefill.worker.dp if row.prefill else 1.0 for row in rows])
        self.readers = np.array([row.prefill.copies if row.prefill else 1.0 for row in rows])
        self.reading = np.array([row.prefill.gpus if row.prefill else 1.0 for row in rows])
        self.load = np.array([(row.load.read, row.load.answer, row.concurrency or 0.0) for row in rows])
        self.seen = np.array([(row.ttft, row.tpot, row.written or row.read) for row in rows], float)
        self.seen[self.only_prefill | self.only_decode, 0] = np.nan
        self.weight = np.array([fit.WEIGHT[name] for name in FIGURES])

    def logs(self, constants: np.ndarray) -> np.ndarray:
        """Return the logarithm of each factor of each row."""
        out = np.zeros((len(self.seen), self.factors))
        row, factor, constant = self.places
        np.add.at(out, (row, factor), constants[constant])
        return out

    def errors(self, logs: np.ndarray) -> np.ndarray:
        """Return the logarithm of predicted / measured of each figure of each row; NaN for a figure that a row lacks.

        `logs` has the shape (..., rows, factors), the result (..., rows, figures). The formulas are those of
        `ome_operator.sizing.steps` and `queueing`.
        """
        decode, prefill = self.terms.shape[1], self.prompts.shape[1]
        own = np.exp(logs[..., decode + prefill :])
        whole, prompt, fixed, burst, queue, ranks, slots = np.moveaxis(own, -1, 0)
        factors = np.exp(logs[..., : decode + prefill])
        factors[..., :decode] *= whole[..., None]
        factors[..., decode:] *= prompt[..., None]
        if self.variant.bound:
            factors = np.where(self.kernels, np.maximum(factors, 1.0), factors)
        none, each, busy, experts = np.moveaxis((factors[..., :decode, None] * self.terms).sum(-2), -1, 0)
        step = _decoder(none, each, busy, experts, np.log1p(-self.chance))
        service = (factors[..., decode:] * self.prompts).sum(-1)
        read, answer, concurrency = self.load.T
        with np.errstate(all="ignore"):  # Rows of one phase lack some terms; their figures are replaced below.
            most = self.readers / service
            base = steps.FIRST * fixed + self.ranks ** np.minimum(1.0, ranks) * service
            base = base + concurrency * BURST * burst / most
            later = np.maximum(answer - 1, 1e-9)
            share = slots * (1 - 1 / self.copies) / np.sqrt(np.maximum(1.0, concurrency / self.copies))
            low, high = np.zeros_like(service), np.broadcast_to(concurrency, service.shape)
            for _ in range(HALVINGS):
                batch = (low + high) / 2
                tpot = step(batch / self.copies)
                rate = batch / (later * tpot)
                load = rate / most
                ttft = base + share * later * tpot + service / self.readers * queue * load / (1 - load)
                over = (load >= 1) | (batch + rate * ttft > concurrency)
                low, high = np.where(over, low, batch), np.where(over, batch, high)
            batch = np.where(self.only_decode, concurrency, (low + high) / 2)
            tpot = step(batch / self.copies)
            rate = batch / (later * tpot)
            written = np.where(self.only_decode, batch / tpot, rate * answer) / self.gpus
            tokens = np.where(self.only_prefill, read * most / self.reading, written)
            return np.log(np.stack([(concurrency - batch) / rate, tpot, tokens], -1) / self.seen)

    def cost(self, errors: np.ndarray, constants: np.ndarray) -> float:
        """Return what the fit minimizes, as `fit._cost` does."""
        size = np.abs(errors)
        bent = np.where(size <= fit.BEND, size**2, 2 * fit.BEND * size - fit.BEND**2)
        return float(np.nansum(self.weight * bent) + ((fit.NOISE * (constants - self.mean) / self.spread) ** 2).sum())

    def fitted(self) -> dict[str, float]:
        """Return the logarithm of each constant, fitted to the rows by damped Gauss-Newton steps as in `fit._fitted`."""
        at = self.mean
        errors = self.errors(self.logs(at))
        best, damping = self.cost(errors, at), 1e-3
        for _ in range(ROUNDS):
            matrix, right = self._normal(at, errors)
            while True:
                step = np.linalg.solve(matrix + damping * np.eye(len(right)), right)
                tried = at + np.clip(step, -0.5, 0.5)
                moved = self.errors(self.logs(tried))
                cost = self.cost(moved, tried)
                if cost < best or damping > 1e3:
                    break
                damping *= 4
            if not cost < best:
                break
            gain, best, at, errors = best - cost, cost, tried, moved
            damping = max(1e-6, damping / 4)
            if gain < ENOUGH * best:
                break
        return dict(zip(self.prior, at.tolist(), strict=True))

    def _normal(self, at: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrix and the right side of the normal equations of a step, as `fit._normal` does."""
        moved = self.logs(at)[None] + fit.STEP * np.eye(self.factors)[:, None]
        by_factor = np.nan_to_num((self.errors(moved) - errors) / fit.STEP)
        row, factor, constant = self.places
        slopes = np.zeros((len(errors), len(at), len(FIGURES)))
        np.add.at(slopes, (row, constant), by_factor[factor, row])
        present = ~np.isnan(errors)
        with np.errstate(divide="ignore"):
            bent = (self.weight * np.minimum(1.0, fit.BEND / np.abs(errors)))[present]
        slope = slopes.transpose(0, 2, 1)[present]
        strength = (fit.NOISE / self.spread) ** 2
        matrix = slope.T @ (bent[:, None] * slope) + np.diag(strength)
        return matrix, -slope.T @ (bent * errors[present]) - strength * (at - self.mean)

    def ratios(self, constants: Mapping[str, float]) -> np.ndarray:
        """Return predicted / measured of each figure of each row. A constant without a value counts as 1, as in
        `Constants`.
        """
        return np.exp(self.errors(self.logs(np.array([constants.get(name, 0.0) for name in self.prior]))))


def _decoder(
    none: np.ndarray, each: np.ndarray, busy: np.ndarray, experts: np.ndarray, skipped: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps the batch of a worker to the seconds of a step, as `steps.decoder` does. `skipped` is the
    logarithm of the share of the experts that a token does not select.
    """
    return lambda batch: none + each * batch + busy * np.sqrt(batch) - experts * np.expm1(batch * skipped)


def _priors(rows: Sequence[Row], variant: Variant) -> dict[str, tuple[float, float]]:
    """Return the mean and the standard deviation of the prior of each constant of a variant."""
    out = {}
    for name, (mean, spread, of) in fit.priors(rows).items():
        if not variant.spread or name not in measured():
            out[name] = (mean, spread)
            continue
        own = math.log(measured()[name]), variant.spread
        hopper = {number for number in of if rows[number].place.gpu.family == "hopper"}
        if not variant.hopper:
            out[name] = own
            continue
        if of - hopper:
            out[name] = (mean, spread)
        if hopper:
            out[f"{name}.hopper"] = own
    return out


_Term = tuple[tuple[str, ...], bool, tuple[float, ...]]


def _row(row: Row, variant: Variant) -> tuple[list[_Term], list[tuple], list[tuple[str, ...]], float]:
    """Return the terms of decode and of prefill of a row, the constants of its other factors, and the share of the experts
    that a token selects. A term has the names of its constants, whether it is the work of kernels, and its seconds.
    """
    place, load, engine, shape = row.place, row.load, row.place.engine, row.place.shape
    decode: list[_Term] = []
    prefill: list[tuple] = []
    own: list[tuple[str, ...]] = [()] * OWN
    chance = 0.0

    def names(phase: str, term: str) -> tuple[str, str]:
        full = f"{phase}.{term}"
        of_hopper = variant.hopper and place.gpu.family == "hopper" and full in measured()
        return (f"{full}.hopper" if of_hopper else full), f"{full}.{engine}"

    if row.decode:
        worker, context = row.decode.worker, load.prompt + load.answer / 2
        none, one = (steps.decode_terms(place, worker, batch, context) for batch in (0.0, 1.0))
        copies = redundant_experts(shape.experts, worker.gpus, 1) if variant.copies and worker.kind == "dep" else 0
        slots = shape.experts + copies
        chance = shape.per_token / slots if slots else 0.0
        busy = shape.routed_flops / worker.gpus / place.gpu.rate(shape.precision) * steps.busiest(shape, worker, 1.0)
        for name, constant in none.items():
            times = (constant, one[name] - constant, 0.0, 0.0)
            if name == "weights":
                read = shape.routed_bytes * slots / shape.experts if slots else 0.0
                times = (constant, 0.0, 0.0, read / worker.gpus / place.gpu.bandwidth)
            if name == "matrices":
                times = (constant, one[name] - constant - busy, busy, 0.0)
            decode.append((names("decode", name), name in KERNELS["decode"], times))
        own[0] = place.keys("decode", worker)
    if row.prefill:
        for name, time in steps.prefill_terms(place, row.prefill.worker, load.read, load.prompt).items():
            prefill.append((names("prefill", name), name in KERNELS["prefill"], time))
        own[1] = place.keys("prefill", row.prefill.worker)
    if row.prefill and row.decode:
        own[2:5] = ("alone.fixed", f"alone.fixed.{engine}"), ("wait.burst", f"wait.burst.{engine}"), ("wait.queue",)
        own[5:] = ("alone.ranks",), slots_keys(place, row.decode.worker)
    return decode, prefill, own, chance


def answered() -> list[Row]:
    """Return the rows of the calibration that can be predicted."""
    return [row for row in shipped() if row.prefill is not None or row.concurrency is not None]
