"""What the model says of a row: TTFT, TPOT and tokens, or a sentence why it says nothing."""

from dataclasses import dataclass

from ome_operator.sizing import steps
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.loop import Pair, Together
from ome_operator.sizing.refused import PlanRefused
from ome_operator.sizing.rows import Row


@dataclass(frozen=True)
class Prediction:
    """Means, in seconds and tokens a second; None for what a row did not run."""

    ttft: float | None
    tpot: float | None
    read: float | None
    """Tokens of prompts a second on each prefill GPU."""
    written: float | None
    """Tokens of answers a second on each decode GPU."""
    regime: str = ""
    """waits: TTFT is above half of a request's time; queues: waiting is most of TTFT; reads: prefill's own time is."""


def predict(row: Row, c: Constants) -> Prediction:
    """A row, from its layout, its lengths and its concurrency alone."""
    load = row.load
    if row.decode is None and row.prefill is not None:
        seconds = steps.prefill(row.place, row.prefill.worker, load.read, load.prompt, c)
        return Prediction(None, None, load.read / seconds / row.prefill.worker.gpus, None)
    if row.prefill is None and row.decode is not None and row.ttft is not None and row.concurrency is not None:
        state = Together(row.place, row.decode, [load], c, mtp=row.mtp).closed(row.concurrency)
        return Prediction(state.ttft, state.tpot, None, state.rate * load.answer / row.decode.gpus, state.regime)
    if row.prefill is None and row.decode is not None:
        if row.concurrency is None:
            raise PlanRefused("Decode alone without a concurrency: its batch is not known.")
        batch = row.concurrency / row.decode.copies
        seconds = steps.decoder(row.place, row.decode.worker, load.prompt + load.answer / 2, c)(batch)
        return Prediction(None, seconds, None, batch / seconds / row.decode.worker.gpus)
    assert row.prefill is not None and row.decode is not None and row.concurrency is not None
    state = Pair(row.place, row.prefill, row.decode, [load], c, mtp=row.mtp).closed(row.concurrency)
    read, written = state.rate * load.read / row.prefill.gpus, state.rate * load.answer / row.decode.gpus
    return Prediction(state.ttft, state.tpot, read, written, state.regime)
