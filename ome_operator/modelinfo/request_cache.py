"""Calculate from config.json the memory that an engine needs for each request of a model (KV cache, windows, states), and
the part of it that attention reads for each token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ome_operator.api.learned import Attention
from ome_operator.modelinfo import layers as layer_groups
from ome_operator.modelinfo.architecture import FAMILIES, SPARSE, indexing_layers, sliding_layers
from ome_operator.modelinfo.experts import layer_count
from ome_operator.modelinfo.json_fields import Config, string, whole_number
from ome_operator.modelinfo.layer_sizes import CacheEntries, Layers, latent_attention

_WINDOWED = frozenset({"gpt_oss", "llama4_text"})
"""Families in which SGLang 0.5.23 (configs/model_config.py) keeps only a window of tokens in the cache of some layers. For
the other `FAMILIES`, SGLang keeps every token in all layers."""


@dataclass(frozen=True)
class RequestCache:
    """The memory that SGLang 0.5.23 needs for a request, over all layers."""

    numbers: int
    """Number of stored values for each token, each in the data type of the cache."""
    fixed: Fraction = Fraction(0)
    """Additional bytes for each token, which do not depend on the data type of the cache."""
    window: int = 0
    """Largest window of tokens of the layers that keep only a window; 0 if there are no such layers."""
    windowed: int = 0
    """Number of stored values for each token of the window, each in the data type of the cache."""
    state: int = 0
    """Bytes that do not depend on the length of the request: the states of linear attention."""

    def token_bytes(self, number: int) -> int:
        """Return the bytes for each token, without windows. `number` is the size of a stored value in bytes."""
        return math.ceil(self.numbers * number + self.fixed)

    def request_bytes(self, number: int) -> int:
        """Return the maximum number of bytes that a request needs in addition to the bytes for each token: full windows,
        and states.
        """
        return self.window * self.windowed * number + self.state


def request_cache(text: Config, attention_shape: Attention | None) -> RequestCache | None:
    """Return the memory that an engine needs for a request of a model; None if it is unknown."""
    layers, kind = layer_count(text), string(text, "model_type")
    if attention_shape is None or layers is None or kind not in FAMILIES:
        return None
    if kind in layer_groups.FAMILIES:
        return _grouped_cache(layer_groups.groups(text, layers))
    if attention_shape.kv_lora_rank:
        index = _index_bytes(text) if kind in SPARSE else 0
        return RequestCache(
            layers * (attention_shape.kv_lora_rank + (attention_shape.qk_rope_head_dim or 0)), Fraction(layers * index)
        )
    if attention_shape.head_dim is None:
        return None
    windowed = (attention_shape.sliding_layers or 0) if kind in _WINDOWED else 0
    layer = 2 * attention_shape.kv_heads * attention_shape.head_dim
    window = (attention_shape.sliding_window or 0) if windowed else 0
    return RequestCache(layer * (layers - windowed), window=window, windowed=layer * windowed if window else 0)


def _grouped_cache(found: Sequence[Layers] | None) -> RequestCache | None:
    if found is None:
        return None
    return RequestCache(
        numbers=sum(each.layers * each.cached for each in found),
        fixed=sum((each.layers * each.cached_bytes for each in found), Fraction(0)),
        window=max(each.window for each in found),
        windowed=sum(each.layers * each.windowed for each in found),
        state=sum(each.layers * each.state for each in found),
    )


def _index_bytes(text: Config) -> int:
    """Return the bytes that a layer's indexer keeps for a token. SGLang 0.5.23 keeps its keys in FP8, with a scale of 4
    bytes, in every layer.
    """
    return (whole_number(text, "index_head_dim") or 0) + 4


def cache_entries(text: Config, attention_shape: Attention) -> tuple[CacheEntries, ...]:
    """Return the cache entries that attention and indexers read for each token, over all layers.

    Windows count only for the layers that have one. Linear attention reads only its state (`linear_state`).
    """
    layers, kind = layer_count(text) or 0, string(text, "model_type") or ""
    if kind in layer_groups.FAMILIES:
        found = layer_groups.groups(text, layers) or ()
        return tuple(read.times(each.layers) for each in found for read in each.attended)
    seen, heads = attention_shape, attention_shape.heads
    if seen.kv_lora_rank:
        parts = seen.qk_rope_head_dim or 0, seen.qk_nope_head_dim or 0, seen.v_head_dim or 0
        each = latent_attention(heads, seen.kv_lora_rank, *parts).times(layers)
        chosen = _chosen(text, layers) if kind in SPARSE else None
        return (replace(each, most=chosen[0]), chosen[1]) if chosen else (each,)
    width = seen.head_dim or 0
    layer = CacheEntries(numbers=2 * seen.kv_heads * width, operations=4 * heads * width)
    windowed, window = sliding_layers(text, kind)
    both = layer.times(layers - windowed), replace(layer.times(windowed), most=window or 0)
    return tuple(each for each in both if each.numbers)


def _chosen(text: Config, layers: int) -> tuple[int, CacheEntries] | None:
    """Return the largest number of earlier tokens that DeepSeek sparse attention reads for a token, and the cache entries
    that the indexers read to choose these tokens (DeepSeek-V3.2 technical report, section 2). Return None if a size is
    missing.

    Layers of the type `shared` have no indexer that computes. The indexers compute in FP8, and in SGLang 0.5.23
    (layers/attention/dsa/dsa_indexer.py) each rank has all heads of an indexer.
    """
    tokens, heads = whole_number(text, "index_topk"), whole_number(text, "index_n_heads")
    width = whole_number(text, "index_head_dim")
    if not (tokens and heads and width):
        return None
    index = CacheEntries(fixed=_index_bytes(text), operations=2 * heads * width, heads=1, precision="fp8")
    return tokens, index.times(indexing_layers(text, layers))


def linear_state(text: Config) -> int:
    """Return the size in bytes of a request's states of linear attention. Each step reads and writes these states."""
    kind = string(text, "model_type") or ""
    found = layer_groups.groups(text, layer_count(text) or 0) if kind in layer_groups.FAMILIES else None
    return sum(each.layers * each.state for each in found or () if each.heads)
