"""The closed loop: a number of requests that are always there, of which each waits, is read, and is answered."""

import math
from dataclasses import dataclass

from ome_operator.plan import steps
from ome_operator.plan.constants import Constants
from ome_operator.plan.steps import Place
from ome_operator.plan.workers import Worker

_HALVINGS = 40
BURST = 0.1
"""Of the time that prefill takes for all requests together: how long a request of the first burst waits, over all."""


@dataclass(frozen=True)
class Role:
    """Workers alike."""

    copies: int
    worker: Worker

    @property
    def gpus(self) -> int:
        """Of all workers."""
        return self.copies * self.worker.gpus


@dataclass(frozen=True)
class Load:
    """Lengths of a request, in tokens: means."""

    read: float
    """That prefill has to read: without those in a cache of prefixes."""
    prompt: float
    """That decode looks back at."""
    answer: float


@dataclass(frozen=True)
class State:
    """What goes on in the steady state: means over all requests."""

    rate: float
    """Requests a second."""
    ttft: float
    """Seconds."""
    tpot: float
    """Seconds."""
    batch: float
    """Requests in decode, over all workers."""
    most_prefill: float
    """Requests a second that prefill could read."""
    own: float
    """Seconds of TTFT that a request takes where nobody waits."""

    @property
    def saturated(self) -> bool:
        """Whether waiting is more than half of TTFT, so that TTFT is the residual of the closed loop."""
        return self.ttft > 2 * self.own


def slots(place: Place, role: Role, c: Constants) -> float:
    """How much longer a request waits for a place in decode than its fair share.

    Each worker takes an even share of all requests and the router chooses by chance: some wait while others have room.
    """
    engine, gpu, precision = place.engine, place.gpu.name, place.shape.precision
    names = ("slots", f"slots.{engine}.{role.worker.kind}", f"slots.{engine}.{gpu}.{precision}.{role.worker.kind}")
    return c.factor(*names) * (1 - 1 / role.copies)


def closed(place: Place, prefill: Role, decode: Role, load: Load, concurrency: float, c: Constants) -> State:
    """The steady state of `concurrency` requests, each followed by another."""
    service = steps.prefill(place, prefill.worker, load.read, c)
    most = prefill.copies / service
    own = steps.alone(place, prefill.worker, load.read, c)
    base = own + concurrency / most * BURST * c.factor("wait.burst", f"wait.burst.{place.engine}")
    wait = service / prefill.copies * c.factor("wait.queue")
    later = max(load.answer - 1, 1e-9)
    step = steps.decoder(place, decode.worker, load.prompt + load.answer / 2, c)
    uneven = slots(place, decode, c) / math.sqrt(max(1.0, concurrency / decode.copies))

    def at(batch: float) -> tuple[float, float, float]:
        """(requests a second, TTFT, TPOT) that keep so many requests in decode."""
        tpot = step(batch / decode.copies)
        answering = later * tpot
        rate = batch / answering
        busy = rate / most
        ttft = base + uneven * answering + wait * busy / (1 - busy) if busy < 1 else math.inf
        return rate, ttft, tpot

    low, high = 0.0, concurrency
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rate, ttft, _tpot = at(middle)
        low, high = (low, middle) if middle + rate * ttft > concurrency else (middle, high)
    batch = (low + high) / 2
    rate, _ttft, tpot = at(batch)
    return State(rate, (concurrency - batch) / rate, tpot, batch, most, own)
