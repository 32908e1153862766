"""Sizes of models whose layers are not all alike: a few layers attend to all tokens, and the others to a window of tokens,
to compressed tokens, or to a state of constant size (linear attention).

`FAMILIES` has a function for each of these families, which reads the groups of equal layers from config.json. Parameters
are the sums over the tensors of the classes of transformers 5.19 and 5.24, and of SGLang 0.5.23 for Kimi K3; caches and
states are those of SGLang 0.5.23 (model_executor/pool_configurator.py, configs/mamba_utils.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from ome_operator.modelinfo.json_fields import Config, section, string
from ome_operator.modelinfo.layer_sizes import (
    LONG,
    SHORT,
    CacheEntries,
    ConfigSizes,
    Layers,
    grouped_query_layers,
    latent_attention,
    layer_kinds,
    with_more_parameters,
)


def groups(text: Config, layers: int) -> Sequence[Layers] | None:
    """Return the groups of layers of a model of one of the FAMILIES; None if its config lacks a size, or states no
    layers.
    """
    read = FAMILIES[string(text, "model_type") or ""]
    try:
        return read(ConfigSizes(text), layers) if layers > 0 else None
    except KeyError:
        return None


def _qwen(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of Qwen3-Next and Qwen3.5: gated delta networks, and attention with a gate as large as the
    queries.
    """
    hidden, listed = size("hidden_size"), size.text.get("layer_types")
    complete = layer_kinds(size, layers).count("full_attention") if listed else layers // size("full_attention_interval")
    heads, key = size("num_attention_heads"), size("head_dim")
    keys, key_width = size("linear_num_key_heads"), size("linear_key_head_dim")
    values, value_width = size("linear_num_value_heads"), size("linear_value_head_dim")
    kernel, mixed = size("linear_conv_kernel_dim"), 2 * keys * key_width + values * value_width
    linear = Layers(
        layers - complete,
        inputs=hidden * (mixed + values * value_width + 2 * values) + mixed * kernel + 2 * values + value_width,
        outputs=hidden * values * value_width,
        others=2 * hidden,
        state=mixed * (kernel - 1) * SHORT + values * value_width * key_width * LONG,
        heads=keys,
    )
    attention = grouped_query_layers(size, heads, size("num_key_value_heads"), key, key, complete)
    return linear, with_more_parameters(attention, hidden * heads * key + 2 * key, 2 * hidden)


def _mimo(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of MiMo V2: windowed layers, which have their own number of heads and a sink for each of these
    heads, and other layers.
    """
    pattern, hidden = size.text.get("hybrid_layer_pattern"), size("hidden_size")
    if not isinstance(pattern, list) or len(pattern) < layers:
        raise KeyError("hybrid_layer_pattern")
    complete, heads, key = pattern[:layers].count(0), size("swa_num_attention_heads"), size("head_dim")
    windowed = grouped_query_layers(
        size, heads, size("swa_num_key_value_heads"), size("swa_head_dim"), size("swa_v_head_dim"), layers - complete
    )
    sinks = heads if size.text.get("add_swa_attention_sink_bias") else 0
    full = grouped_query_layers(
        size, size("num_attention_heads"), size("num_key_value_heads"), key, size("v_head_dim", "head_dim"), complete
    )
    return (
        with_more_parameters(windowed, sinks, 2 * hidden, size("sliding_window", "sliding_window_size")),
        with_more_parameters(full, others=2 * hidden),
    )


def _step(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of Step 3.5 and 3.7: windowed layers, which may have a number of heads of their own, norms of
    queries and keys, and a gate for each head.
    """
    hidden, key = size("hidden_size"), size("head_dim")
    other = ConfigSizes(section(size.text, "attention_other_setting"))
    kv_heads = size("num_attention_groups", "num_key_value_heads")
    found = []
    for kind in ("sliding_attention", "full_attention"):
        windowed, count = kind == "sliding_attention", layer_kinds(size, layers).count(kind)
        own = (
            (other.optional_size("num_attention_heads") or size.optional_size("num_sliding_attention_heads"))
            if windowed
            else 0
        )
        heads, kv = (
            own or size("num_attention_heads"),
            (other.optional_size("num_attention_groups") if windowed else 0) or kv_heads,
        )
        gated = hidden * heads if size.text.get("use_head_wise_attn_gate", True) else 0
        window = size("sliding_window") if windowed and count else 0
        found.append(
            with_more_parameters(grouped_query_layers(size, heads, kv, key, key, count), gated + 2 * key, 2 * hidden, window)
        )
    return found


_WIDE_HEAD = 512
"""Dimension of the heads of layers of Gemma 4 without a window, if its config does not contain the field."""


def _gemma4(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of Gemma 4: windowed layers, and other layers, which have wider heads and may use keys as values.

    The small models (E2B, E4B) also have an embedding for each layer, and their last layers use the keys and values of
    earlier layers; SGLang 0.5.23 keeps space in the cache for these layers, too.
    """
    hidden, heads, kv_heads = size("hidden_size"), size("num_attention_heads"), size("num_key_value_heads")
    kinds, alike = layer_kinds(size, layers), bool(size.text.get("attention_k_eq_v"))
    kinds[-1] = "full_attention"  # the class replaces another kind
    first = max(0, layers - size.optional_size("num_kv_shared_layers"))  # the first layer that uses keys of an earlier layer
    added = size.optional_size("hidden_size_per_layer_input")
    norms = hidden * (7 if size.text.get("enable_moe_block") else 4)
    gates = (3 * hidden * added + hidden) if added else 0  # the gate and two projections, and a norm
    double = 3 * hidden * size("intermediate_size") if size.text.get("use_double_wide_mlp") and first > 0 else 0
    few = (size.optional_size("num_global_key_value_heads") if alike else 0) or kv_heads
    found = [Layers(1, others=added)]  # the norm of the embeddings of all layers
    for shared, part in ((False, kinds[:first]), (True, kinds[first:])):
        for windowed in (True, False):
            key, own = (
                (size("head_dim"), kv_heads) if windowed else (size.optional_size("global_head_dim") or _WIDE_HEAD, few)
            )
            each = grouped_query_layers(
                size, heads, own, key, key, part.count("sliding_attention" if windowed else "full_attention")
            )
            saved = 2 * hidden * own * key + key if shared else hidden * own * key if alike and not windowed else 0
            each = with_more_parameters(each, 2 * key - saved, norms + gates, size("sliding_window") if windowed else 0)
            tables = size("vocab_size_per_layer_input") * added if added else 0
            found.append(replace(each, wider=double if shared else 0, tables=tables))
    return [each for each in found if each.layers]


_BLOCKS, _BLOCK = 16, 128
"""Number of blocks of tokens that an indexer of MiniMax M3 chooses, and tokens of a block, if its config lacks them."""


def _minimax_m3(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of MiniMax M3: in most layers, an indexer chooses blocks of tokens, and attention reads only the
    chosen blocks. They include the block of the token itself (SGLang 0.5.23, kernels/ops/attention/minimax_sparse).
    """
    hidden, key = size("hidden_size"), size("head_dim")
    sparse = ConfigSizes(section(size.text, "sparse_attention_config"))
    flags = sparse.text.get("sparse_attention_freq")
    if isinstance(flags, list) and len(flags) >= layers:
        indexed = layers - flags[:layers].count(0)
    else:
        indexed = layer_kinds(size, layers).count("minimax_m3_sparse")
    full = with_more_parameters(
        grouped_query_layers(size, size("num_attention_heads"), size("num_key_value_heads"), key, key, layers),
        2 * key,
        2 * hidden,
    )
    if not indexed:
        return (full,)
    heads = sparse.optional_size("sparse_num_index_heads") or size("index_n_heads")
    width = sparse.optional_size("sparse_index_dim") or size("index_head_dim")
    keys_only = sparse.text.get("sparse_disable_index_value")
    count = indexed if not sparse.text else sum(map(bool, keys_only[:layers])) if isinstance(keys_only, list) else 0
    kept = Fraction(width * SHORT * (2 * indexed - min(indexed, count)), indexed)
    blocks = sparse.optional_size("sparse_topk_blocks") or size.optional_size("index_topk_blocks") or _BLOCKS
    chosen = blocks * (sparse.optional_size("sparse_block_size") or size.optional_size("index_block_size") or _BLOCK)
    index = CacheEntries(fixed=int(kept), operations=2 * heads * int(kept) // SHORT, heads=heads)
    return (
        replace(full, layers=layers - indexed),
        replace(
            full,
            layers=indexed,
            inputs=full.inputs + hidden * (heads + 1) * width + 2 * width,
            cached_bytes=kept,
            attended=(replace(full.attended[0], most=chosen), index),
        ),
    )


def _nemotron(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of Nemotron-H and Nemotron 3: each layer is either Mamba 2, attention, experts or a dense
    network.
    """
    hidden, pattern, words = (
        size("hidden_size"),
        size.text.get("hybrid_override_pattern"),
        size.text.get("layers_block_type"),
    )
    if isinstance(words, list) and len(words) == layers:
        mamba = sum(word in ("linear_attention", "mamba") for word in words)
        complete = sum(word in ("full_attention", "attention") for word in words)
    elif isinstance(pattern, str) and len(pattern) == layers:
        mamba, complete = pattern.count("M"), pattern.count("*")
    else:
        raise KeyError("hybrid_override_pattern")
    heads, width, kernel = size("mamba_num_heads"), size("mamba_head_dim"), size("conv_kernel", "mamba_d_conv")
    inner, state = heads * width, size("ssm_state_size")
    mixed = inner + 2 * size("n_groups", "mamba_n_groups") * state
    biases = mixed if size.text.get("use_conv_bias", size.text.get("mamba_conv_bias", True)) else 0
    projection = inner + mixed + heads
    biased = bool(size.text.get("use_bias") or size.text.get("mamba_proj_bias"))
    if biased or size.text.get("attention_bias") or size.text.get("mlp_bias"):
        raise KeyError("use_bias")
    key = size("head_dim", "attention_head_dim")
    linear = Layers(
        mamba,
        inputs=hidden * projection + mixed * kernel + biases + 3 * heads + inner,
        outputs=inner * hidden,
        state=mixed * (kernel - 1) * SHORT + inner * state * LONG,
        heads=heads,
    )
    attention = grouped_query_layers(size, size("num_attention_heads"), size("num_key_value_heads"), key, key, complete)
    return linear, attention, Layers(layers, others=hidden)


_RATES: Mapping[str, int] = MappingProxyType(
    {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
)
"""Maps each kind of a layer of DeepSeek V4 to the number of tokens that the layer compresses to one; 0 if it does not
compress."""
_CHOSEN = 512
"""Number of compressed vectors that an indexer of DeepSeek V4 chooses, if its config does not state it."""
_LATENT_BYTES = 8
"""Bytes of the scales that SGLang keeps with each latent vector of DeepSeek V4."""


def _deepseek_v4(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of DeepSeek V4: a window of latent vectors in each layer, and compressed latent vectors in most
    layers. Of the compressed vectors that stand for 4 tokens each, an indexer chooses some; compressed vectors of other
    layers are all read. FlashMLA stores the vectors in FP8 with a part in BF16, whatever the data type of the cache. In
    SGLang 0.5.23 (layers/attention/dsv4/indexer.py), each rank has all heads of an indexer.
    """
    hidden, heads, width = size("hidden_size"), size("num_attention_heads"), size("head_dim")
    rank, copies = size("q_lora_rank"), size("hc_mult")
    rope = size.optional_size("qk_rope_head_dim") or width // 8
    latent = width + rope + _LATENT_BYTES
    mixes = copies * (2 + copies)
    residual = 2 * (mixes * copies * hidden + mixes + 3) + 2 * hidden
    inputs = hidden * (rank + width) + rank + width + rank * heads * width + heads
    low = size("o_lora_rank")
    outputs = low * heads * width + hidden * low * size("o_groups")
    window, pairs = size("sliding_window"), 4 * heads * width
    ratios = size.text.get("compress_ratios")
    if not isinstance(ratios, list) or len(ratios) < layers:
        ratios = [_RATES.get(kind, -1) for kind in layer_kinds(size, layers)]
    found = [Layers(1, others=copies * copies * hidden + copies + 1)]  # the mixture of the residual paths after all layers
    for ratio in sorted(set(ratios[:layers])):
        if ratio not in _RATES.values():
            raise KeyError("compress_ratios")
        twice = 2 if ratio == 4 else 1
        compressor = twice * width * (ratio + 2 * hidden) + width if ratio else 0
        index, indexes = (size("index_head_dim"), size("index_n_heads")) if ratio == 4 else (0, 0)
        indexer = 2 * index * (ratio + 2 * hidden) + index + indexes * (index * rank + hidden) if index else 0
        scaled = index + index // 128 * 4
        attended = [CacheEntries(most=window, fixed=latent, operations=pairs)]
        if ratio:
            attended.append(
                CacheEntries(ratio, size.optional_size("index_topk") or _CHOSEN if index else 0, 0, latent, pairs)
            )
        if index:
            attended.append(CacheEntries(ratio, 0, 0, scaled, 2 * indexes * index, heads=1, precision="fp8"))
        found.append(
            Layers(
                ratios[:layers].count(ratio),
                inputs=inputs + compressor + indexer,
                outputs=outputs,
                others=residual,
                cached_bytes=Fraction(latent + scaled, ratio) if ratio else Fraction(0),
                state=window * latent,
                attended=tuple(attended),
            )
        )
    return found


def _kimi_linear(size: ConfigSizes, layers: int) -> Sequence[Layers]:
    """Return the layers of Kimi Linear and Kimi K3: Kimi delta attention, and latent attention (MLA) without position
    embeddings. K3 adds a gate of full rank, a gate after latent attention, and residual paths between layers.
    """
    linear = ConfigSizes(section(size.text, "linear_attn_config"))
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    own = linear.optional_size("num_heads") or size("linear_num_heads")
    width = linear.optional_size("head_dim") or size("linear_head_dim")
    kernel = linear.optional_size("short_conv_kernel_size") or size("linear_conv_kernel_dim")
    listed = linear.text.get("full_attn_layers")
    complete = len(listed) if isinstance(listed, list) else layer_kinds(size, layers).count("full_attention")
    if complete > layers:
        raise KeyError("full_attn_layers")
    inner = own * width
    gate = hidden * inner if linear.text.get("use_full_rank_gate") else hidden * width + width * inner
    others = 2 * hidden + (4 * hidden if size.optional_size("attn_res_block_size") else 0)
    delta = Layers(
        layers - complete,
        inputs=hidden * (3 * inner + width + own) + width * inner + gate + inner + 3 * inner * kernel + own + width,
        outputs=inner * hidden,
        others=others,
        state=3 * inner * (kernel - 1) * SHORT + own * width * width * LONG,
        heads=own,
    )
    rank, rope, nope, value = size("kv_lora_rank"), size("qk_rope_head_dim"), size("qk_nope_head_dim"), size("v_head_dim")
    queries, compressed = heads * (nope + rope), size.optional_size("q_lora_rank")
    query = hidden * compressed + compressed * (queries + 1) if compressed else hidden * queries
    gated = hidden * heads * value if size.text.get("mla_use_output_gate") else 0
    attention = Layers(
        complete,
        inputs=query + hidden * (rank + rope) + rank + rank * heads * (nope + value) + gated,
        outputs=heads * value * hidden,
        others=others,
        cached=rank + rope,
        attended=(latent_attention(heads, rank, rope, nope, value),),
    )
    after = Layers(1, others=2 * hidden if size.optional_size("attn_res_block_size") else 0)
    return delta, attention, after


FAMILIES: Mapping[str, Callable[[ConfigSizes, int], Sequence[Layers]]] = MappingProxyType(
    {
        **dict.fromkeys(("qwen3_next", "qwen3_5_moe_text", "qwen3_5_text"), _qwen),
        "mimo_v2_flash": _mimo,
        **dict.fromkeys(("step3p5", "step3p7"), _step),
        "gemma4_text": _gemma4,
        **dict.fromkeys(("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"), _minimax_m3),
        "nemotron_h": _nemotron,
        "deepseek_v4": _deepseek_v4,
        "kimi_linear": _kimi_linear,
    }
)
"""Maps `model_type` to the function that reads the groups of layers."""
