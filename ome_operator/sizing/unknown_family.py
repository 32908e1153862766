"""Estimate the sizes of a model of an unknown family, from the bytes of its weight files."""

from collections.abc import Mapping
from typing import Any

from ome_operator.api.learned import Facts
from ome_operator.capacity.model import ModelFacts
from ome_operator.modelinfo.architecture import attention_shape
from ome_operator.modelinfo.experts import experts
from ome_operator.modelinfo.json_fields import text_part, whole_number
from ome_operator.modelinfo.layer_sizes import CacheEntries
from ome_operator.modelinfo.uncounted import uncounted
from ome_operator.modelinfo.weight_sizes import WeightBytes
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.shapes import Shape, check_sizes, stored_precision

_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625, "mxfp4": 0.53125, "int4": 0.5625}


def by_sizes(name: str, config: Mapping[str, Any], weights: int) -> Shape:
    """Return the estimated Shape of a model whose tensors are not known. Predictions from this Shape are rough.

    `weights` is the number of bytes of the model's weight files. The size of the routed experts is computed from the widths
    in config.json. All other weights are assumed to be read for every token, and attention is assumed to read all tokens,
    even if config.json states otherwise. Raises PlanRefused if config.json lacks a size that the estimate needs.
    """
    text = text_part(config)
    hidden, heads, layers = _sizes(name, text)
    precision = stored_precision(config) or "bf16"
    mixture, width = experts(text), whole_number(text, "moe_intermediate_size", "intermediate_size")
    routed = 0.0
    if mixture and width:
        routed = min(0.98 * weights, 3.0 * hidden * width * mixture.routed * mixture.layers * _BYTES[precision])
    rest = weights - routed
    rank, kv_heads = whole_number(text, "kv_lora_rank"), whole_number(text, "num_key_value_heads") or heads
    head = whole_number(text, "head_dim") or hidden // heads
    numbers = layers * (rank + (whole_number(text, "qk_rope_head_dim") or 0) if rank else 2 * kv_heads * head)
    active = routed / _BYTES[precision] * mixture.per_token / mixture.routed if mixture else 0.0
    cache = {"bfloat16": 2 * numbers, "fp8": numbers}
    facts = Facts(
        model_type="unknown", layers=layers, experts=mixture, attention=attention_shape(text), kv_bytes_per_token=cache
    )
    return Shape(
        name=name,
        precision=precision,
        known=ModelFacts(name, facts, WeightBytes(round(routed), round(rest)), (width,) if width else ()),
        layers=layers,
        expert_layers=mixture.layers if mixture else 0,
        hidden=hidden,
        experts=mixture.routed if mixture else 0,
        per_token=mixture.per_token if mixture else 0,
        routed_bytes=routed,
        rest_bytes=rest,
        routed_flops=2 * active,
        rest_flops={precision: rest},
        head_flops=0.0,
        attended=(CacheEntries(numbers=numbers, operations=4 * heads * head * layers),),
        cache_heads=1 if rank else kv_heads,
        longest=whole_number(text, "max_position_embeddings") or 0,
        estimated=True,
    )


def _sizes(name: str, text: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the hidden size, the number of heads and the number of layers. Raises PlanRefused if config.json lacks one of
    them.
    """
    check_sizes(name, text)
    hidden, heads = whole_number(text, "hidden_size", "d_model"), whole_number(text, "num_attention_heads", "n_heads")
    layers = whole_number(text, "num_hidden_layers", "n_layers")
    if not hidden or not heads or not layers:
        raise PlanRefused(
            f"The sizes of {name} are unknown: {uncounted(text)}, and config.json lacks hidden_size, num_attention_heads or "
            "num_hidden_layers."
        )
    return hidden, heads, layers
