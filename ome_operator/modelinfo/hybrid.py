"""Sizes of models whose layers have different kinds of attention: a few layers attend to all tokens, and the others to a
window of tokens or to a state of constant size (linear attention).

The formulas were compared with the sums over the tensors of the classes of transformers 5.19 and 5.24.
"""

from ome_operator.modelinfo.json_fields import Config, string, whole_number

LINEAR = frozenset({"qwen3_5_moe_text", "qwen3_5_text"})
"""Families with gated delta networks, whose state does not grow with the tokens."""
WINDOWED = frozenset({"mimo_v2_flash"})
"""Families whose windowed layers have sizes of their own."""
FAMILIES = LINEAR | WINDOWED


def complete_layers(text: Config, layers: int) -> int | None:
    """Return the number of layers that attend to all tokens; None if the config does not state it."""
    if string(text, "model_type") in WINDOWED:
        pattern = text.get("hybrid_layer_pattern")
        return pattern[:layers].count(0) if isinstance(pattern, list) and len(pattern) >= layers else None
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and len(kinds) >= layers:
        return kinds[:layers].count("full_attention")
    interval = whole_number(text, "full_attention_interval")
    return layers // interval if interval else None


def attention_parameters(text: Config, layers: int) -> tuple[int, int] | None:
    """Return the numbers of parameters of the attention of all layers: without the output matrices, and of these matrices.
    None if a size is missing.
    """
    complete, hidden = complete_layers(text, layers), whole_number(text, "hidden_size")
    if complete is None or not hidden:
        return None
    sizes = _complete(text, hidden)
    others = (_windowed if string(text, "model_type") in WINDOWED else _linear)(text, hidden)
    if sizes is None or others is None:
        return None
    rest = layers - complete
    return complete * sizes[0] + rest * others[0], complete * sizes[1] + rest * others[1]


def cache_numbers(text: Config, layers: int) -> int | None:
    """Return how many numbers the KV cache stores for a token; None if unknown. Windows and states do not grow with the
    tokens, so they are not included.
    """
    complete, kv_heads = complete_layers(text, layers), whole_number(text, "num_key_value_heads")
    key = whole_number(text, "head_dim")
    value = whole_number(text, "v_head_dim") or key
    return complete * kv_heads * (key + value) if complete is not None and kv_heads and key and value else None


def _complete(text: Config, hidden: int) -> tuple[int, int] | None:
    """Return the parameters of a layer that attends to all tokens. Qwen's layers have a gate as large as the queries and
    norms of queries and keys.
    """
    heads, kv_heads = whole_number(text, "num_attention_heads"), whole_number(text, "num_key_value_heads")
    key = whole_number(text, "head_dim")
    value = whole_number(text, "v_head_dim") or key
    if not heads or not kv_heads or not key or not value:
        return None
    qwen = string(text, "model_type") in LINEAR
    queries = heads * key * (2 if qwen else 1)
    return hidden * (queries + kv_heads * (key + value)) + (2 * key if qwen else 0), hidden * heads * value


def _windowed(text: Config, hidden: int) -> tuple[int, int] | None:
    """Return the parameters of a windowed layer, with a sink for each head."""
    heads, kv_heads = whole_number(text, "swa_num_attention_heads"), whole_number(text, "swa_num_key_value_heads")
    key, value = whole_number(text, "swa_head_dim"), whole_number(text, "swa_v_head_dim")
    if not heads or not kv_heads or not key or not value:
        return None
    sinks = heads if text.get("add_swa_attention_sink_bias") else 0
    return hidden * (heads * key + kv_heads * (key + value)) + sinks, hidden * heads * value


def _linear(text: Config, hidden: int) -> tuple[int, int] | None:
    """Return the parameters of a layer with a gated delta network: the projections of queries, keys, values, gate and two
    numbers for each head, a convolution, two vectors of numbers for each head, and a norm.
    """
    sizes = [
        whole_number(text, f"linear_{name}")
        for name in ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim", "conv_kernel_dim")
    ]
    if not all(sizes):
        return None
    keys, key, values, value, kernel = (size or 0 for size in sizes)
    mixed = 2 * keys * key + values * value
    inputs = hidden * (mixed + values * value + 2 * values) + mixed * kernel + 2 * values + value
    return inputs, hidden * values * value
