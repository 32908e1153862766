"""The shapes of a text model from its config.json, and from them parameters and the size of its cache.

Counted are the tensors that such a model has, layer by layer. That is right only for families whose tensors are known:
for every other `counted` says None rather than a wrong number.
"""

from dataclasses import dataclass

from ome_operator.api.learned import Attention, Experts
from ome_operator.modelinfo.json_fields import Config, whole, word

FAMILIES = frozenset(
    {
        "deepseek_v2", "deepseek_v3", "kimi_k2", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_5_vl_text",
        "qwen3_vl_text", "qwen3_vl_moe_text", "glm4_moe", "glm4v_moe_text", "gpt_oss", "llama", "llama4_text", "mistral",
        "mixtral", "minimax_m2",
    }
)  # fmt: skip
"""`model_type`s whose tensors are the ones counted here."""
_EXPERTS_AS_WIDE = frozenset({"gpt_oss", "llama4_text", "mixtral", "minimax_m2"})
"""Families whose `intermediate_size` is the width of one expert."""


@dataclass(frozen=True)
class Count:
    """Parameters of a text model."""

    total: int
    active: int
    routed: int = 0
    """Of all experts that a router chooses from."""


def experts(text: Config) -> Experts | None:
    """The experts of a model, None for a dense one or when the config does not say how many see a token."""
    routed = whole(text, "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
    per_token = whole(text, "num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "top_k")
    layers = whole(text, "num_hidden_layers")
    if not routed or not per_token or layers is None:
        return None
    shared = whole(text, "n_shared_experts", "num_shared_experts")
    if shared is None:
        shared = 1 if whole(text, "shared_expert_intermediate_size") or text.get("model_type") == "llama4_text" else 0
    return Experts(routed=routed, shared=shared, per_token=per_token, layers=_layers_with_experts(text, layers))


def _layers_with_experts(text: Config, layers: int) -> int:
    named = text.get("moe_layers")
    if isinstance(named, list) and named:
        return len(named)
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(one == 1 for one in frequency)
    step = whole(text, "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq") or 1
    first = whole(text, "first_k_dense_replace") or 0
    dense = text.get("mlp_only_layers")
    dense = dense if isinstance(dense, list) else []
    if "first_k_dense_replace" in text:  # DeepSeek counts from the layer's own number, the others from one
        return sum(number >= first and number % step == 0 for number in range(layers))
    return sum((number + 1) % step == 0 and number not in dense for number in range(layers))


def attention(text: Config) -> Attention | None:
    """The shapes of attention, None when the config has no heads."""
    heads, hidden = whole(text, "num_attention_heads", "n_heads"), whole(text, "hidden_size", "d_model")
    if not heads:
        return None
    rank = whole(text, "kv_lora_rank")
    kinds = text.get("layer_types")
    sliding = sum(one == "sliding_attention" for one in kinds) if isinstance(kinds, list) else 0
    said: dict[str, int | None] = {
        "head_dim": whole(text, "head_dim") or (hidden // heads if hidden and not rank else None),
        "sliding_window": whole(text, "sliding_window") if sliding else None,
        "sliding_layers": sliding or None,
    }
    if rank:
        names = ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        said |= {"head_dim": None} | {name: whole(text, name) for name in names}
    known = {name: value for name, value in said.items() if value is not None}
    return Attention(heads=heads, kv_heads=whole(text, "num_key_value_heads") or heads, **known)


def cache(text: Config, seen: Attention | None) -> int | None:
    """Numbers that the cache keeps for one token, over all layers that keep every token."""
    layers = whole(text, "num_hidden_layers")
    if seen is None or layers is None or not _understood(text):
        return None
    if seen.kv_lora_rank:
        return layers * (seen.kv_lora_rank + (seen.qk_rope_head_dim or 0))
    if seen.head_dim is None:
        return None
    return 2 * seen.kv_heads * seen.head_dim * (layers - (seen.sliding_layers or 0))


def _understood(text: Config) -> bool:
    return word(text, "model_type") in FAMILIES


def counted(text: Config, seen: Attention | None, mixture: Experts | None, tied: bool) -> Count | None:
    """Parameters by the shapes of the tensors; None for a family that is not known, or when a size is missing."""
    hidden, layers = whole(text, "hidden_size"), whole(text, "num_hidden_layers")
    vocabulary, inner = whole(text, "vocab_size"), whole(text, "intermediate_size")
    if not (_understood(text) and seen and hidden and layers and vocabulary and inner):
        return None
    embedding = vocabulary * hidden
    head = 0 if tied else embedding
    every = layers * (_attention(text, hidden, seen) + 2 * hidden) + hidden
    dense_width = whole(text, "intermediate_size_mlp") or inner
    if mixture is None:
        body = every + layers * 3 * hidden * dense_width
        return Count(embedding + head + body, embedding + body)
    one, around = _expert(text, hidden, inner), _around(text, hidden, inner, mixture)
    dense = (layers - mixture.layers) * 3 * hidden * dense_width
    body = every + dense + mixture.layers * around
    routed = mixture.layers * mixture.routed * one
    total = body + routed
    # The matrix before the last softmax is met by every token, also where it is the embedding itself.
    return Count(embedding + head + total, embedding + body + mixture.layers * mixture.per_token * one, routed)


def _attention(text: Config, hidden: int, seen: Attention) -> int:
    """One layer."""
    if seen.kv_lora_rank:
        rank, rope = seen.kv_lora_rank, seen.qk_rope_head_dim or 0
        nope, value = seen.qk_nope_head_dim or 0, seen.v_head_dim or 0
        query = seen.heads * (nope + rope)
        q = hidden * seen.q_lora_rank + seen.q_lora_rank * (query + 1) if seen.q_lora_rank else hidden * query
        return q + hidden * (rank + rope) + rank + rank * seen.heads * (nope + value) + seen.heads * value * hidden
    width = seen.head_dim or 0
    queries, keys = seen.heads * width, seen.kv_heads * width
    kind = word(text, "model_type") or ""
    extra = 0
    if text.get("attention_bias") or kind.startswith("qwen2"):
        extra += queries + 2 * keys
    if kind == "gpt_oss":  # a bias behind the output, and a sink for each head
        extra += hidden + seen.heads
    if kind.startswith("qwen3") or (kind != "llama4_text" and text.get("use_qk_norm")):  # Llama 4's norm has no weights
        extra += 2 * width
    return hidden * (2 * queries + 2 * keys) + extra


def _expert(text: Config, hidden: int, inner: int) -> int:
    """One routed expert."""
    width = inner if text.get("model_type") in _EXPERTS_AS_WIDE else whole(text, "moe_intermediate_size") or inner
    biases = 2 * width + hidden if text.get("model_type") == "gpt_oss" else 0
    return 3 * hidden * width + biases


def _around(text: Config, hidden: int, inner: int, mixture: Experts) -> int:
    """The router of one layer and the experts that see every token."""
    kind: object = text.get("model_type")
    router = mixture.routed * hidden
    if kind in ("gpt_oss", "glm4_moe", "minimax_m2") or text.get("topk_method") == "noaux_tc":
        router += mixture.routed
    wide = whole(text, "shared_expert_intermediate_size")
    if wide:  # Qwen2: one expert of its own width behind a gate
        return router + 3 * hidden * wide + hidden
    return router + mixture.shared * 3 * hidden * (
        inner if kind in _EXPERTS_AS_WIDE else whole(text, "moe_intermediate_size") or inner
    )


def context(config: Config, text: Config) -> int | None:
    """Longest sequence that the model was made for."""
    names = ("max_position_embeddings", "max_sequence_length", "max_seq_len", "seq_length", "n_positions", "n_ctx")
    return whole(text, *names) or whole(config, *names)


def in_words(parameters: int) -> str:
    """A number of parameters as people write it: 1.03T, 671B, 0.5B."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if parameters >= size:
            return f"{_short(parameters / size)}{unit}"
    return str(parameters)


def _short(value: float) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    said = f"{value:.{digits}f}"
    return said.rstrip("0").rstrip(".") if "." in said else said
