"""Bytes that a rank of an engine needs on its GPU: weights, cache, and the buffers that SGLang keeps alongside them."""

from collections.abc import Iterable
from typing import NamedTuple

from ome_operator.capacity.model import BF16, ModelFacts
from ome_operator.capacity.shape import ParallelShape

GIB = 2**30
FEWEST_TOKENS = 8192
"""Tokens of cache below which an engine is of no use: a chunk of a prompt."""
DEFAULT_SHARE = 0.9
"""Share of a GPU's memory for weights and cache if no argument gives it; SGLang computes about that for 80 GB and more."""
SHARES = (0.85, 0.88, DEFAULT_SHARE, 0.93)
"""Shares to try, in this order, where a smaller share holds too little."""
PREFILL, DECODE, BOTH = "prefill", "decode", "null"
"""Stages of disaggregated serving, as --disaggregation-mode names them; `BOTH`: an engine that does prefill and decode."""


class EngineOptions(NamedTuple):
    """Arguments of an engine that change its memory, except the sizes of its parallelism. Defaults: as SGLang has them."""

    cache_type: str = BF16
    """Type of the KV cache."""
    stage: str = BOTH
    chunk: int = 8192
    """Tokens of a prompt that all ranks of attention compute in a step together (--chunked-prefill-size)."""
    graph_batch: int = 0
    """Requests of the largest batch that decode captures as a CUDA graph; 0 if there is none or no argument gives it."""
    all_to_all: str = ""
    """Back end that exchanges tokens between experts; "" for none."""
    deepep_mode: str = ""
    """normal, low_latency or auto; "" without DeepEP."""


class Allocation(NamedTuple):
    """A part of a GPU's memory, with the words that name it."""

    name: str
    bytes: float


class Memory(NamedTuple):
    """Bytes that a rank needs on its GPU."""

    routed: float
    """Weights of routed experts."""
    copies: float
    """Weights of copies of busy experts."""
    rest: float
    """Weights of everything else: attention, dense layers, shared experts, embeddings."""
    cache_per_token: int
    """KV cache of a token; 0 if it is unknown."""
    activations: float
    graphs: float
    """Buffers of CUDA graphs."""
    deepep: float
    """Buffers of DeepEP."""

    @property
    def weights(self) -> float:
        """All weights."""
        return self.routed + self.copies + self.rest

    @property
    def smallest_cache(self) -> int:
        """The cache for FEWEST_TOKENS."""
        return self.cache_per_token * FEWEST_TOKENS

    @property
    def needed(self) -> float:
        """What has to fit into the share of the GPU's memory for weights and cache."""
        return self.weights + self.smallest_cache

    @property
    def beside(self) -> float:
        """What has to fit into the memory that the share leaves."""
        return self.activations + self.graphs + self.deepep

    @property
    def needed_parts(self) -> tuple[Allocation, ...]:
        """The parts of `needed` that are not empty."""
        return _parts(
            ("routed experts", self.routed),
            ("their copies", self.copies),
            ("everything else", self.rest),
            (f"cache of {FEWEST_TOKENS:,} tokens", self.smallest_cache),
        )

    @property
    def beside_parts(self) -> tuple[Allocation, ...]:
        """The parts of `beside` that are not empty."""
        return _parts(("activations", self.activations), ("CUDA graphs", self.graphs), ("DeepEP's buffers", self.deepep))

    def cache_tokens(self, available: float) -> int:
        """Tokens for which the cache has space, where `available` bytes are there for weights and cache; 0 or more."""
        if not self.cache_per_token:
            return 0
        return max(0, int((available - self.weights) / self.cache_per_token))


def _parts(*parts: tuple[str, float]) -> tuple[Allocation, ...]:
    return tuple(Allocation(name, size) for name, size in parts if size)


def in_gib(parts: Iterable[Allocation]) -> str:
    """Return the parts as a text such as "routed experts 61.5, everything else 11.2", in GiB."""
    return ", ".join(f"{part.name} {part.bytes / GIB:.1f}" for part in parts)


def memory(model: ModelFacts, shape: ParallelShape, options: EngineOptions) -> Memory | None:
    """Return what a rank of an engine of this shape needs; None if the bytes of the model's weights are unknown.

    The weights that are no routed experts are divided evenly by the stages of a pipeline.
    """
    weights = model.weights
    if weights is None:
        return None
    layers, experts = model.layers, model.experts
    stage = shape.stage_layers(layers)
    cache = model.cache_bytes(options.cache_type) * stage // layers
    graphs, deepep = _decode_buffers(options)
    return Memory(
        routed=weights.routed * stage / (layers * shape.tp),
        copies=weights.routed * stage * shape.redundant / (layers * shape.tp * experts) if experts else 0.0,
        rest=weights.rest * stage / (layers * shape.dense),
        cache_per_token=cache // min(shape.attention_tp, model.cache_heads),
        activations=_activations(shape, options),
        graphs=graphs,
        deepep=deepep,
    )


def _activations(shape: ParallelShape, options: EngineOptions) -> float:
    """Return the bytes of activations, by the sum of SGLang 0.5.23 (arg_groups/memory_hook.py): 1.5 MiB for each token."""
    tokens = options.graph_batch if options.stage == DECODE else options.chunk // shape.attention_dp
    return max(2048, tokens) * 1.5 * 2**20


def _decode_buffers(options: EngineOptions) -> tuple[float, float]:
    """Return the bytes of CUDA graphs (2 MiB for each request, by the same sum), and of DeepEP's buffers (docs/gpu.md).

    DeepEP's kernels for prompts (`normal`) run without CUDA graphs, and so does prefill.
    """
    if not options.graph_batch or options.deepep_mode == "normal" or options.stage == PREFILL:
        return 0.0, 0.0
    return options.graph_batch * 2.0 * 2**20, 2.0 * GIB if options.all_to_all == "deepep" else 0.0
