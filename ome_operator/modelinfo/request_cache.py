"""Calculate from config.json the memory that an engine needs for each request of a model (KV cache, windows, states), and
the number of operations of attention.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ome_operator.api.learned import Attention
from ome_operator.modelinfo import layers as layer_groups
from ome_operator.modelinfo.architecture import FAMILIES, SPARSE, indexing_layers, sliding_layers
from ome_operator.modelinfo.experts import layer_count
from ome_operator.modelinfo.json_fields import Config, string, whole_number

_WINDOWED = frozenset({"gpt_oss", "llama4_text"})
"""Families in which SGLang 0.5.23 (configs/model_config.py) keeps only a window of tokens in the cache of some layers. It
keeps every token in all layers of the other `FAMILIES`."""


@dataclass(frozen=True)
class RequestCache:
    """The memory that SGLang 0.5.23 needs for a request, over all layers."""

    numbers: int
    """Number of stored values for each token, each in the data type of the cache."""
    fixed: Fraction = Fraction(0)
    """Additional bytes for each token, which do not depend on the data type of the cache."""
    window: int = 0
    """Largest window of tokens of the layers that keep only a window; 0 without such layers."""
    windowed: int = 0
    """Number of stored values for each token of the window, each in the data type of the cache."""
    state: int = 0
    """Bytes that do not depend on the length of the request: the states of linear attention."""

    def token_bytes(self, number: int) -> int:
        """Return the bytes for each token, without windows. `number` is the size of a stored value in bytes."""
        return math.ceil(self.numbers * number + self.fixed)

    def request_bytes(self, number: int) -> int:
        """Return the maximum bytes of a request in addition to those for each token: full windows, and states."""
        return self.window * self.windowed * number + self.state


@dataclass(frozen=True)
class SparseAttention:
    """DeepSeek sparse attention over all layers: an indexer compares a token with all earlier tokens, and attention reads
    only those that the indexer has chosen (DeepSeek-V3.2 technical report, section 2).
    """

    tokens: int
    """Largest number of earlier tokens that are chosen for a token."""
    index_bytes: int
    """Bytes that the indexers of all layers read for each earlier token."""
    index_operations: int
    """Operations of the indexers of all layers for each pair of a token and an earlier token."""


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


def _grouped_cache(found: Sequence[layer_groups.Layers] | None) -> RequestCache | None:
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


def sparse_attention(text: Config) -> SparseAttention | None:
    """Return the sizes of the sparse attention of a model of the families `SPARSE`; None for other models, and if a size is
    missing. In layers of the type `shared`, no indexer computes.
    """
    layers, chosen = layer_count(text), whole_number(text, "index_topk")
    heads, width = whole_number(text, "index_n_heads"), whole_number(text, "index_head_dim")
    if string(text, "model_type") not in SPARSE or not (layers and chosen and heads and width):
        return None
    own = indexing_layers(text, layers)
    return SparseAttention(chosen, own * _index_bytes(text), own * 2 * heads * width)


def complete_layers(text: Config) -> int:
    """Return the number of layers whose attention grows with the number of tokens; 0 if the number of layers is unknown."""
    layers, kind = layer_count(text) or 0, string(text, "model_type") or ""
    if kind in layer_groups.FAMILIES:
        return sum(each.layers for each in layer_groups.groups(text, layers) or () if each.pairs)
    return layers - sliding_layers(text, kind)[0]


def pair_operations(text: Config, attention_shape: Attention) -> tuple[int, int]:
    """Return the operations of attention of all layers for each pair of a token and an earlier token: in prefill, and in
    decode. With sparse attention, only the tokens that are chosen (`SparseAttention`) are earlier tokens in this sense.

    With latent attention (MLA), decode computes on the latent vectors, which needs more operations than prefill.
    """
    complete, heads, kind = complete_layers(text), attention_shape.heads, string(text, "model_type") or ""
    if kind in layer_groups.FAMILIES:
        found = layer_groups.groups(text, layer_count(text) or 0) or ()
        pair = sum(each.layers * each.pairs for each in found)
    elif attention_shape.kv_lora_rank:
        parts = attention_shape.qk_nope_head_dim, attention_shape.qk_rope_head_dim, attention_shape.v_head_dim
        pair = 2 * heads * sum(part or 0 for part in parts) * complete
    else:
        pair = 4 * heads * (attention_shape.head_dim or 0) * complete
    if not attention_shape.kv_lora_rank:
        return pair, pair
    return pair, 2 * heads * (2 * attention_shape.kv_lora_rank + (attention_shape.qk_rope_head_dim or 0)) * complete
