"""Calculate the shapes of a text model from its config.json, and from the shapes the number of parameters and the size of
the KV cache.

The parameters of all tensors are counted layer by layer. The result is correct only for families whose tensors are known;
for every other family `count_parameters` returns None instead of a wrong number.
"""

from dataclasses import dataclass

from ome_operator.api.learned import Attention, Experts
from ome_operator.modelinfo.json_fields import Config, string, whole_number

FAMILIES = frozenset(
    {
        "deepseek_v2", "deepseek_v3", "kimi_k2", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_5_vl_text",
        "qwen3_vl_text", "qwen3_vl_moe_text", "glm4_moe", "glm4v_moe_text", "gpt_oss", "llama", "llama4_text", "mistral",
        "mixtral", "minimax_m2",
    }
)  # fmt: skip
"""Values of `model_type` for which the parameters can be counted."""
_EXPERTS_AS_WIDE = frozenset({"gpt_oss", "llama4_text", "mixtral", "minimax_m2"})
"""Families in which `intermediate_size` is the width of one expert."""
_MOST_LAYERS = 10_000
"""Maximum number of layers whose experts are counted, because they are counted one by one."""


@dataclass(frozen=True)
class Count:
    """Numbers of parameters of a text model."""

    total: int
    active: int
    routed: int = 0
    """Number of parameters of all routed experts."""


def experts(text: Config) -> Experts | None:
    """Return the experts of a model; None for a dense model, and if the config does not state the number of experts per
    token.
    """
    routed = whole_number(text, "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
    per_token = whole_number(text, "num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "top_k")
    layers = whole_number(text, "num_hidden_layers")
    if not routed or not per_token or layers is None or layers > _MOST_LAYERS:
        return None
    shared = whole_number(text, "n_shared_experts", "num_shared_experts")
    if shared is None:
        shared = 1 if whole_number(text, "shared_expert_intermediate_size") or text.get("model_type") == "llama4_text" else 0
    return Experts(routed=routed, shared=shared, per_token=per_token, layers=_layers_with_experts(text, layers))


def _layers_with_experts(text: Config, layers: int) -> int:
    named = text.get("moe_layers")
    if isinstance(named, list) and named:
        return len(named)
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(value == 1 for value in frequency)
    step = whole_number(text, "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq") or 1
    first = whole_number(text, "first_k_dense_replace") or 0
    listed = text.get("mlp_only_layers")
    dense = {number for number in listed if type(number) is int} if isinstance(listed, list) else set()
    if "first_k_dense_replace" in text:  # DeepSeek numbers the layers from 0, the other families from 1
        return sum(number >= first and number % step == 0 for number in range(layers))
    return sum((number + 1) % step == 0 and number not in dense for number in range(layers))


def attention(text: Config) -> Attention | None:
    """Return the shapes of the attention layers, or None if the config does not state the number of heads."""
    heads, hidden = whole_number(text, "num_attention_heads", "n_heads"), whole_number(text, "hidden_size", "d_model")
    if not heads:
        return None
    rank = whole_number(text, "kv_lora_rank")
    layer_kinds = text.get("layer_types")
    sliding = sum(kind == "sliding_attention" for kind in layer_kinds) if isinstance(layer_kinds, list) else 0
    fields: dict[str, int | None] = {
        "head_dim": whole_number(text, "head_dim") or (hidden // heads if hidden and not rank else None),
        "sliding_window": whole_number(text, "sliding_window") if sliding else None,
        "sliding_layers": sliding or None,
    }
    if rank:
        names = ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        fields |= {"head_dim": None} | {name: whole_number(text, name) for name in names}
    values = {name: value for name, value in fields.items() if value is not None}
    return Attention(heads=heads, kv_heads=whole_number(text, "num_key_value_heads") or heads, **values)


def cache_numbers_per_token(text: Config, attention_shape: Attention | None) -> int | None:
    """Return how many numbers the KV cache stores per token, over all layers that store every token (without
    sliding-window layers); None if unknown.
    """
    layers = whole_number(text, "num_hidden_layers")
    if attention_shape is None or layers is None or not _is_known_family(text):
        return None
    if attention_shape.kv_lora_rank:
        return layers * (attention_shape.kv_lora_rank + (attention_shape.qk_rope_head_dim or 0))
    if attention_shape.head_dim is None:
        return None
    return 2 * attention_shape.kv_heads * attention_shape.head_dim * (layers - (attention_shape.sliding_layers or 0))


def _is_known_family(text: Config) -> bool:
    return string(text, "model_type") in FAMILIES


def count_parameters(text: Config, attention_shape: Attention | None, mixture: Experts | None, tied: bool) -> Count | None:
    """Return the numbers of parameters, calculated from the shapes of the tensors; None for an unknown family or a
    missing size. `tied` is true if the embedding is also the output matrix.
    """
    hidden, layers = whole_number(text, "hidden_size"), whole_number(text, "num_hidden_layers")
    vocabulary, intermediate = whole_number(text, "vocab_size"), whole_number(text, "intermediate_size")
    if not (_is_known_family(text) and attention_shape and hidden and layers and vocabulary and intermediate):
        return None
    embedding = vocabulary * hidden
    head = 0 if tied else embedding
    attention_and_norms = layers * (_attention(text, hidden, attention_shape) + 2 * hidden) + hidden
    dense_width = whole_number(text, "intermediate_size_mlp") or intermediate
    if mixture is None:
        body = attention_and_norms + layers * 3 * hidden * dense_width
        return Count(embedding + head + body, embedding + body)
    expert, shared = _expert(text, hidden, intermediate), _router_and_shared_experts(text, hidden, intermediate, mixture)
    dense = (layers - mixture.layers) * 3 * hidden * dense_width
    body = attention_and_norms + dense + mixture.layers * shared
    routed = mixture.layers * mixture.routed * expert
    total = body + routed
    # Every token uses the matrix before the last softmax, also where that matrix is the embedding itself.
    return Count(embedding + head + total, embedding + body + mixture.layers * mixture.per_token * expert, routed)


def _attention(text: Config, hidden: int, seen: Attention) -> int:
    """Return the number of parameters of the attention in one layer."""
    if seen.kv_lora_rank:
        rank, rope = seen.kv_lora_rank, seen.qk_rope_head_dim or 0
        nope, value = seen.qk_nope_head_dim or 0, seen.v_head_dim or 0
        query = seen.heads * (nope + rope)
        q = hidden * seen.q_lora_rank + seen.q_lora_rank * (query + 1) if seen.q_lora_rank else hidden * query
        return q + hidden * (rank + rope) + rank + rank * seen.heads * (nope + value) + seen.heads * value * hidden
    width = seen.head_dim or 0
    queries, keys = seen.heads * width, seen.kv_heads * width
    kind = string(text, "model_type") or ""
    extra = 0
    if text.get("attention_bias") or kind.startswith("qwen2"):
        extra += queries + 2 * keys
    if kind == "gpt_oss":  # a bias of the output, and a sink for each head
        extra += hidden + seen.heads
    if kind.startswith("qwen3") or (kind != "llama4_text" and text.get("use_qk_norm")):  # Llama 4's norm has no weights
        extra += 2 * width
    return hidden * (2 * queries + 2 * keys) + extra


def _expert(text: Config, hidden: int, inner: int) -> int:
    """Return the number of parameters of one routed expert."""
    width = inner if text.get("model_type") in _EXPERTS_AS_WIDE else whole_number(text, "moe_intermediate_size") or inner
    biases = 2 * width + hidden if text.get("model_type") == "gpt_oss" else 0
    return 3 * hidden * width + biases


def _router_and_shared_experts(text: Config, hidden: int, inner: int, mixture: Experts) -> int:
    """Return the number of parameters of one layer's router and of the experts that process every token."""
    kind: object = text.get("model_type")
    router = mixture.routed * hidden
    if kind in ("gpt_oss", "glm4_moe", "minimax_m2") or text.get("topk_method") == "noaux_tc":
        router += mixture.routed
    wide = whole_number(text, "shared_expert_intermediate_size")
    if wide:  # Qwen2: a shared expert with its own width and a gate
        return router + 3 * hidden * wide + hidden
    return router + mixture.shared * 3 * hidden * (
        inner if kind in _EXPERTS_AS_WIDE else whole_number(text, "moe_intermediate_size") or inner
    )


def context(config: Config, text: Config) -> int | None:
    """Return the maximum length in tokens of a sequence that the model was made for, or None if the config does not state
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
