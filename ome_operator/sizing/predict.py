"""Predict TTFT, TPOT and throughput of a calibration row."""

import math
from dataclasses import dataclass

from ome_operator.capacity.memory import BOTH, DEFAULT_SHARE
from ome_operator.sizing import steps
from ome_operator.sizing.calibration import Row
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.memory import compute_fit
from ome_operator.sizing.queueing import Pair, UnifiedDeployment
from ome_operator.sizing.steps import ServingStack


@dataclass(frozen=True)
class Prediction:
    """The predicted means of a row. A value is None if the run of the row does not include the value's phase (prefill or
    decode).
    """

    ttft: float | None
    tpot: float | None
    read: float | None
    """Predicted prompt tokens per second for each prefill GPU."""
    written: float | None
    """Predicted output tokens per second for each decode GPU."""
    regime: str = ""
    """The dominant part of TTFT: `waits`, `queues` or `reads`, as SteadyState.dominant_part defines them; empty if the row
    has only prefill or only the steps of decode."""


def check_known(place: ServingStack, c: Constants) -> None:
    """Raise PlanRefused if no constants were fitted for the family of the GPU."""
    if not c.knows(place.gpu.family):
        raise PlanRefused(
            f"Too few published runs on {place.gpu.name.upper()} are known to predict its speed: pass --calibration with "
            "runs of your own cluster."
        )


def predict(row: Row, c: Constants) -> Prediction:
    """Predict the figures of a row from its layout, the lengths of its requests and its concurrency. Its measured values
    are not used.

    Raises PlanRefused for an unknown family of GPUs, and for a row without prefill and without a concurrency.
    """
    check_known(row.place, c)
    load = row.load
    if row.decode is None and row.prefill is not None:
        seconds = steps.prefill(row.place, row.prefill.worker, load.computed_tokens, load.prompt, c)
        return Prediction(None, None, load.computed_tokens / seconds / row.prefill.worker.gpus, None)
    if row.together and row.decode is not None and row.concurrency is not None:
        state = UnifiedDeployment(row.place, row.decode, [load], c, capacity(row), row.drafts).closed(row.concurrency)
        return Prediction(state.ttft, state.tpot, None, state.rate * load.answer / row.decode.gpus, state.dominant_part)
    if row.prefill is None and row.decode is not None:
        if row.concurrency is None:
            raise PlanRefused(
                "The row has only decode and no concurrency, so the batch size is unknown: fill in the concurrency."
            )
        batch = row.concurrency / row.decode.copies
        seconds = steps.decoder(row.place, row.decode.worker, load.prompt + load.answer / 2, c)(batch)
        return Prediction(None, seconds, None, batch / seconds / row.decode.worker.gpus)
    assert row.prefill is not None and row.decode is not None and row.concurrency is not None
    state = Pair(row.place, row.prefill, row.decode, [load], c, drafts=row.drafts).closed(row.concurrency)
    read, written = state.rate * load.computed_tokens / row.prefill.gpus, state.rate * load.answer / row.decode.gpus
    return Prediction(state.ttft, state.tpot, read, written, state.dominant_part)


def capacity(row: Row) -> float:
    """Return the number of requests for which the KV cache of a row's engines has space; at least 1 for each attention rank.
    A request needs space for its prompt and, on average, for half of its answer.

    If the engines do not do both prefill and decode, the number is infinite: such layouts were chosen for their loads.
    """
    if not row.together or row.decode is None:
        return math.inf
    worker, load = row.decode.worker, row.load
    found = compute_fit(row.place.shape, row.place.gpu, worker, BOTH, DEFAULT_SHARE, 0)
    return max(1.0, found.tokens / (load.prompt + load.answer / 2)) * worker.dp * row.decode.copies
