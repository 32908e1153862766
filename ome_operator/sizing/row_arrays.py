"""The model of `steps` and `queueing` for all rows of a calibration at once, with numpy. Only fits use it: a test verifies
that it predicts what `predict` predicts.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ome_operator.sizing import priors, steps
from ome_operator.sizing.calibration import Row
from ome_operator.sizing.error_bars import FIGURES
from ome_operator.sizing.predict import capacity
from ome_operator.sizing.queueing import BURST

Array = NDArray[np.float64]
OWN = ("decode", "prefill", "fixed", "burst", "queue", "ranks", "slots")
"""Names of the factors of a row that are not the factor of a single term. For example, `decode` multiplies all terms of
decode."""
HALVINGS = 32


class Rows:
    """Rows of the calibration as arrays, and the constants on which the predictions of these rows depend.

    A row has a fixed number of factors. A factor is the product of some constants, and multiplies a term of the row.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.names = sorted({name for row in rows for name in priors.constants(row)})
        column = {name: number for number, name in enumerate(self.names)}
        decode, prefill = (max(len(_terms(row, phase)) for row in rows) for phase in ("decode", "prefill"))
        self.decode, self.prefill, self.factors = decode, prefill, decode + prefill + len(OWN)
        self.terms = np.zeros((len(rows), decode, 4))
        """Seconds of each term of decode at peak rates, with the shape (rows, terms, 4). The last axis has four
        coefficients: of 1, of the batch, of the square root of the batch, and of the share of the experts that the batch
        selects."""
        self.prompts = np.zeros((len(rows), prefill))
        """Seconds of each term of prefill at peak rates, with the shape (rows, terms)."""
        self.bounded = np.zeros((len(rows), decode + prefill), bool)
        """Whether the factor of a term is at least 1, with the shape (rows, terms of decode and of prefill)."""
        places = []
        for number, row in enumerate(rows):
            names = priors.factors(row)
            at = 0
            for phase, first in (("decode", 0), ("prefill", decode)):
                for at, (term, times) in enumerate(_terms(row, phase).items(), first):
                    (self.terms[number] if phase == "decode" else self.prompts[number])[at - first] = times
                    self.bounded[number, at] = steps.is_at_least_one(term)
                    places += [(number, at, column[name]) for name in names[f"{phase}.{term}"] if name in column]
            for at, own in enumerate(OWN, decode + prefill):
                places += [(number, at, column[name]) for name in names.get(own, ()) if name in column]
        self.places = np.array(places).T
        """Three index arrays, with an entry for each constant that is part of a factor: the row, the factor, and the
        constant."""
        reads = [row.prefill or row.decode for row in rows]
        answers = [row.decode or row.prefill for row in rows]
        self.chance = np.array([_chance(row) for row in rows])
        self.together = np.array([row.together for row in rows])
        self.only_prefill = np.array([row.decode is None for row in rows])
        self.only_decode = np.array([row.prefill is None and not row.together for row in rows])
        self.copies = np.array([float(role.copies) for role in answers if role])
        self.gpus = np.array([float(role.gpus) for role in answers if role])
        self.ranks = np.array([float(role.worker.dp) for role in reads if role])
        self.readers = np.array([float(role.copies) for role in reads if role])
        self.reading = np.array([float(role.gpus) for role in reads if role])
        self.waits = np.array([row.decode is not None and row.decode.copies > 1 and not row.together for row in rows])
        self.load = np.array([(row.load.computed_tokens, row.load.answer, row.concurrency or 0.0) for row in rows])
        self.room = np.array([min(capacity(row), row.concurrency or 0.0) for row in rows])
        self.seen = np.array([(row.ttft, row.tpot, row.written or row.read) for row in rows], float)
        self.seen[self.only_prefill | self.only_decode, 0] = np.nan

    def logs(self, constants: Array) -> Array:
        """Return the logarithm of each factor of each row."""
        out = np.zeros((len(self.seen), self.factors))
        row, factor, constant = self.places
        np.add.at(out, (row, factor), constants[constant])
        return out

    def ratios(self, constants: Mapping[str, float]) -> Array:
        """Return predicted / measured of each figure of each row; NaN for a figure that a row lacks. A constant without a
        value counts as 1, as in `Constants`.
        """
        return np.exp(self.errors(self.logs(np.array([constants.get(name, 0.0) for name in self.names]))))

    def errors(self, logs: Array) -> Array:
        """Return the logarithm of predicted / measured of each figure of each row, in the order of FIGURES; NaN for a
        figure that a row lacks. `logs` has the shape (rows, factors).
        """
        terms = self.decode + self.prefill
        own = np.exp(logs[:, terms:]).T
        decode, prefill, fixed, burst, queue, ranks, slots = own
        factors = np.exp(logs[:, :terms])
        factors[:, : self.decode] *= decode[:, None]
        factors[:, self.decode :] *= prefill[:, None]
        factors = np.where(self.bounded, np.maximum(factors, 1.0), factors)
        none, each, busy, experts = np.moveaxis((factors[:, : self.decode, None] * self.terms).sum(-2), -1, 0)
        step = _decoder(none, each, busy, experts, np.log1p(-self.chance))
        service = (factors[:, self.decode :] * self.prompts).sum(-1)
        read, answer, concurrency = self.load.T
        with np.errstate(all="ignore"):  # Rows of one phase lack some terms; their figures are replaced below.
            most = self.readers / service
            base = steps.FIRST * fixed + self.ranks ** np.minimum(1.0, ranks) * service
            base = base + concurrency * BURST * burst / most
            later = np.maximum(answer - 1, 1e-9)
            share = slots * self.waits * (1 - 1 / self.copies) / np.sqrt(np.maximum(1.0, concurrency / self.copies))

            def pace(batch: Array) -> tuple[Array, Array]:
                seconds = step(batch / self.copies)
                stopped = np.where(self.together, batch / self.copies * service, 0.0)
                rate = batch / (later * seconds + stopped)
                return rate, np.where(self.together, seconds / (1 - rate / most), seconds)

            low, high = np.zeros_like(service), self.room
            for _ in range(HALVINGS):
                batch = (low + high) / 2
                rate, tpot = pace(batch)
                busyness = rate / most
                ttft = base + share * later * tpot + service / self.readers * queue * busyness / (1 - busyness)
                over = (busyness >= 1) | (batch + rate * ttft > concurrency)
                low, high = np.where(over, low, batch), np.where(over, batch, high)
            batch = np.where(self.only_decode, concurrency, (low + high) / 2)
            rate, tpot = pace(batch)
            written = np.where(self.only_decode, batch / tpot, rate * answer) / self.gpus
            tokens = np.where(self.only_prefill, read * most / self.reading, written)
            out: Array = np.log(np.stack([(concurrency - batch) / rate, tpot, tokens], -1) / self.seen)
        assert FIGURES == ("ttft", "tpot", "tokens")
        return out


def _decoder(none: Array, each: Array, busy: Array, experts: Array, skipped: Array) -> Callable[[Array], Array]:
    """Return a function that maps the batch of a worker to the seconds of a step, as `steps.decoder` does, for all rows at
    once. The first four arguments are the coefficients that `Rows.terms` describes, summed over the terms. `skipped` is the
    logarithm of the share of the experts that a token does not select.
    """
    return lambda batch: none + each * batch + busy * np.sqrt(batch) - experts * np.expm1(batch * skipped)


def _chance(row: Row) -> float:
    """Return the share of the experts of a decode worker that a token selects."""
    if row.decode is None or not row.place.shape.experts:
        return 0.0
    return row.place.shape.per_token / steps.spread_slots(row.place.shape, row.decode.worker)


def _terms(row: Row, phase: str) -> dict[str, tuple[float, ...] | float]:
    """Return the seconds of each term of a phase of a row: four numbers for decode (see `Rows.terms`), a single number for
    prefill.
    """
    role = priors.phases(row).get(phase)
    if role is None:
        return {}
    place, load, worker, shape = row.place, row.load, role.worker, row.place.shape
    if phase == "prefill":
        return dict(steps.prefill_terms(place, worker, load.computed_tokens, load.prompt))
    context = load.prompt + load.answer / 2
    none, one = (steps.decode_terms(place, worker, batch, context) for batch in (0.0, 1.0))
    out: dict[str, tuple[float, ...] | float] = {name: (time, one[name] - time, 0.0, 0.0) for name, time in none.items()}
    busy = steps.routed_seconds(place) / worker.gpus * steps.busiest_gpu_excess(shape, worker, 1.0)
    out["matrices"] = (none["matrices"], one["matrices"] - none["matrices"] - busy, busy, 0.0)
    out["weights"] = (none["weights"], 0.0, 0.0, steps.expert_reads(place, worker))
    return out
