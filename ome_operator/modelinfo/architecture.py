"""Calculate the shapes of a text model from its config.json, and from the shapes the number of parameters and the size of
the KV cache.

The parameters of all tensors are counted layer by layer. The result is correct only for families whose tensors are known;
for every other family `count_parameters` returns None instead of a wrong number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ome_operator.api.learned import Attention, Experts
from ome_operator.modelinfo import layers as layer_groups
from ome_operator.modelinfo.experts import experts, is_dense, layer_count, plain_layers
from ome_operator.modelinfo.json_fields import Config, string, text_part, whole_number

FAMILIES = frozenset(
    {
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2",
        "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_5_vl_text",
        "qwen3_vl_text", "qwen3_vl_moe_text", "glm4_moe", "glm4v_moe_text", "gpt_oss", "llama", "llama4_text", "mistral",
        "mixtral", "minimax_m2", *layer_groups.FAMILIES,
    }
)  # fmt: skip
"""Values of `model_type` for which the parameters can be counted."""
_MINIMAX_M3 = frozenset({"minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"})
_EXPERTS_AS_WIDE = frozenset({"gpt_oss", "llama4_text", "mixtral", "minimax_m2", *_MINIMAX_M3})
"""Families in which `intermediate_size` is the width of one expert."""
_HEADS_SHARE_NOTHING = frozenset({"llama", "deepseek_v2"})
"""Families in which the number of key-value heads equals the number of heads if the config does not contain it."""
_HEAD_DIM: Mapping[str, int] = MappingProxyType(
    {"qwen3": 128, "qwen3_vl_text": 128, "gpt_oss": 64, "minimax_m2": 128, "llama4_text": 128}
)
"""Maps families to the dimension of a head if the config does not contain it. In other families, the dimension is the
hidden size divided by the number of heads."""
_BIASED = frozenset({"glm4v_moe_text", "gpt_oss"})
"""Families in which the attention has biases if the config does not contain `attention_bias`."""
_NEVER_BIASED = frozenset({"mistral", "mixtral", "minimax_m2"})
"""Families that do not read `attention_bias`."""
SPARSE = frozenset({"deepseek_v32", "glm_moe_dsa"})
"""Families with latent attention that have an indexer (DeepSeek sparse attention)."""
_TIED = frozenset({"gemma4", "gemma4_text"})
"""Families in which the embedding is also the output matrix if the config does not contain `tie_word_embeddings`."""
_CORRECTED = frozenset(
    {"gpt_oss", "glm4_moe", "glm4v_moe_text", "minimax_m2", "nemotron_h", "deepseek_v4", "kimi_linear", *_MINIMAX_M3}
)
"""Families whose routers always have a bias for each expert. In other families, the config states whether they do."""
_CHUNK = 8192
"""The window of Llama 4 in tokens if its config does not contain `attention_chunk_size`."""
_Decide = Callable[[bool, bool], bool]
_TIES: Mapping[str, _Decide] = MappingProxyType(
    {
        **dict.fromkeys(
            ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "kimi_k25", "mistral3", "internvl"),
            lambda outer, inner: outer,
        ),
        **dict.fromkeys(("llama4",), lambda outer, inner: inner),
        **dict.fromkeys(("glm4v_moe", "qwen2_5_vl", "llava", "llava_onevision"), lambda outer, inner: outer or inner),
    }
)
"""Maps the `model_type` of a multimodal config to a function. The function decides whether the embedding is also the
output matrix, as the class in transformers 5.24 does. Its arguments are `tie_word_embeddings` of the config and of its
text part."""


@dataclass(frozen=True)
class Count:
    """Numbers of parameters of a text model."""

    total: int
    active: int
    lookups: int = 0
    """Number of parameters of those embeddings of which a token needs a single row."""
    routed: int = 0
    """Number of parameters of all routed experts."""
    shared: int = 0
    """Number of parameters of all shared experts."""
    dense: int = 0
    """Number of parameters of the matrices after attention in layers without experts."""
    attention: int = 0
    """Number of parameters of the attention, without its output matrices."""
    outputs: int = 0
    """Number of parameters of the output matrices of the attention."""
    head: int = 0
    """Number of parameters of the matrix before the last softmax; 0 if it is the embedding."""

    @property
    def parts(self) -> Mapping[str, int]:
        """Parameters of all matrices that can be quantized except routed experts, by the name of the field."""
        names = ("attention", "outputs", "dense", "shared", "head")
        return {name: getattr(self, name) for name in names}


def attention_shape(text: Config) -> Attention | None:
    """Return the shapes of the attention layers, or None if the config does not state the numbers of heads. A value that
    the config does not contain is the default of its family; it is unknown for a family that is not in `FAMILIES`.
    """
    heads, hidden = whole_number(text, "num_attention_heads", "n_heads"), whole_number(text, "hidden_size", "d_model")
    kv_heads = whole_number(text, "num_key_value_heads", "num_attention_groups")
    kind = string(text, "model_type") or ""
    if kv_heads is None and (kind in _HEADS_SHARE_NOTHING or (kind in FAMILIES and "num_key_value_heads" in text)):
        kv_heads = heads
    if not heads or not kv_heads:
        return None
    rank, dimension = whole_number(text, "kv_lora_rank"), whole_number(text, "head_dim", "attention_head_dim")
    if dimension is None and kind in FAMILIES:
        dimension = _HEAD_DIM.get(kind) or (hidden // heads if hidden else None)
    sliding, window = sliding_layers(text, kind)
    fields: dict[str, int | None] = {
        "head_dim": dimension or None,
        "sliding_window": window if sliding else None,
        "sliding_layers": sliding or None,
        "linear_heads": _linear_heads(text, kind) or None,
    }
    if rank:
        names = ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        fields |= {"head_dim": None} | {name: whole_number(text, name) for name in names}
    values = {name: value for name, value in fields.items() if value is not None}
    return Attention(heads=heads, kv_heads=kv_heads, **values)


def _linear_heads(text: Config, kind: str) -> int:
    """Return the number of heads of linear attention, which GPUs divide among themselves; 0 if no layer uses it."""
    found = layer_groups.groups(text, layer_count(text) or 0) if kind in layer_groups.FAMILIES else None
    return max((each.heads for each in found or ()), default=0)


def sliding_layers(text: Config, kind: str) -> tuple[int, int | None]:
    """Return the number of layers whose cache keeps only a window of tokens, and the window in tokens."""
    layers, kinds = layer_count(text), text.get("layer_types")
    if layers is None:
        return 0, None
    if kind == "llama4_text":  # every fourth layer keeps all tokens, as SGLang computes it
        window = whole_number(text, "attention_chunk_size") if "attention_chunk_size" in text else _CHUNK
        return layers - layers // 4 if window else 0, window
    listed = kinds[:layers] if isinstance(kinds, list) else []
    return listed.count("sliding_attention"), whole_number(text, "sliding_window")


def has_tied_embedding(config: Config) -> bool | None:
    """Return whether the embedding is also the output matrix of a model (`tie_word_embeddings`). A config without this field
    has the default of its family: true for Gemma 4, and false for all other `FAMILIES`.

    Return None if the config of a multimodal model and its text part have different values, and the family is not in
    `_TIES`.
    """
    text = text_part(config)
    default = string(text, "model_type") in _TIED
    outer, inner = (bool(part.get("tie_word_embeddings", default)) for part in (config, text))
    if text is config or outer == inner:
        return inner
    decide = _TIES.get(string(config, "model_type") or "")
    return decide(outer, inner) if decide is not None else None


def count_parameters(
    text: Config, attention_shape: Attention | None, mixture: Experts | None, tied: bool | None
) -> Count | None:
    """Return the numbers of parameters, calculated from the shapes of the tensors; None for an unknown family, for a
    missing size, and for a model whose experts are not known. `tied` is the result of `has_tied_embedding`.
    """
    hidden, layers = whole_number(text, "hidden_size"), layer_count(text)
    vocabulary, intermediate = whole_number(text, "vocab_size"), whole_number(text, "intermediate_size")
    kind = string(text, "model_type") or ""
    if not (kind in FAMILIES and attention_shape and hidden and layers and vocabulary) or tied is None:
        return None
    every_layer_has_experts = mixture is not None and mixture.layers == layers
    if not intermediate and not every_layer_has_experts:
        return None
    if mixture is None and not is_dense(text):
        return None
    embedding = vocabulary * hidden
    head = 0 if tied else embedding
    weights = _all_attention(text, kind, hidden, attention_shape, layers)
    if weights is None:
        return None
    inputs, outputs, others, wider, tables = weights
    dense = plain_layers(text, mixture) * _dense_layer(text, kind, hidden, _dense_width(text) or intermediate or 0) + wider
    rest = inputs + outputs + others + hidden + dense
    routed = shared = chosen = 0
    if mixture is not None:
        wide = _expert_width(text)
        if not wide:
            return None
        space = _expert_space(text) or hidden
        expert = _matrices(kind) * space * wide + (2 * wide + hidden if kind == "gpt_oss" else 0)
        shared = mixture.layers * _shared_experts(text, kind, hidden, wide, mixture)
        routed, chosen = mixture.layers * mixture.routed * expert, mixture.layers * mixture.per_token * expert
        rest += mixture.layers * _router(text, kind, hidden, mixture) - _uncorrected(text, mixture) + shared
    # Every token uses the matrix before the last softmax, even if this matrix is the embedding.
    return Count(
        total=embedding + head + tables + rest + routed,
        lookups=tables + (0 if tied else embedding),
        active=embedding + rest + chosen,
        routed=routed,
        shared=shared,
        dense=dense,
        attention=inputs,
        outputs=outputs,
        head=head,
    )


def _matrices(kind: str) -> int:
    """Return the number of matrices in an expert or a dense network: up and down, and in most families a gate."""
    return 2 if kind == "nemotron_h" else 3


def _expert_space(text: Config) -> int | None:
    """Return the width of the vectors that routed experts read and write; None if it is the hidden size of the model."""
    return whole_number(text, "moe_latent_size", "routed_expert_hidden_size")


def _dense_layer(text: Config, kind: str, hidden: int, width: int) -> int:
    return _matrices(kind) * hidden * width + (2 * width + hidden if text.get("mlp_bias") else 0)


def layer_widths(text: Config) -> tuple[int, ...]:
    """Return the width of an expert, then the width of layers without experts. A width is left out if the model has no such
    layers. Return () if one of the widths is not known.
    """
    mixture, dense = experts(text), _dense_width(text)
    if mixture is None:
        return (dense,) if dense and is_dense(text) else ()
    wide = _expert_width(text)
    if not wide:
        return ()
    return (wide, dense) if dense and mixture.layers < (layer_count(text) or 0) else (wide,)


def _expert_width(text: Config) -> int | None:
    kind = string(text, "model_type")
    return whole_number(text, "intermediate_size" if kind in _EXPERTS_AS_WIDE else "moe_intermediate_size")


def _dense_width(text: Config) -> int | None:
    names = ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size")
    return next((width for name in names if (width := whole_number(text, name))), None)


def _all_attention(text: Config, kind: str, hidden: int, seen: Attention, layers: int) -> tuple[int, ...] | None:
    """Return five numbers of parameters, over all layers: of the attention without its output matrices; of these matrices;
    of parts that are never quantized, such as norms; and `wider` and `tables` of `Layers`. None if a size is missing.
    """
    if kind in layer_groups.FAMILIES:
        found = layer_groups.groups(text, layers)
        if found is None:
            return None
        names = ("inputs", "outputs", "others", "wider", "tables")
        return tuple(sum(each.layers * getattr(each, name) for each in found) for name in names)
    inputs, outputs = _attention(text, kind, hidden, seen)
    indexers = _indexers(text, hidden, seen, layers) if kind in SPARSE else 0
    return layers * inputs + indexers, layers * outputs, 2 * layers * hidden, 0, 0


def _indexers(text: Config, hidden: int, seen: Attention, layers: int) -> int:
    """Return the number of parameters of the indexers, which choose the tokens that sparse attention reads."""
    heads, width = whole_number(text, "index_n_heads") or 0, whole_number(text, "index_head_dim") or 0
    return indexing_layers(text, layers) * (
        (seen.q_lora_rank or 0) * heads * width + hidden * width + 2 * width + hidden * heads
    )


def indexing_layers(text: Config, layers: int) -> int:
    """Return how many of the layers have an indexer of their own. Layers of the type `shared` use the choice of an earlier
    layer.
    """
    kinds = text.get("indexer_types")
    return layers - (kinds[:layers].count("shared") if isinstance(kinds, list) else 0)


def _attention(text: Config, kind: str, hidden: int, seen: Attention) -> tuple[int, int]:
    """Return two numbers of parameters of the attention in one layer: outside the output matrix, and in the output matrix.
    `hidden` is the vector width of the model.
    """
    biased = bool(text.get("attention_bias", kind in _BIASED)) and kind not in _NEVER_BIASED
    if seen.kv_lora_rank:
        rank, rope = seen.kv_lora_rank, seen.qk_rope_head_dim or 0
        nope, value = seen.qk_nope_head_dim or 0, seen.v_head_dim or 0
        query = seen.heads * (nope + rope)
        q = hidden * seen.q_lora_rank + seen.q_lora_rank * (query + 1) if seen.q_lora_rank else hidden * query
        biases = (seen.q_lora_rank or 0) + rank + rope if biased else 0
        inputs = q + hidden * (rank + rope) + rank + rank * seen.heads * (nope + value) + biases
        return inputs, seen.heads * value * hidden + (hidden if biased else 0)
    width = seen.head_dim or 0
    queries, keys = seen.heads * width, seen.kv_heads * width
    inputs, outputs = hidden * (queries + 2 * keys), hidden * queries
    if biased or kind.startswith("qwen2"):
        inputs += queries + 2 * keys
    if biased and not kind.startswith(("qwen2", "glm4")):
        outputs += hidden
    if kind == "gpt_oss":  # a sink for each head
        inputs += seen.heads
    if kind == "minimax_m2":  # the norms span all heads
        inputs += queries + keys
    elif kind.startswith("qwen3") or (kind == "glm4_moe" and text.get("use_qk_norm")):
        inputs += 2 * width
    return inputs, outputs


def _router(text: Config, kind: str, hidden: int, mixture: Experts) -> int:
    """Return the number of parameters of one layer's router. They include the gate of a shared expert, and the matrices
    between the vector width of the model and another width of its experts. `hidden` is the vector width of the model.
    """
    corrected = kind in _CORRECTED or text.get("topk_method") == "noaux_tc" or text.get("use_moe_router_bias")
    gate = hidden if whole_number(text, "shared_expert_intermediate_size") else 0
    space = _expert_space(text) or 0
    between = 2 * hidden * space + (space if text.get("latent_moe_use_norm") else 0)
    scales = hidden + mixture.routed if kind == "gemma4_text" else 0
    return mixture.routed * hidden + (mixture.routed if corrected else 0) + gate + between + scales


def _uncorrected(text: Config, mixture: Experts) -> int:
    """Return the number of routing biases that DeepSeek V4 lacks because some layers choose experts by a hash of a token."""
    kinds = text.get("mlp_layer_types")
    if isinstance(kinds, list):
        return kinds[: mixture.layers].count("hash_moe") * mixture.routed
    return min(mixture.layers, whole_number(text, "num_hash_layers") or 0) * mixture.routed


def _shared_experts(text: Config, kind: str, hidden: int, width: int, mixture: Experts) -> int:
    """Return the number of parameters of one layer's shared experts. `width` is the width of a routed expert; the shared
    experts of some families have their own. `hidden` is the vector width of the model.
    """
    names = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim")
    own = next((size for name in names if (size := whole_number(text, name))), None)
    each = whole_number(text, "shared_intermediate_size") or width
    return _matrices(kind) * hidden * (own or mixture.shared * each)


def context(config: Config, text: Config) -> int | None:
    """Return the maximum length in tokens of a sequence for which the model was made, or None if the config does not state
    it.
    """
    names = ("max_position_embeddings", "max_sequence_length", "max_seq_len", "seq_length", "n_positions", "n_ctx")
    return whole_number(text, *names) or whole_number(config, *names)


def format_parameters(parameters: int) -> str:
    """Return a number of parameters in the usual form: 1.03T, 671B, 0.5B."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if parameters >= size:
            return f"{_short(parameters / size)}{unit}"
    return str(parameters)


def _short(value: float) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    formatted = f"{value:.{digits}f}"
    return formatted.rstrip("0").rstrip(".") if "." in formatted else formatted
