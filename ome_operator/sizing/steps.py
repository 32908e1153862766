"""Compute the duration of a prefill or decode step from operations, memory traffic and messages between GPUs.

All times are in seconds. A step is a sum of terms. Each term is the time at the hardware's peak rate, multiplied by a fitted
factor from `constants`. The fitted factors include the effect of overlap between terms.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ome_operator.capacity.division import redundant_experts
from ome_operator.modelinfo.layer_sizes import CacheEntries
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
"""Seconds that a request adds to each step for sampling and scheduling, in addition to the computation of the model. A
fitted factor multiplies this constant."""
FIRST = 0.1
"""Seconds of TTFT that are not part of the prefill step. A fitted factor multiplies this constant."""
SENT, RETURNED = 1.0, 2.0
"""Bytes of a number that is sent to an expert (FP8), and of a number that is returned from an expert (BF16)."""


KERNELS = frozenset({"weights", "cache", "attention", "matrices", "experts"})
"""The terms that describe the work of kernels on one GPU. Each family of GPUs has its own factors for them."""
_DATA = ("wire", "far")
"""The first words of the names of the terms that describe the transfer of data."""
PAIR, TOGETHER = "pair", "together"
"""How engines serve: prefill and decode on different GPUs (disaggregation), or both on the same GPUs."""


@dataclass(frozen=True)
class ServingStack:
    """A model, the GPU model on which it runs, and the engine."""

    shape: Shape
    gpu: Gpu
    engine: str
    version: str = ""

    def term_keys(self, phase: str, term: str) -> tuple[str, ...]:
        """Return the names of the constants whose product is the factor of a term of `phase` (prefill or decode)."""
        if term in KERNELS:
            kernel = "attention" if term == "cache" else term  # a kernel of attention reads while it computes
            return (f"{phase}.{kernel}.{self.gpu.family}",)
        return f"{phase}.{term}", f"{phase}.{term}.{self.engine}"

    def phase_keys(self, phase: str, worker: Worker, mode: str) -> tuple[str, ...]:
        """Return the names of the constants whose product multiplies all terms of `phase` (prefill or decode).

        No such constant names a GPU: two GPUs of a family differ only in the numbers of their data sheets. So a GPU that is
        better in every number is never predicted to be slower than another GPU of its family.
        """
        engine, family, precision = self.engine, self.gpu.family, self.shape.precision
        return (
            f"{phase}.{engine}",
            f"{phase}.{family}",
            f"{phase}.{engine}.{precision}",
            f"{phase}.{engine}.{self.version or 'any'}",
            f"{phase}.{engine}.{worker.kind}",
            f"{phase}.{engine}.{mode}.{family}.{precision}.{worker.kind}",
            f"{phase}.{engine}.{self.shape.facts.model_type or 'unknown'}",
            f"{phase}.{engine}.{mode}" + (f".{worker.kind}{worker.gpus}" if mode == PAIR else ""),
        )

    def wait_keys(self, part: str, mode: str) -> tuple[str, ...]:
        """Return the names of the constants whose product is the factor of a part of TTFT: `fixed`, `burst`, `queue` or
        `ranks`.
        """
        name = f"{mode}.{part}"
        return name, f"{name}.{self.engine}", f"{name}.{self.engine}.{self.version or 'any'}"


def expected_expert_fraction(shape: Shape, tokens: float, slots: int = 0) -> float:
    """Return the expected fraction of the experts that at least one of `tokens` tokens selects, if all experts are
    equally likely. `slots` is the number of experts with redundant copies; 0 if there are none.
    """
    if not shape.experts:
        return 0.0
    return float(1.0 - (1.0 - shape.per_token / (slots or shape.experts)) ** tokens)


def busiest_gpu_excess(shape: Shape, worker: Worker, batch: float) -> float:
    """Return by how much the load of the busiest GPU exceeds the mean load of the GPUs, in the unit of `batch` (requests of
    the worker).

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


def spread_slots(shape: Shape, worker: Worker) -> int:
    """Return the number of experts of a layer that a decode worker holds, including redundant copies."""
    if worker.kind != "dep" or not shape.experts:
        return shape.experts
    return shape.experts + redundant_experts(shape.experts, worker.gpus, 1)


def decode_terms(place: ServingStack, worker: Worker, batch: float, context: float) -> dict[str, float]:
    """Return how many seconds each term of a decode step takes at peak rates.

    `batch` is the number of requests of the worker. `context` is the number of tokens to which each request attends.
    Kernels of attention read while they compute, so `attention` is only the time by which their operations take longer than
    reading `cache`. Each attention rank has a scheduler of its own, so `request` is the time of the requests of a rank.
    """
    shape, gpu, kind = place.shape, place.gpu, worker.kind
    rank, gpus = batch / worker.dp, worker.gpus
    reading, computing = attention_seconds(place, worker, context)
    out = {
        "layer": shape.layers * LAYER,
        "weights": expert_reads(place, worker) * expected_expert_fraction(shape, batch, spread_slots(shape, worker))
        + shape.rest_bytes / worker.tp / gpu.bandwidth,
        "cache": rank * reading,
        "attention": rank * max(0.0, computing - reading),
        "matrices": (batch + busiest_gpu_excess(shape, worker, batch)) * routed_seconds(place) / gpus
        + rank * rest_seconds(place) / worker.tp,
        "request": rank * REQUEST,
    }
    if shape.experts:
        out["moe"] = shape.expert_layers * LAYER
    if kind in ("tp", "dtp"):
        out |= {f"hop.{kind}": 2 * shape.layers * _all_reduce_latency(gpu, gpus), **_all_reduce(place, worker, batch)}
    if kind == "dep":
        hop = HOP if gpus <= gpu.domain else FAR
        sent = rank * _destinations(shape, gpus) * shape.hidden * (SENT + RETURNED)
        wire = shape.expert_layers * sent / gpu.bandwidth_within(gpus)
        out |= {"hop.dep": 2 * shape.expert_layers * hop, f"{_wire(place, gpus)}.dep": wire}
    return out


def _all_reduce_latency(gpu: Gpu, gpus: int) -> float:
    """Return the seconds of an all-reduce without data. Between link domains, the time grows as in NCCL's trees (2.4)."""
    domains = -(-gpus // gpu.domain)
    return HOP if domains == 1 else FAR * math.log2(domains)


def _all_reduce(place: ServingStack, worker: Worker, tokens: float) -> dict[str, float]:
    """Return the seconds, by term, of the two all-reduces of each layer, for `tokens` tokens, at the links' bandwidth.

    A GPU sends its data once over the links of its domain, because a switch adds the numbers (NVLink SHARP). Between n
    domains, it sends 2 (n - 1) / n of its share of the sums of its domain, because every GPU has its own network adapter
    (hierarchical all-reduce; the formula is that of the performance notes of nccl-tests).
    """
    shape, gpu, gpus = place.shape, place.gpu, worker.gpus
    sent = 2 * shape.layers * tokens * shape.hidden * RETURNED
    out = {f"wire.{worker.kind}": sent * (1 - 1 / gpus) / gpu.link}
    if gpus > gpu.domain:
        out[f"far.{worker.kind}"] = 2 * sent * (1 / gpu.domain - 1 / gpus) / gpu.network
    return out


def routed_seconds(place: ServingStack) -> float:
    """Return how many seconds the operations of a token in routed experts take at the peak rate."""
    return place.shape.routed_flops / place.gpu.rate(place.shape.precision)


def rest_seconds(place: ServingStack) -> float:
    """Return how many seconds the operations of a token outside routed experts and attention take at the peak rates."""
    return sum(number / place.gpu.rate(precision) for precision, number in place.shape.rest_flops.items())


def head_seconds(place: ServingStack) -> float:
    """Return how many seconds the output projection to the vocabulary (LM head) takes for one token at the peak rate.
    Prefill computes it only for the last token of a prompt. The projection is in BF16 unless a checkpoint quantizes it.
    """
    shape, gpu = place.shape, place.gpu
    plain = shape.rest_flops.get("bf16", 0.0) >= shape.head_flops
    return shape.head_flops / (gpu.rate("bf16") if plain else max(gpu.rate(each) for each in shape.rest_flops))


def attention_seconds(place: ServingStack, worker: Worker, context: float) -> tuple[float, float]:
    """Return two times of a GPU for the attention of one token of a decode step, in seconds at peak rates: the time to read
    the cache, and the time to compute. The first time includes the states of linear attention, which a step reads and
    writes. `context` is the number of earlier tokens.
    """
    shape, seconds = place.shape, 0.0
    heads, read = min(worker.tp, shape.cache_heads), 2.0 * shape.state / min(worker.tp, shape.state_heads)
    for each in shape.attended:
        entries = context / each.every
        entries = min(entries, each.most) if each.most else entries
        read += entries * (each.numbers / heads + each.fixed)
        seconds += entries * each.operations / _sharing(worker, each) / place.gpu.rate(each.precision)
    return read / place.gpu.bandwidth, seconds


def _sharing(worker: Worker, each: CacheEntries) -> int:
    """Return the number of GPUs of a worker that divide the operations of attention of a token. `each` are the cache entries
    that the attention reads.
    """
    return min(worker.tp, each.heads) if each.heads else worker.tp


def _prompt_attention(place: ServingStack, worker: Worker, length: float, prompt: float) -> float:
    """Return how many seconds the attention of prefill takes at the peak rate. The arguments are those of `prefill_terms`.

    With latent attention (MLA), SGLang 0.5.23 (layers/attention/dsa_backend.py) computes on the latent vectors only if
    sparse attention does not read all tokens of the prompt.
    """
    seconds = 0.0
    for each in place.shape.attended:
        every = not each.most or prompt <= each.most * each.every
        operations = each.of_prompts or each.operations if every else each.operations
        number = pairs(length, prompt, each.every, each.most)
        seconds += number * operations / (worker.dp * _sharing(worker, each)) / place.gpu.rate(each.precision)
    return seconds


def pairs(length: float, prompt: float, every: int, most: int) -> float:
    """Return the number of pairs of a token and an entry of the cache, for the last `length` tokens of a prompt. A token
    reads an entry for each `every` earlier tokens, but at most `most`; 0 means that there is no limit.
    """
    first, full = prompt - length, most * every if most else prompt
    below = max(0.0, min(prompt, full) - first)  # number of tokens that read fewer than `most` entries
    return below * (first + below / 2) / every + (length - below) * most


def _wire(place: ServingStack, gpus: int) -> str:
    """Return the first word of the name of the term for the data of messages: `wire` over the links of a domain, such as
    NVLink, and `far` over the network. Links and network reach different fractions of their bandwidth.
    """
    return "wire" if gpus <= place.gpu.domain else "far"


def _destinations(shape: Shape, gpus: int) -> float:
    """Return the expected number of other GPUs to which a token is sent, if all experts are equally likely."""
    return (gpus - 1) * float(1 - (1 - 1 / gpus) ** shape.per_token)


def expert_reads(place: ServingStack, worker: Worker) -> float:
    """Return the seconds in which a GPU of a decode worker reads all its routed experts, including redundant copies, at
    full memory bandwidth.
    """
    shape = place.shape
    copies = spread_slots(shape, worker) / shape.experts if shape.experts else 0.0
    return shape.routed_bytes * copies / worker.gpus / place.gpu.bandwidth


def floor(terms: Mapping[str, float]) -> float:
    """Return the shortest possible time of a step. It is the time of a GPU that reads, computes and sends at the rates of
    its data sheet, and does all of this at the same time. `terms` maps the terms of the step to seconds at peak rates.
    """
    cache = terms.get("cache", 0.0)
    read = terms.get("weights", 0.0) + cache
    computed = max(terms["matrices"] + terms.get("experts", 0.0), cache + terms["attention"])
    return max(read, computed, *(time for name, time in terms.items() if name.startswith(_DATA)), 0.0)


def is_at_least_one(term: str) -> bool:
    """Return whether the factor of a term is at least 1: no kernel and no message is faster than the rates of the GPU's
    data sheet.
    """
    return term in KERNELS or term.startswith(_DATA)


def _term_factor(place: ServingStack, phase: str, term: str, whole: float, c: Constants) -> float:
    """Return the factor of a term. `whole` is the factor of all terms of the phase."""
    factor = whole * c.factor(*place.term_keys(phase, term))
    return max(1.0, factor) if is_at_least_one(term) else factor


def decode_factors(place: ServingStack, worker: Worker, c: Constants, mode: str = PAIR) -> dict[str, float]:
    """Return the fitted factor of each term of a decode step."""
    whole = c.factor(*place.phase_keys("decode", worker, mode))
    names = decode_terms(place, worker, 1, 1)
    return {name: _term_factor(place, "decode", name, whole, c) for name in names}


def decoder(place: ServingStack, worker: Worker, context: float, c: Constants, mode: str = PAIR) -> Callable[[float], float]:
    """Return a function that maps the batch of a worker (a number of requests) to the seconds of a decode step."""
    factors = decode_factors(place, worker, c, mode)
    none, some = (decode_terms(place, worker, batch, context) for batch in (0.0, 1.0))
    shape = place.shape
    experts, slots = factors["weights"] * expert_reads(place, worker), spread_slots(shape, worker)
    fixed = sum(factors[name] * time for name, time in none.items())
    # All terms are linear in the batch, except the weights of the experts that are chosen and the load of the busiest GPU.
    busy = factors["matrices"] * routed_seconds(place) / worker.gpus
    each = sum(factors[name] * (some[name] - none[name]) for name in some if name != "weights")
    each -= busy * busiest_gpu_excess(shape, worker, 1.0)
    return lambda batch: (
        fixed
        + each * batch
        + busy * busiest_gpu_excess(shape, worker, batch)
        + experts * expected_expert_fraction(shape, batch, slots)
    )


def prefill_terms(place: ServingStack, worker: Worker, length: float, prompt: float) -> dict[str, float]:
    """Return how many seconds each term of prefill takes at peak rates, if all ranks of the worker have work.

    `length` is the number of tokens at the end of the prompt that prefill computes. `prompt` is the length of the whole
    prompt.
    """
    shape, gpu, kind = place.shape, place.gpu, worker.kind
    gpus = worker.gpus
    out = {"experts": length * routed_seconds(place) / gpus} if shape.experts else {}
    if kind in ("tp", "dtp"):
        out |= _all_reduce(place, worker, length)
    if kind == "dep":
        sent = length * shape.hidden * _elsewhere(shape, gpu, gpus) * (SENT + RETURNED) / gpus
        out[f"{_wire(place, gpus)}.dep"] = shape.expert_layers * sent / gpu.bandwidth_within(gpus)
    return out | {
        "matrices": (length * rest_seconds(place) - (length - 1) * head_seconds(place)) / gpus,
        "attention": _prompt_attention(place, worker, length, prompt),
        "request": shape.layers * LAYER,
    }


def prefill_factors(place: ServingStack, worker: Worker, c: Constants, mode: str = PAIR) -> dict[str, float]:
    """Return the fitted factor of each term of prefill."""
    whole = c.factor(*place.phase_keys("prefill", worker, mode))
    return {name: _term_factor(place, "prefill", name, whole, c) for name in prefill_terms(place, worker, 1, 1)}


def prefill(place: ServingStack, worker: Worker, length: float, prompt: float, c: Constants, mode: str = PAIR) -> float:
    """Return the mean seconds that a worker needs for a prompt while further prompts are queued. The arguments `length` and
    `prompt` are those of `prefill_terms`.
    """
    factors = prefill_factors(place, worker, c, mode)
    return sum(time * factors[name] for name, time in prefill_terms(place, worker, length, prompt).items())


def single_prompt_ttft(
    place: ServingStack, worker: Worker, length: float, prompt: float, c: Constants, mode: str = PAIR
) -> float:
    """Return the TTFT in seconds of a prompt that is the only one on the worker. The work of its attention rank is not
    divided among the other ranks, so the prompt takes longer than the mean time for each prompt of a queue.
    """
    ranks: float = worker.dp ** max(0.0, min(1.0, c.factor(*place.wait_keys("ranks", mode))))
    return FIRST * c.factor(*place.wait_keys("fixed", mode)) + ranks * prefill(place, worker, length, prompt, c, mode)
