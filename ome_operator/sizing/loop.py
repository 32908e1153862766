"""What a deployment does with its requests: the closed loop, in which a fixed number is always there, and the open one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ome_operator.sizing import steps
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

_HALVINGS = 40
_ALL = 1e9
"""Requests: more than anybody has."""
BURST = 0.1
"""Of the time that prefill takes for all requests together: how long a request of the first burst waits, over all."""
VERIFIED, ACCEPTED = 2.0, 1.8
"""Tokens that a step with a draft (multi-token prediction) looks at and yields, for each request: DeepSeek-V3's report,
section 5.4.3, has 85 to 90 % of second tokens accepted and 1.8 times the speed. No row of the calibration says that
drafts were on."""
BUSY = 0.9
"""Of what prefill can read, where nobody says how much comes: beyond it waiting explodes."""


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
    """Lengths of requests, in tokens."""

    prompt: float
    answer: float
    hit: float = 0.0
    """Of the prompt, what prefill finds in its cache of prefixes and does not read."""
    share: float = 1.0
    """Of all requests."""

    @property
    def read(self) -> float:
        """Tokens that prefill reads."""
        return self.prompt * (1 - self.hit)


@dataclass(frozen=True)
class SteadyState:
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

    whole: float
    """Seconds of a request, from its arrival to its last token."""

    @property
    def regime(self) -> str:
        """What TTFT is: waits (above half of a request's time), queues (waiting is most of it), reads (prefill's time)."""
        if self.ttft > self.whole / 2:
            return "waits"
        return "queues" if self.ttft > 2 * self.own else "reads"


def slots(place: ServingStack, role: Role, c: Constants) -> float:
    """How much longer a request waits for a place in decode than its fair share.

    Each worker takes an even share of all requests and the router chooses by chance: some wait while others have room.
    """
    return c.factor(*slots_keys(place, role.worker)) * (1 - 1 / role.copies)


def slots_keys(place: ServingStack, worker: Worker) -> tuple[str, ...]:
    """Names of the factors of `slots`."""
    engine, gpu, precision, kind = place.engine, place.gpu.name, place.shape.precision, worker.kind
    return "slots", f"slots.{engine}", f"slots.{engine}.{precision}.{kind}", f"slots.{engine}.{gpu}.{precision}.{kind}"


class _Loop(ABC):
    """Roles with their loads; a batch in decode is what everything follows from."""

    most: float
    """Requests a second that prefill could read."""
    own: float
    """Seconds of TTFT that a request takes where nobody waits."""
    _service: float
    _slots: float
    _copies: int

    def __init__(
        self, place: ServingStack, reads: Role, answers: Role, loads: Sequence[Load], c: Constants, room: float, mtp: bool
    ) -> None:
        worker = reads.worker
        self._service = sum(load.share * steps.prefill(place, worker, load.read, load.prompt, c) for load in loads)
        self.most = reads.copies / self._service
        self.own = sum(load.share * steps.alone(place, worker, load.read, load.prompt, c) for load in loads)
        self._wait = self._service / reads.copies * c.factor("wait.queue")
        self._burst = BURST * c.factor("wait.burst", f"wait.burst.{place.engine}") / self.most
        self._slots = 0.0
        later = [load.share * max(load.answer - 1, 1e-9) for load in loads]
        context = sum(each * (load.prompt + load.answer / 2) for each, load in zip(later, loads, strict=True)) / sum(later)
        step = steps.decoder(place, answers.worker, context, c)
        self._step = (lambda batch: step(VERIFIED * batch) / ACCEPTED) if mtp else step
        self._later, self._copies, self._room = sum(later), answers.copies, room

    @abstractmethod
    def _pace(self, batch: float) -> tuple[float, float]:
        """(requests a second, TPOT) that keep so many requests in decode."""

    def _at(self, batch: float, base: float, share: float) -> tuple[float, float, float]:
        """The same with TTFT in the middle; `share`: of a request's time, for which it waits for a place in decode."""
        rate, tpot = self._pace(batch)
        busy = rate / self.most
        ttft = base + share * self._later * tpot + self._wait * busy / (1 - busy) if busy < 1 else math.inf
        return rate, ttft, tpot

    def closed(self, concurrency: float) -> SteadyState:
        """`concurrency` requests, each followed by another."""
        base = self.own + concurrency * self._burst
        share = self._slots / math.sqrt(max(1.0, concurrency / self._copies))
        low, high = 0.0, min(concurrency, self._room)
        for _ in range(_HALVINGS):
            batch = (low + high) / 2
            rate, ttft, _tpot = self._at(batch, base, share)
            low, high = (low, batch) if batch + rate * ttft > concurrency else (batch, high)
        batch = (low + high) / 2
        rate, tpot = self._pace(batch)
        return SteadyState(rate, (concurrency - batch) / rate, tpot, batch, self.most, self.own, concurrency / rate)

    def opened(self, wanted: float) -> SteadyState | None:
        """`wanted` requests a second that come by chance; None where they are more than it can do."""
        found = self.highest(rate=wanted, busy=1 - 1e-6)
        return found if found.rate >= wanted * (1 - 1e-6) else None

    def highest(
        self, tpot: float = math.inf, ttft: float = math.inf, rate: float = math.inf, busy: float = BUSY
    ) -> SteadyState:
        """The most requests a second within these bounds."""
        most = min(rate, self.most * busy)
        low, high = 0.0, min(self._room, _ALL)
        for _ in range(_HALVINGS + 20):
            batch = (low + high) / 2
            reached, first, each = self._at(batch, self.own, 0.0)
            low, high = (batch, high) if reached <= most and first <= ttft and each <= tpot else (low, batch)
        reached, first, each = self._at(low, self.own, 0.0)
        return SteadyState(reached, first, each, low, self.most, self.own, first + self._later * each)


class Pair(_Loop):
    """Prefill and decode apart."""

    def __init__(
        self,
        place: ServingStack,
        prefill: Role,
        decode: Role,
        loads: Sequence[Load],
        c: Constants,
        room: float = math.inf,
        mtp: bool = False,
    ) -> None:
        """`room`: requests that the cache of decode holds, over all workers; `mtp`: with a draft token."""
        super().__init__(place, prefill, decode, loads, c, room, mtp)
        self._slots = slots(place, decode, c)

    def _pace(self, batch: float) -> tuple[float, float]:
        tpot = self._step(batch / self._copies)
        return batch / (self._later * tpot), tpot


class Together(_Loop):
    """Engines that read and answer: a step of prefill stops decode on the same GPUs."""

    def __init__(
        self, place: ServingStack, both: Role, loads: Sequence[Load], c: Constants, room: float = math.inf, mtp: bool = False
    ) -> None:
        """`room`: requests that the cache holds, over all engines; `mtp`: with a draft token."""
        super().__init__(place, both, both, loads, c, room, mtp)

    def _pace(self, batch: float) -> tuple[float, float]:
        each = batch / self._copies
        step = self._step(each)
        rate = batch / (self._later * step + each * self._service)
        return rate, step / (1 - rate / self.most)
