"""Compute the steady state of a deployment under load. In a closed loop, a fixed number of requests is always in
progress; in an open loop, requests arrive at random at a given rate.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ome_operator.sizing import steps
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

_HALVINGS = 40
_MOST_REQUESTS = 1e9
"""An upper limit for the number of requests in decode."""
BURST = 0.1
"""Waiting time that the initial burst of requests causes, averaged over all requests of a run. The unit is the time that
prefill needs for all concurrent requests. A fitted factor multiplies the constant."""
ACCEPTED = 0.8
"""Probability that a draft token is accepted if all draft tokens before it are accepted; used if the user states no number.
Source: the DeepSeek-V3 report, section 5.4.3 (85 to 90 % of second tokens accepted, 1.8 times the speed). No calibration
row states that multi-token prediction was on."""
BUSY = 0.9
"""Largest planned utilization of prefill if the request gives no request rate. As the utilization approaches 1, the
waiting time grows without limit."""


@dataclass(frozen=True)
class Role:
    """The workers of one role (prefill, decode or both): their number, and the worker, which is the same for all."""

    copies: int
    worker: Worker

    @property
    def gpus(self) -> int:
        """The number of GPUs of all workers."""
        return self.copies * self.worker.gpus


@dataclass(frozen=True)
class Load:
    """The mean lengths of one kind of request, in tokens."""

    prompt: float
    answer: float
    hit: float = 0.0
    """Fraction of the prompt tokens that the prefix cache holds. Prefill does not compute these tokens."""
    share: float = 1.0
    """Fraction of all requests that are of this kind."""

    @property
    def computed_tokens(self) -> float:
        """Number of prompt tokens of a request that prefill computes."""
        return self.prompt * (1 - self.hit)


PERCENTILES = (0.5, 0.9, 0.99)
"""Percentiles of latencies that plans state."""
_NORMAL = 100.0


@dataclass(frozen=True)
class Drafts:
    """Speculative decoding: each step verifies `tokens` draft tokens for each request, and accepts `accepted` of them."""

    tokens: int = 0
    accepted: float = 0.0
    """Mean number of accepted draft tokens of a step, from 0 to `tokens`."""

    def step(self, step: Callable[[float], float], layers: int) -> Callable[[float], float]:
        """Return a function that maps a batch to the seconds for each output token of a request.

        `step` maps a batch to the seconds of a step without drafts, and `layers` is the number of layers of the model. A
        step verifies a token and its drafts. The computation of a draft takes as long as a layer of the model, because the
        module for multi-token prediction of DeepSeek-V3 is a single layer.
        """
        if not self.tokens:
            return step
        work = 1 + self.tokens / layers
        return lambda batch: step((1 + self.tokens) * batch) * work / (1 + self.accepted)


NO_DRAFTS = Drafts()


def expected_drafts(tokens: int) -> Drafts:
    """Return speculative decoding with `tokens` draft tokens. Each of them is accepted with the probability ACCEPTED if all
    draft tokens before it are accepted.
    """
    return Drafts(tokens, sum(ACCEPTED**number for number in range(1, tokens + 1)))


def poisson_percentile(mean: float, part: float) -> float:
    """Return the number that a Poisson variable does not exceed with the probability `part`. Above a mean of 100, the
    normal distribution with the same mean and variance is used.
    """
    if mean > _NORMAL:
        return NormalDist(mean, math.sqrt(mean)).inv_cdf(part)
    number, chance = 0, math.exp(-mean)
    total = chance
    while total < part:
        number += 1
        chance *= mean / number
        total += chance
    return number


@dataclass(frozen=True)
class SteadyState:
    """The steady state of a deployment. All values are means over all requests."""

    rate: float
    """Requests per second that the deployment completes."""
    ttft: float
    """Time to first token, in seconds."""
    tpot: float
    """Time per output token, in seconds."""
    batch: float
    """Number of requests in decode, over all workers."""
    most_prefill: float
    """Largest number of requests per second that prefill can compute."""
    own: float
    """Time to first token of a request that does not wait for other requests, in seconds."""

    whole: float
    """Time from the arrival of a request to its last token, in seconds."""
    owns: tuple[float, ...] = ()
    """The value `own` of each kind of request, in seconds."""
    tpots: tuple[float, ...] = ()
    """The PERCENTILES of the time per output token of decode steps, in seconds; empty if their distribution is not known."""

    def ttft_percentile(self, part: float) -> float | None:
        """Return the TTFT in seconds that the fraction `part` of the requests does not exceed; None if most of TTFT is a
        wait for a slot in decode, whose distribution is not known.

        Method: the queue of prefill is treated as a queue with a single server and random arrivals (M/M/1). The waiting time
        is 0 if the server is idle, otherwise exponential: it exceeds t with the probability busy * exp(-t * busy / mean
        wait).
        """
        busy = self.rate / self.most_prefill
        if self.dominant_part == "waits" or not 0 < busy < 1:
            return None
        wait = max(0.0, self.ttft - self.own)
        return self.own + max(0.0, wait / busy * math.log(busy / (1 - part)))

    @property
    def dominant_part(self) -> str:
        """The dominant part of TTFT: `waits` if TTFT is more than half of the request's total time, otherwise `queues` if
        most of TTFT is waiting time, or `reads` if most of TTFT is prefill.
        """
        if self.ttft > self.whole / 2:
            return "waits"
        return "queues" if self.ttft > 2 * self.own else "reads"


def slots(place: ServingStack, role: Role, c: Constants) -> float:
    """Return the time that a request waits for a free slot in decode, as a fraction of the time that the request spends in
    decode.

    The fraction applies to a load of one request per worker; `closed` divides it by the square root of the requests per
    worker. The waiting time exists because the router assigns requests to workers at random, so that some requests wait at
    a full worker while another worker has free slots. A deployment with a single worker has no such waiting time.
    """
    return c.factor(*slots_keys(place, role.worker)) * (1 - 1 / role.copies)


def slots_keys(place: ServingStack, worker: Worker) -> tuple[str, ...]:
    """Return the names of the constants whose product is a factor of `slots`, from the most general to the most specific."""
    engine, family, precision, kind = place.engine, place.gpu.family, place.shape.precision, worker.kind
    return "slots", f"slots.{engine}", f"slots.{engine}.{precision}.{kind}", f"slots.{engine}.{family}.{precision}.{kind}"


class _Loop(ABC):
    """The common base of Pair and UnifiedDeployment. All values of a steady state follow from the number of requests in
    decode.
    """

    most: float
    """Largest number of requests per second that prefill can compute."""
    own: float
    """Time to first token of a request that does not wait for other requests, in seconds."""
    mode = steps.PAIR
    _service: float
    _slots: float
    _copies: int

    def __init__(
        self,
        place: ServingStack,
        reads: Role,
        answers: Role,
        loads: Sequence[Load],
        c: Constants,
        cache_capacity: float,
        drafts: Drafts,
    ) -> None:
        worker, mode = reads.worker, self.mode
        self._service = sum(
            load.share * steps.prefill(place, worker, load.computed_tokens, load.prompt, c, mode) for load in loads
        )
        self.most = reads.copies / self._service
        self._owns = tuple(
            steps.single_prompt_ttft(place, worker, load.computed_tokens, load.prompt, c, mode) for load in loads
        )
        self.own = sum(load.share * own for load, own in zip(loads, self._owns, strict=True))
        self._wait = self._service / reads.copies * c.factor(*place.wait_keys("queue", mode))
        self._burst = BURST * c.factor(*place.wait_keys("burst", mode)) / self.most
        self._slots = 0.0
        later = [load.share * max(load.answer - 1, 1e-9) for load in loads]
        context = sum(each * (load.prompt + load.answer / 2) for each, load in zip(later, loads, strict=True)) / sum(later)
        self._step = drafts.step(steps.decoder(place, answers.worker, context, c, mode), place.shape.layers)
        self._later, self._copies, self._cache_capacity = sum(later), answers.copies, cache_capacity

    @abstractmethod
    def _pace(self, batch: float) -> tuple[float, float]:
        """Return the requests per second and the TPOT in seconds at which `batch` requests are in decode, over all
        workers.
        """

    def _at(self, batch: float, base: float, share: float) -> tuple[float, float, float]:
        """Return the requests per second, TTFT and TPOT if `batch` requests are in decode.

        `base` is the part of TTFT in seconds that does not depend on the batch. `share` is the waiting time for a decode
        slot, as a fraction of the time that a request spends in decode. TTFT is infinite if prefill cannot keep up.
        """
        rate, tpot = self._pace(batch)
        busy = rate / self.most
        ttft = base + share * self._later * tpot + self._wait * busy / (1 - busy) if busy < 1 else math.inf
        return rate, ttft, tpot

    def closed(self, concurrency: float) -> SteadyState:
        """Return the steady state of a closed loop, in which `concurrency` requests are always in progress. The end of
        each request is followed by a new request.
        """
        base = self.own + concurrency * self._burst
        share = self._slots / math.sqrt(max(1.0, concurrency / self._copies))
        low, high = 0.0, min(concurrency, self._cache_capacity)
        for _ in range(_HALVINGS):
            batch = (low + high) / 2
            rate, ttft, _tpot = self._at(batch, base, share)
            low, high = (low, batch) if batch + rate * ttft > concurrency else (batch, high)
        batch = (low + high) / 2
        rate, tpot = self._pace(batch)
        ttft, whole = (concurrency - batch) / rate, concurrency / rate
        return SteadyState(rate, ttft, tpot, batch, self.most, self.own, whole, self._owns)

    def open_loop_state(self, wanted: float) -> SteadyState | None:
        """Return the steady state in which `wanted` requests per second arrive at random. Return None if the deployment
        cannot serve that rate.
        """
        found = self.highest_throughput(rate=wanted, busy=1 - 1e-6)
        return found if found.rate >= wanted * (1 - 1e-6) else None

    def highest_throughput(
        self, tpot: float = math.inf, ttft: float = math.inf, rate: float = math.inf, busy: float = BUSY
    ) -> SteadyState:
        """Return the steady state with the most requests per second within the limits. `tpot` and `ttft` are limits in
        seconds, `rate` is the largest number of requests per second, and `busy` the largest utilization of prefill.
        """
        most = min(rate, self.most * busy)
        low, high = 0.0, min(self._cache_capacity, _MOST_REQUESTS)
        for _ in range(_HALVINGS + 20):
            batch = (low + high) / 2
            reached, first, each = self._at(batch, self.own, 0.0)
            low, high = (batch, high) if reached <= most and first <= ttft and each <= tpot else (low, batch)
        reached, first, each = self._at(low, self.own, 0.0)
        whole = first + self._later * each
        return SteadyState(reached, first, each, low, self.most, self.own, whole, self._owns, self._tpots(low))

    def _tpots(self, batch: float) -> tuple[float, ...]:
        """Return the percentiles of the time per output token for random arrivals (`SteadyState.tpots`); () unless a
        subclass knows their distribution.
        """
        return ()


class Pair(_Loop):
    """A deployment with prefill and decode on different GPUs (disaggregation)."""

    def __init__(
        self,
        place: ServingStack,
        prefill: Role,
        decode: Role,
        loads: Sequence[Load],
        c: Constants,
        cache_capacity: float = math.inf,
        drafts: Drafts = NO_DRAFTS,
    ) -> None:
        """Initialize the deployment. `cache_capacity` is the number of requests that the KV cache of decode holds, over all
        workers.
        """
        super().__init__(place, prefill, decode, loads, c, cache_capacity, drafts)
        self._slots = slots(place, decode, c)

    def _pace(self, batch: float) -> tuple[float, float]:
        tpot = self._step(batch / self._copies)
        return batch / (self._later * tpot), tpot

    def _tpots(self, batch: float) -> tuple[float, ...]:
        """Return the percentiles of the time per output token for random arrivals, as in `SteadyState.tpots`.

        Method: if requests arrive at random and do not wait for a slot, the number of requests in decode is a Poisson
        variable (M/G/infinity). The duration of a step depends on this number, the batch. The percentiles are those of
        single steps. The mean over all steps of a request varies less, because its steps have different batches.
        """
        return tuple(self._step(poisson_percentile(batch / self._copies, part)) for part in PERCENTILES)


class UnifiedDeployment(_Loop):
    """A deployment whose engines do both prefill and decode. A prefill step interrupts decode on the same GPUs."""

    mode = steps.TOGETHER

    def __init__(
        self,
        place: ServingStack,
        both: Role,
        loads: Sequence[Load],
        c: Constants,
        cache_capacity: float = math.inf,
        drafts: Drafts = NO_DRAFTS,
    ) -> None:
        """Initialize the deployment. `cache_capacity` is the number of requests that the KV cache holds, over all
        engines.
        """
        super().__init__(place, both, both, loads, c, cache_capacity, drafts)

    def _pace(self, batch: float) -> tuple[float, float]:
        each = batch / self._copies
        step = self._step(each)
        rate = batch / (self._later * step + each * self._service)
        return rate, step / (1 - rate / self.most)
