"""Compute the bytes that a rank of an engine needs on its GPU: weights, KV cache, and the buffers that SGLang allocates
in addition.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ome_operator.capacity.model import BF16, ModelFacts
from ome_operator.capacity.shape import ParallelShape

GIB = 2**30
FEWEST_TOKENS = 8192
"""Smallest useful size of the KV cache, in tokens: one chunk of a prompt."""
DEFAULT_SHARE = 0.9
"""Fraction of a GPU's memory for weights and KV cache if no argument sets it. SGLang computes about this value for GPUs
with 80 GB or more."""
SHARES = (0.85, 0.88, DEFAULT_SHARE, 0.93)
"""Fractions of a GPU's memory for weights and KV cache. They are tried in this order if a smaller fraction is not enough."""
PREFILL, DECODE, BOTH = "prefill", "decode", "null"
"""Stages of disaggregated serving, named as in --disaggregation-mode. `BOTH` stands for an engine that does both prefill
and decode."""


class EngineOptions(NamedTuple):
    """The arguments of an engine that change its memory, other than its parallel sizes. The defaults are the defaults of
    SGLang.
    """

    cache_type: str = BF16
    """Data type of the KV cache."""
    stage: str = BOTH
    chunk: int = 8192
    """Number of tokens of prompts that all attention ranks together compute in a step (--chunked-prefill-size)."""
    graph_batch: int = 0
    """Largest batch for which decode captures CUDA graphs, in requests; 0 if decode captures no CUDA graphs, or if no
    argument sets the batch."""
    all_to_all: str = ""
    """Backend of the all-to-all exchange of tokens between experts; "" if there is none."""
    deepep_mode: str = ""
    """Mode of DeepEP: `normal`, `low_latency` or `auto`; "" without DeepEP."""


class Allocation(NamedTuple):
    """A named part of a GPU's memory."""

    name: str
    bytes: float


class Memory(NamedTuple):
    """The memory that a rank needs on its GPU, in bytes."""

    routed: float
    """Bytes of the weights of routed experts."""
    copies: float
    """Bytes of the weights of redundant copies of busy experts."""
    other_weights: float
    """Bytes of all other weights: attention, dense layers, shared experts and embeddings."""
    cache_per_token: int
    """Bytes of the KV cache for one token; 0 if unknown."""
    activations: float
    graphs: float
    """Bytes of the buffers of CUDA graphs."""
    deepep: float
    """Bytes of the buffers of DeepEP."""

    @property
    def weights(self) -> float:
        """Bytes of all weights."""
        return self.routed + self.copies + self.other_weights

    @property
    def smallest_cache(self) -> int:
        """Bytes of the KV cache for FEWEST_TOKENS tokens."""
        return self.cache_per_token * FEWEST_TOKENS

    @property
    def reserved_share_bytes(self) -> float:
        """Bytes that have to fit into the fraction of GPU memory that is reserved for weights and KV cache."""
        return self.weights + self.smallest_cache

    @property
    def unreserved_share_bytes(self) -> float:
        """Bytes that have to fit into the GPU memory that is not reserved for weights and KV cache."""
        return self.activations + self.graphs + self.deepep

    @property
    def needed_parts(self) -> tuple[Allocation, ...]:
        """The parts of `reserved_share_bytes` that are not empty, each with its name."""
        return _parts(
            ("routed experts", self.routed),
            ("their copies", self.copies),
            ("everything else", self.other_weights),
            (f"cache of {FEWEST_TOKENS:,} tokens", self.smallest_cache),
        )

    @property
    def beside_parts(self) -> tuple[Allocation, ...]:
        """The parts of `unreserved_share_bytes` that are not empty, each with its name."""
        return _parts(("activations", self.activations), ("CUDA graphs", self.graphs), ("DeepEP's buffers", self.deepep))

    def cache_tokens(self, available: float) -> int:
        """Return the number of tokens for which the KV cache has space if `available` bytes can be used for weights and
        KV cache.
        """
        if not self.cache_per_token:
            return 0
        return max(0, int((available - self.weights) / self.cache_per_token))


def _parts(*parts: tuple[str, float]) -> tuple[Allocation, ...]:
    return tuple(Allocation(name, size) for name, size in parts if size)


def in_gib(parts: Iterable[Allocation]) -> str:
    """Return the names and sizes of the parts as a text such as "routed experts 61.5, everything else 11.2", in GiB."""
    return ", ".join(f"{part.name} {part.bytes / GIB:.1f}" for part in parts)


def memory(model: ModelFacts, shape: ParallelShape, options: EngineOptions) -> Memory | None:
    """Return the memory that a rank of an engine with this shape needs. Return None if the size of the model's weights is
    unknown.

    Weights other than routed experts are divided evenly by the number of pipeline stages.
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
        other_weights=weights.rest * stage / (layers * shape.dense),
        cache_per_token=cache // min(shape.attention_tp, model.cache_heads),
        activations=_activations(shape, options),
        graphs=graphs,
        deepep=deepep,
    )


def _activations(shape: ParallelShape, options: EngineOptions) -> float:
    """Return the bytes of activations, which are 1.5 MiB for each token. SGLang 0.5.23 uses the same formula
    (arg_groups/memory_hook.py).
    """
    tokens = options.graph_batch if options.stage == DECODE else options.chunk // shape.attention_dp
    return max(2048, tokens) * 1.5 * 2**20


def _decode_buffers(options: EngineOptions) -> tuple[float, float]:
    """Return the bytes of CUDA graphs and the bytes of DeepEP's buffers. CUDA graphs need 2 MiB for each request, by a
    formula in the same file of SGLang. DeepEP's buffers are assumed to need 2 GiB.

    Both are 0 for prefill and for DeepEP's `normal` kernels, which run without CUDA graphs.
    """
    if not options.graph_batch or options.deepep_mode == "normal" or options.stage == PREFILL:
        return 0.0, 0.0
    return options.graph_batch * 2.0 * 2**20, 2.0 * GIB if options.all_to_all == "deepep" else 0.0
