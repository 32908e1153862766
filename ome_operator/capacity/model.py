"""The facts of a model that are known before it is served: its sizes, the bytes of its weights, and the widths of its
matrices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator.api.learned import Facts
from ome_operator.modelinfo.architecture import layer_widths
from ome_operator.modelinfo.json_fields import text_part
from ome_operator.modelinfo.weight_sizes import WeightBytes

BF16, FP8 = "bfloat16", "fp8"
"""Data types of the KV cache, named as in `Facts.kv_bytes_per_token`."""


@dataclass(frozen=True)
class ModelFacts:
    """The facts, weights and matrices of a model. A fact is None if the model's files do not state it."""

    name: str
    facts: Facts
    weights: WeightBytes | None
    widths: tuple[int, ...]
    """Numbers of columns of the matrices that tensor parallelism cuts: for an MoE model, first the width of an
    expert, then the width of the layers without experts, if the model has such layers."""
    names_code: bool = False
    """Whether config.json names Python code that is stored with the weights (`auto_map`); False if it is not known."""

    @property
    def layers(self) -> int:
        """The number of layers; 1 if unknown, so that a pipeline of one stage has all layers."""
        return self.facts.layers or 1

    @property
    def experts(self) -> int:
        """The number of routed experts in a layer; 0 for a dense model."""
        return self.facts.experts.routed if self.facts.experts else 0

    @property
    def cache_heads(self) -> int:
        """The largest number of GPUs among which the KV cache of a token can be divided.

        Latent attention (MLA) keeps a single cache for all heads, so every GPU holds all of it. The value is then 1, as for
        a model whose attention is unknown.
        """
        attention = self.facts.attention
        return 1 if attention is None or attention.kv_lora_rank else attention.kv_heads

    def cache_bytes(self, cache_type: str) -> int:
        """Return the bytes of the KV cache for one token, over all layers and heads, if the cache has this data type; 0
        if unknown.
        """
        return (self.facts.kv_bytes_per_token or {}).get(cache_type, 0)


def cache_type(written: str | None) -> str:
    """Return the data type of the KV cache for a value of --kv-cache-dtype. All 8-bit floating-point types are represented
    by FP8, because they have the same size. `written` is None if the flag is not set.
    """
    return FP8 if (written or "").startswith(FP8) else BF16


def matrix_widths(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return `ModelFacts.widths` from the content of a config.json; () for an MoE model whose experts are not known."""
    return layer_widths(text_part(config))
