"""How long a step takes: from operations, memory traffic and messages, each at a fitted share of its peak.

Times are seconds. Every term is a time at the GPU's peak times a factor of `constants`; terms add up, for what overlaps
is in the factors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ome_operator.sizing.constants import Constants
from ome_operator.sizing.gpus import Gpu
from ome_operator.sizing.shapes import Shape
from ome_operator.sizing.workers import Worker

LAYER = 10e-6
"""Seconds that a layer's launches and small kernels take: the unit of a fitted number."""
HOP, FAR = 10e-6, 30e-6
"""Seconds that a collective takes without data, inside a domain of links and beyond it: the unit of a fitted number."""
REQUEST = 1e-6
"""Seconds that a request costs beside the model's own work (sampling, scheduling): the unit of a fitted number."""
FIRST = 0.1
"""Seconds that a request takes beside prefill's step, up to its first token: the unit of a fitted number."""
SENT, RETURNED = 1.0, 2.0
"""Bytes of a number that goes to an expert (FP8) and comes back (BF16)."""


@dataclass(frozen=True)
class ServingStack:
    """What runs where."""

    shape: Shape
    gpu: Gpu
    engine: str
    version: str = ""

    def keys(self, term: str, worker: Worker) -> tuple[str, ...]:
        """Names of the factors of a term: the base, then deviations from the general to this worker."""
        engine, gpu, precision, family = self.engine, self.gpu.name, self.shape.precision, self.gpu.family
        return (
            term,
            f"{term}.{engine}",
            f"{term}.{family}",
            f"{term}.{gpu}",
            f"{term}.{engine}.{precision}",
            f"{term}.{engine}.{self.version or 'any'}",
            f"{term}.{engine}.{worker.kind}",
            f"{term}.{engine}.{family}.{precision}.{worker.kind}",
            f"{term}.{engine}.{gpu}.{precision}.{worker.kind}",
            f"{term}.{engine}.{gpu}.{precision}.{worker.kind}{worker.gpus}",
        )


def touched(shape: Shape, tokens: float) -> float:
    """Share of the experts that a batch of tokens meets, when each token chooses evenly."""
    if not shape.experts:
        return 0.0
    return float(1.0 - (1.0 - shape.per_token / shape.experts) ** tokens)


def busiest(shape: Shape, worker: Worker, batch: float) -> float:
    """Tokens times experts that come to the busiest GPU, over the mean, in units of the batch.

    Balls in bins: the fullest of g bins has about m + sqrt(2 m ln g) of m on average (Raab and Steger, 1998). Experts that
    are popular beyond chance are in the fitted factors.
    """
    if worker.ep == 1 or not shape.experts:
        return 0.0
    return math.sqrt(2 * batch * worker.gpus * math.log(worker.gpus) / shape.per_token)


def _elsewhere(shape: Shape, gpu: Gpu, gpus: int) -> float:
    """Other domains to which prefill sends a token: to each once, which passes it on over its own links (DeepEP)."""
    domains = gpus / gpu.domain
    if domains <= 1:
        return min(shape.per_token, gpus - 1)
    return domains * (1 - (1 - 1 / domains) ** shape.per_token) * (1 - 1 / domains)


def decode_terms(place: ServingStack, worker: Worker, batch: float, context: float) -> dict[str, float]:
    """Seconds at peak of a decode step; `batch`: requests of a worker, `context`: tokens that each looks back at."""
    shape, gpu, kind = place.shape, place.gpu, worker.kind
    rank, gpus = batch / worker.dp, worker.gpus
    cache = shape.cache_numbers / min(worker.tp, shape.cache_heads)
    rate, wire = gpu.rate(shape.precision), gpu.wire(gpus)
    hop = HOP if gpus <= gpu.domain else FAR
    experts = shape.routed_bytes * touched(shape, batch) / gpus
    out = {
        "layer": shape.layers * LAYER,
        "weights": (experts + shape.rest_bytes / worker.tp) / gpu.bandwidth,
        "cache": rank * context * cache / gpu.bandwidth,
        "attention": rank * context * shape.folded_flops / worker.tp / gpu.rate("bf16"),
        "matrices": (
            (batch + busiest(shape, worker, batch)) * shape.routed_flops / gpus + rank * shape.rest_flops / worker.tp
        )
        / rate,
        "request": batch * REQUEST,
    }
    if kind == "tp":
        out |= {"hop.tp": 2 * shape.layers * hop, "wire.tp": 4 * shape.layers * batch * shape.hidden * RETURNED / wire}
    if kind == "dtp":
        out |= {"hop.dtp": 2 * shape.layers * hop, "wire.dtp": 2 * shape.layers * batch * shape.hidden * RETURNED / wire}
    if kind == "dep":
        sent = rank * min(shape.per_token, gpus - 1) * shape.hidden * (SENT + RETURNED)
        out |= {"hop.dep": 2 * shape.expert_layers * hop, "wire.dep": shape.expert_layers * sent / wire}
    return out


def decode_factors(place: ServingStack, worker: Worker, c: Constants) -> dict[str, float]:
    """What each term of a decode step is multiplied by."""
    whole = c.factor(*place.keys("decode", worker))
    names = decode_terms(place, worker, 1, 1)
    return {name: whole * c.factor(f"decode.{name}", f"decode.{name}.{place.engine}") for name in names}


def decoder(place: ServingStack, worker: Worker, context: float, c: Constants) -> Callable[[float], float]:
    """Batch of a worker -> seconds of a decode step."""
    factors = decode_factors(place, worker, c)
    none, some = (decode_terms(place, worker, batch, context) for batch in (0.0, 1.0))
    shape = place.shape
    experts = factors["weights"] * shape.routed_bytes / worker.gpus / place.gpu.bandwidth
    fixed = sum(factors[name] * time for name, time in none.items())
    # All terms grow in proportion to the batch but two: the weights of experts that it meets, and the busiest GPU.
    busy = factors["matrices"] * shape.routed_flops / worker.gpus / place.gpu.rate(shape.precision)
    each = sum(factors[name] * (some[name] - none[name]) for name in some if name != "weights")
    each -= busy * busiest(shape, worker, 1.0)
    return lambda batch: fixed + each * batch + busy * busiest(shape, worker, batch) + experts * touched(shape, batch)


def prefill_terms(place: ServingStack, worker: Worker, length: float, prompt: float) -> dict[str, float]:
    """Seconds at peak of all GPUs of a worker, when every rank has work, for the last `length` tokens of a prompt."""
    shape, gpu, kind = place.shape, place.gpu, worker.kind
    gpus, wire = worker.gpus, gpu.wire(worker.gpus)
    experts = shape.expert_layers * _elsewhere(shape, gpu, gpus) * (SENT + RETURNED) / gpus
    sent = {"tp": 4 * shape.layers * RETURNED, "dtp": 2 * shape.layers * RETURNED, "dep": experts, "alone": 0.0}[kind]
    return {
        "matrices": length * (shape.routed_flops + shape.rest_flops) / gpus / gpu.rate(shape.precision),
        "attention": length * (prompt - length / 2) * shape.pair_flops / gpus / gpu.rate("bf16"),
        f"wire.{kind}": length * shape.hidden * sent / wire,
        "request": shape.layers * LAYER,
    }


def prefill(place: ServingStack, worker: Worker, length: float, prompt: float, c: Constants) -> float:
    """Seconds of a worker for each prompt, when prompts queue."""
    return c.factor(*place.keys("prefill", worker)) * sum(
        time * c.factor(f"prefill.{name}", f"prefill.{name}.{place.engine}")
        for name, time in prefill_terms(place, worker, length, prompt).items()
    )


def alone(place: ServingStack, worker: Worker, length: float, prompt: float, c: Constants) -> float:
    """Seconds until the first token of a prompt that meets no other: a rank's work is not shared by the other ranks."""
    ranks: float = worker.dp ** min(1.0, c.factor("alone.ranks"))
    return FIRST * c.factor("alone.fixed", f"alone.fixed.{place.engine}") + ranks * prefill(place, worker, length, prompt, c)
