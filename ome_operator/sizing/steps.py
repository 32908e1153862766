"""Compute the duration of a prefill or decode step from operations, memory traffic and messages between GPUs.

All times are in seconds. A step is a sum of terms. Each term is the time at the hardware's peak rate, multiplied by a fitted
factor from `constants`. The fitted factors include the effect of overlap between terms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ome_operator.sizing.constants import Constants
from ome_operator.sizing.gpus import Gpu
from ome_operator.sizing.shapes import Shape
from ome_operator.sizing.workers import Worker

LAYER = 10e-6
"""Seconds for the kernel launches and small kernels of a layer. A fitted factor multiplies this constant."""
HOP, FAR = 10e-6, 30e-6
"""Seconds for a collective operation without data, within a link domain and between link domains. A fitted factor
multiplies them."""
REQUEST = 1e-6
"""Seconds that a request adds to each step besides the computation of the model (sampling, scheduling). A fitted factor
multiplies this constant."""
FIRST = 0.1
"""Seconds of TTFT that are not part of the prefill step. A fitted factor multiplies this constant."""
SENT, RETURNED = 1.0, 2.0
"""Bytes of a number that is sent to an expert (FP8), and of a number that is returned from an expert (BF16)."""


@dataclass(frozen=True)
class ServingStack:
    """A model, the GPU model on which it runs, and the engine."""

    shape: Shape
    gpu: Gpu
    engine: str
    version: str = ""

    def keys(self, term: str, worker: Worker) -> tuple[str, ...]:
        """Return the names of the constants of a term. The base constant is first; then follow its deviations, from the
        most general to those for this kind and size of worker.
        """
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
    """Return the expected fraction of the experts that at least one of `tokens` tokens selects, if all experts are
    equally likely.
    """
    if not shape.experts:
        return 0.0
    return float(1.0 - (1.0 - shape.per_token / shape.experts) ** tokens)


def busiest(shape: Shape, worker: Worker, batch: float) -> float:
    """Return the load of the busiest GPU beyond the mean load of the GPUs, in the unit of `batch`.

    Formula: with m balls in each of g bins on average, the fullest bin has about m + sqrt(2 m ln g) (Raab and Steger, 1998).
    The fitted factors account for experts that are selected more often than others.
    """
    if worker.ep == 1 or not shape.experts:
        return 0.0
    return math.sqrt(2 * batch * worker.gpus * math.log(worker.gpus) / shape.per_token)


def _elsewhere(shape: Shape, gpu: Gpu, gpus: int) -> float:
    """Return the expected number of transfers of a token to other link domains in prefill. A token is sent to each domain
    at most once, and is forwarded over the links inside that domain (DeepEP).
    """
    domains = gpus / gpu.domain
    if domains <= 1:
        return min(shape.per_token, gpus - 1)
    return domains * (1 - (1 - 1 / domains) ** shape.per_token) * (1 - 1 / domains)


def decode_terms(place: ServingStack, worker: Worker, batch: float, context: float) -> dict[str, float]:
    """Return the seconds of each term of a decode step at peak rates.

    `batch` is the number of requests of the worker. `context` is the number of tokens to which each request attends.
    """
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
    """Return the fitted factor of each term of a decode step."""
    whole = c.factor(*place.keys("decode", worker))
    names = decode_terms(place, worker, 1, 1)
    return {name: whole * c.factor(f"decode.{name}", f"decode.{name}.{place.engine}") for name in names}


def decoder(place: ServingStack, worker: Worker, context: float, c: Constants) -> Callable[[float], float]:
    """Return a function that maps the batch of a worker (a number of requests) to the seconds of a decode step."""
    factors = decode_factors(place, worker, c)
    none, some = (decode_terms(place, worker, batch, context) for batch in (0.0, 1.0))
    shape = place.shape
    experts = factors["weights"] * shape.routed_bytes / worker.gpus / place.gpu.bandwidth
    fixed = sum(factors[name] * time for name, time in none.items())
    # All terms are linear in the batch, except the weights of the experts that are chosen and the load of the busiest GPU.
    busy = factors["matrices"] * shape.routed_flops / worker.gpus / place.gpu.rate(shape.precision)
    each = sum(factors[name] * (some[name] - none[name]) for name in some if name != "weights")
    each -= busy * busiest(shape, worker, 1.0)
    return lambda batch: fixed + each * batch + busy * busiest(shape, worker, batch) + experts * touched(shape, batch)


def prefill_terms(place: ServingStack, worker: Worker, length: float, prompt: float) -> dict[str, float]:
    """Return the seconds of each term of prefill at peak rates, if all ranks of the worker have work.

    `length` is the number of tokens at the end of the prompt that prefill computes. `prompt` is the length of the whole
    prompt.
    """
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
    """Return the mean seconds of a worker for each prompt, while further prompts are queued."""
    return c.factor(*place.keys("prefill", worker)) * sum(
        time * c.factor(f"prefill.{name}", f"prefill.{name}.{place.engine}")
        for name, time in prefill_terms(place, worker, length, prompt).items()
    )


def alone(place: ServingStack, worker: Worker, length: float, prompt: float, c: Constants) -> float:
    """Return the TTFT in seconds of a prompt that is the only one on the worker. The work of its attention rank is not
    divided among the other ranks, so the prompt takes longer than the mean time for each prompt of a queue.
    """
    ranks: float = worker.dp ** min(1.0, c.factor("alone.ranks"))
    return FIRST * c.factor("alone.fixed", f"alone.fixed.{place.engine}") + ranks * prefill(place, worker, length, prompt, c)
