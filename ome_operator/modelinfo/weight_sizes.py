"""Calculate the bytes of a model's weights from its config.json, separated by how engines distribute the weights over
GPUs.

The result is used for planning before any weight file was read; the sizes of the files themselves are in `facts`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ome_operator.api.learned import Experts, Quantization
from ome_operator.modelinfo import architecture
from ome_operator.modelinfo import layers as layer_groups
from ome_operator.modelinfo.architecture import Count
from ome_operator.modelinfo.experts import experts, layer_count, plain_layers
from ome_operator.modelinfo.json_fields import Config, string, text_part
from ome_operator.modelinfo.quantization import (
    NONE,
    has_fp4_experts,
    quantization,
    quantized_modules,
    unchanged_modules,
)

_PLAIN = 2
"""Bytes of a weight that is not quantized (BF16)."""
_SHORT_SCALES = frozenset({"mxfp4", "nvfp4"})
"""Quantization formats in which the scale of a group has one byte."""
_ZEROS = frozenset({"awq", "gptq"})
"""Quantization formats in which each group also has a zero point, with the bits of a weight."""
_BLOCK_OF_BITSANDBYTES = 64
"""Number of 4-bit weights that share a scale of 4 bytes in bitsandbytes."""
_ONLY_EXPERTS = frozenset({"mxfp4", "modelopt"})
"""Quantization methods that leave all matrices except routed experts unchanged in an MoE model whose files do not list the
unchanged modules."""
_PARTS = ("attention", "outputs", "dense", "shared")
"""The names in `Count.parts`, except the name of the output matrix, which only some checkpoints quantize."""


class _Weight(NamedTuple):
    """The size of a single weight in some quantization."""

    bits: int
    bytes: float
    """Bytes of the weight, including its part of the scale that the weights of a group share."""


_FP8 = _Weight(8, 1.0)
_LAYER = re.compile(r"layers\.(\d+)")
_MOST_NAME = 256


@dataclass(frozen=True)
class WeightBytes:
    """Numbers of bytes of a model's weights."""

    routed: int
    """Bytes of the routed experts."""
    rest: int
    """Bytes of attention, dense layers, shared experts and embeddings."""
    quantized: tuple[tuple[int, float], ...] = ()
    """The quantized weights outside the routed experts, as pairs: the number of bits of a weight, and the number of weights
    that have this number of bits."""

    @property
    def total(self) -> int:
        """Bytes of all weights."""
        return self.routed + self.rest


def weight_bytes(
    config: Config, modelopt: Config | None = None, quantized: Quantization | None = None
) -> WeightBytes | None:
    """Return the bytes of the weights; None for a family whose tensors are not known, and for a quantization without a
    number of bits.

    `modelopt` is the content of NVIDIA's hf_quant_config.json if it exists. `quantized` replaces the quantization that the
    files state. Modules that the files list as unchanged have 2 bytes for each weight. Without a list, 4-bit and 8-bit
    formats include every matrix except the embeddings and the output layer. There is one exception: in an MoE model, MXFP4
    and NVIDIA's formats include only the routed experts. Scales of groups are included. Scales of blocks (1 byte in 4,096)
    are not included.
    """
    text, stored = text_part(config), quantized or quantization(config, modelopt)
    attention, mixture = architecture.attention_shape(text), experts(text)
    count = architecture.count_parameters(text, attention, mixture, architecture.has_tied_embedding(config))
    if count is None or stored is None or (stored.name != NONE and not stored.bits):
        return None
    if stored.name == NONE:
        return WeightBytes(count.routed * _PLAIN, (count.total - count.routed) * _PLAIN)
    layers = _layers_with(text, mixture)
    if quantized is None and (modules := quantized_modules(config, modelopt)):
        parts = _by_module(modules, layers)
    else:
        other = _FP8 if has_fp4_experts(stored) else _size(stored)
        shares = _included(count, stored, unchanged_modules(config, modelopt), layers)
        parts = {part: {other: share} for part, share in shares.items()}
    rest, by_bits = float((count.total - count.routed) * _PLAIN), dict[int, float]()
    for part, found in parts.items():
        for weight, share in found.items():
            number = count.parts[part] * share
            rest += number * (weight.bytes - _PLAIN)
            by_bits[weight.bits] = by_bits.get(weight.bits, 0.0) + number
    return WeightBytes(round(count.routed * _size(stored).bytes), round(rest), tuple(sorted(by_bits.items())))


def _layers_with(text: Config, mixture: Experts | None) -> dict[str, int]:
    """Return the number of layers that have each of `Count.parts`, and with the key "" the number of all layers. `mixture`
    are the experts of the model; None for a dense model.
    """
    layers, kind = layer_count(text) or 1, string(text, "model_type") or ""
    found = layer_groups.groups(text, layers) if kind in layer_groups.FAMILIES else None
    attention = sum(each.layers for each in found or () if each.outputs) or layers
    return {
        "": layers,
        "attention": attention,
        "outputs": attention,
        "dense": plain_layers(text, mixture),
        "shared": mixture.layers if mixture else 0,
        "head": 1,
    }


def _by_module(modules: Mapping[str, Quantization], layers: Mapping[str, int]) -> dict[str, dict[_Weight, float]]:
    """Return, for each of `Count.parts`, the sizes that a weight of this part has. Each size is mapped to the share of the
    layers in which the weights of the part have this size. All modules of a part in a layer are assumed to have the same
    size.
    """
    sizes: dict[tuple[str, int], _Weight] = {}
    for name, found in modules.items():
        text = name[:_MOST_NAME]
        number = _LAYER.search(text)
        for part in _parts_named(text[number.end() :] if number else text, bool(number)):
            if number is None or int(number[1]) < layers[""]:
                sizes[part, int(number[1]) if number else 0] = _size(found)
    out: dict[str, dict[_Weight, float]] = {}
    for (part, _layer), size in sizes.items():
        shares = out.setdefault(part, {})
        shares[size] = min(1.0, shares.get(size, 0.0) + 1 / max(1, layers[part]))
    return out


def _size(stored: Quantization) -> _Weight:
    return _Weight(stored.bits or 0, _bytes_per_weight(stored))


def _bytes_per_weight(stored: Quantization) -> float:
    """Return the bytes of a single quantized weight, including its part of the scale that the weights of a group share."""
    weight = (stored.bits or 0) / 8
    if stored.name == "bitsandbytes":
        return weight + (4 / _BLOCK_OF_BITSANDBYTES if stored.bits == 4 else 0)
    if not stored.group_size:
        return weight
    scale = 1 if stored.name in _SHORT_SCALES else 2
    return weight + (scale + (weight if stored.name in _ZEROS else 0)) / stored.group_size


def _included(
    count: Count, stored: Quantization, unchanged: list[str] | None, layers: Mapping[str, int]
) -> dict[str, float]:
    """Return the share of the weights of each of `_PARTS` that are quantized. `layers` is the result of `_layers_with`."""
    experts_only = unchanged is None and count.routed and stored.bits == 4 and stored.method in _ONLY_EXPERTS
    if stored.method == "mxfp4" or experts_only:
        return {}
    plain = {} if has_fp4_experts(stored) else _unchanged_layers(unchanged or ())
    shares = {}
    for part, numbers in plain.items():
        named = sum(number < layers[""] for number in numbers)
        shares[part] = 1.0 if -1 in numbers else min(1.0, named / max(1, layers[part]))
    return {part: 1 - shares.get(part, 0.0) for part in _PARTS}


def _unchanged_layers(names: Iterable[str]) -> dict[str, set[int]]:
    """Return a mapping from each of `_PARTS` to the numbers of the layers in which the module names `names` exclude this
    part from quantization. The number -1 stands for all layers.

    Names may be regular expressions or patterns of different libraries. Because names are untrusted, they are not evaluated
    as patterns, but only searched for known words.
    """
    found: dict[str, set[int]] = {}
    for name in names:
        text = name[:_MOST_NAME]
        number = _LAYER.search(text)
        for part in _parts_named(text[number.end() :] if number else text, bool(number)):
            found.setdefault(part, set()).add(int(number[1]) if number else -1)
    return found


def _parts_named(name: str, one_layer: bool) -> tuple[str, ...]:
    """Return the parts of a layer that the name of a module covers. `one_layer` is true if `name` is the rest of a name
    after the number of a layer; an empty rest then covers the whole layer.
    """
    if one_layer and not name.strip(".*"):
        return _PARTS
    if "norm" in name or "index" in name:  # indexers are small, and are ignored
        return ()
    if not one_layer and name.strip("*.").endswith("lm_head"):
        return ("head",)
    if "shared_expert" in name:
        return () if name.rstrip(".*").endswith("gate") else ("shared",)
    if "attn" in name or "attention" in name:
        return _attention_parts(name)
    if "mixer." in name and "expert" not in name:  # Nemotron
        return ("dense",) if "up_proj" in name or "down_proj" in name else _attention_parts(name) if "_proj" in name else ()
    if "mlp" in name and "expert" not in name and (name.rstrip(".*").endswith("mlp") or "_proj" in name):
        return ("dense",)
    return ()


def _attention_parts(name: str) -> tuple[str, ...]:
    if "o_proj" in name or "out_proj" in name:
        return ("outputs",)
    return ("attention",) if "_proj" in name else ("attention", "outputs")
