"""What is known of a model before it is served: sizes, bytes of weights, widths of matrices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator.api.learned import Facts
from ome_operator.modelinfo.weight_sizes import WeightBytes

BF16, FP8 = "bfloat16", "fp8"
"""Types of the KV cache, as `Facts.kv_bytes_per_token` names them."""


@dataclass(frozen=True)
class ModelFacts:
    """The facts, weights and matrices of a model; None where its files do not state them."""

    name: str
    facts: Facts
    weights: WeightBytes | None
    widths: tuple[int, ...]
    """Columns of the matrices that tensor parallelism cuts."""

    @property
    def layers(self) -> int:
        """Number of layers; 1 if it is unknown, so that a pipeline of one stage has all of them."""
        return self.facts.layers or 1

    @property
    def experts(self) -> int:
        """Routed experts of a layer; 0 for a dense model."""
        return self.facts.experts.routed if self.facts.experts else 0

    @property
    def cache_heads(self) -> int:
        """Among how many GPUs the cache of a token can be divided.

        Latent attention keeps a single cache for all heads, so every GPU has all of it: 1, as for an unknown model.
        """
        attention = self.facts.attention
        return 1 if attention is None or attention.kv_lora_rank else attention.kv_heads

    def cache_bytes(self, cache_type: str) -> int:
        """Bytes that the cache of this type needs for a token over all layers and heads; 0 if they are unknown."""
        return (self.facts.kv_bytes_per_token or {}).get(cache_type, 0)


def cache_type(written: str | None) -> str:
    """Return the type of the KV cache for the value of --kv-cache-dtype; every 8-bit float has the size of FP8."""
    return FP8 if (written or "").startswith(FP8) else BF16


def matrix_widths(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the columns of the matrices that tensor parallelism cuts, from a config.json."""
    return tuple(
        config[name] for name in ("moe_intermediate_size", "intermediate_size") if isinstance(config.get(name), int)
    )
