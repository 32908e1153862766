"""Determine the quantization that a model's files state. The names of quantizations are the same for all formats."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ome_operator.api.learned import Quantization
from ome_operator.modelinfo.json_fields import Config, is_whole, section, string, text_part, whole_number

NONE = "none"
_MODELOPT = {
    "NVFP4": ("nvfp4", 4), "W4A16_NVFP4": ("nvfp4", 4), "FP8": ("fp8", 8), "W4A16_AWQ": ("awq", 4), "W4A8_AWQ": ("awq", 4),
    "INT8_SQ": ("int8", 8),
}  # fmt: skip
"""Maps the value of `quant_algo` in NVIDIA's files to the name and the bits of the quantization."""
_OF_NVIDIA = frozenset({"modelopt", "modelopt_fp4", "modelopt_mixed"})
"""Values of `quant_method` in checkpoints that NVIDIA's tool has quantized."""
_MIXED = "MIXED_PRECISION"
"""NVIDIA's word for a checkpoint whose modules have several quantizations. The field `quantized_layers` states the
quantization of each module."""
_BITS: Mapping[str, int] = MappingProxyType(
    {NONE: 0, "fp8": 8, "fbgemm_fp8": 8, "int8": 8, "int4": 4, "mxfp4": 4, "nvfp4": 4, "awq": 4}
)
"""Maps the name of a quantization to the bits of a weight. 0 stands for weights that are not quantized. GPTQ and
bitsandbytes are not included, because they have several numbers of bits."""
_UNCHANGED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
"""Fields that list the modules whose weights are not quantized."""
_MOST_UNCHANGED = 100_000
"""Maximum number of listed modules that are read."""
_FP4_GROUPS: Mapping[str, int] = MappingProxyType({"mxfp4": 32, "nvfp4": 16})
"""Maps a format with 4-bit numbers to the number of weights that share a scale."""
_ALIKE = {"mxfp4": ("mxfp4", 4), "nvfp4": ("nvfp4", 4), "fbgemm_fp8": ("fbgemm_fp8", 8), "fp8": ("fp8", 8)}


def quantization(config: Config, modelopt: Config | None = None) -> Quantization | None:
    """Return the quantization in a config.json, or in NVIDIA's hf_quant_config.json next to it; None if it is unknown.
    `modelopt` is the content of NVIDIA's file; None if it does not exist.

    A config that mentions no quantization means weights that are not quantized. A quantization that is not an object, such
    as `"quantization_config": "fp8"`, is unknown.
    """
    settings = quantization_settings(config, modelopt)
    if not settings:
        return None if _misstated(config) else Quantization(name=NONE)
    method = _method(settings)
    if method == "fp8" and (experts := _experts_format(config, settings)):
        return _made(experts, method, bits=4, group_size=_FP4_GROUPS[experts])
    if method == "compressed-tensors":
        return _compressed(settings)
    if method in _OF_NVIDIA:
        modules = quantized_modules(config, modelopt)
        return _mixed(modules) if modules else _modelopt(settings)
    return _plain(settings, method)


def has_fp4_experts(quantized: Quantization) -> bool:
    """Return whether only the routed experts have 4 bits, and the other matrices are FP8."""
    return quantized.method == "fp8" and quantized.name in _FP4_GROUPS


def quantization_by_name(name: str) -> Quantization | None:
    """Return the quantization of a model of which only the name of its quantization is known, such as "fp8". Return None if
    `name` is not a known name.
    """
    bits = _BITS.get(name.lower())
    return Quantization(name=name.lower(), bits=bits or None) if bits is not None else None


def unchanged_modules(config: Config, modelopt: Config | None = None) -> list[str] | None:
    """Return the names, or patterns of names, of the modules that the files list as not quantized; None if there is no such
    list. `modelopt` is the content of NVIDIA's hf_quant_config.json; None if it does not exist.
    """
    settings = quantization_settings(config, modelopt)
    lists = [settings[name] for name in _UNCHANGED if isinstance(settings.get(name), list)]
    if not lists:
        return None
    return [name for listed in lists for name in listed[:_MOST_UNCHANGED] if isinstance(name, str)]


def quantized_modules(config: Config, modelopt: Config | None = None) -> dict[str, Quantization]:
    """Return the quantization of each module, by the name of the module, for a checkpoint of NVIDIA whose modules have
    several quantizations; {} for other checkpoints. Modules that are not in the result are not quantized. `modelopt` is the
    content of NVIDIA's hf_quant_config.json; None if it does not exist.

    Only the bits and the size of groups matter: the name `fp8` also stands for MXFP8.
    """
    settings = quantization_settings(config, modelopt)
    if _method(settings) not in _OF_NVIDIA or (string(settings, "quant_algo") or "").upper() != _MIXED:
        return {}
    listed = list(section(settings, "quantized_layers").items())[:_MOST_UNCHANGED]
    return {name: found for name, said in listed if isinstance(said, dict) and (found := _module(said)) is not None}


def _module(said: Config) -> Quantization | None:
    algorithm = string(said, "quant_algo") or ""
    if algorithm == "MXFP8":
        return _made("fp8", "modelopt", bits=8, group_size=32)
    return _modelopt(said)


def quantization_settings(config: Config, modelopt: Config | None) -> Config:
    """Return the settings of the quantization in config.json or in hf_quant_config.json; {} if there are none. `modelopt` is
    the content of hf_quant_config.json; None if it does not exist.
    """
    text = text_part(config)
    settings = section(config, "quantization_config") or section(text, "quantization_config")
    settings = settings or section(text, "compression_config")
    if not settings and modelopt:
        settings = {"quant_method": "modelopt", **section(modelopt, "quantization")}
    return settings


def _misstated(config: Config) -> bool:
    """Return whether a config states a quantization in another form than as an object."""
    text = text_part(config)
    found = (config.get("quantization_config"), text.get("quantization_config"), text.get("compression_config"))
    return any(value and not isinstance(value, dict) for value in found)


def _method(settings: Config) -> str:
    return (string(settings, "quant_method", "quant_type") or ("modelopt" if "quant_algo" in settings else "")).lower()


def _experts_format(config: Config, settings: Config) -> str:
    """Return the 4-bit format of routed experts in a checkpoint whose other matrices are FP8; "" if they are FP8, too.

    The fields are those that SGLang 0.5.23 reads (configs/model_config.py), and `expert_dtype` of DeepSeek V4.
    """
    if (string(settings, "moe_quant_algo") or "").upper() == "NVFP4":
        return "nvfp4"
    formats = (string(settings, name) for name in ("routed_experts_quant_method", "store_dtype"))
    if "mxfp4" in [(format_ or "").lower() for format_ in formats]:
        return "mxfp4"
    return "mxfp4" if (string(text_part(config), "expert_dtype") or "").lower() == "fp4" else ""


def _plain(settings: Config, method: str) -> Quantization | None:
    bits = whole_number(settings, "bits", "w_bit", "num_bits")
    group = whole_number(settings, "group_size", "q_group_size")
    if method in _ALIKE:
        name, bits = _ALIKE[method]
        block = settings.get("weight_block_size")
        return _made(name, method, bits=bits, group_size=32 if name == "mxfp4" else group, block=_block(block))
    if method in ("awq", "gptq", "awq_marlin", "gptq_marlin"):
        return _made(method.partition("_")[0], method, bits=bits, group_size=group)
    if method == "bitsandbytes":
        return _made(method, method, bits=4 if settings.get("load_in_4bit") else 8)
    return None


def _compressed(settings: Config) -> Quantization | None:
    """Return the quantization in the format of compressed-tensors. The format has groups of modules with different types of
    weights. If the groups differ, the quantization of the group of routed experts is returned, because these are most of
    the weights. Return None if there is no such group.
    """
    groups = [group for group in section(settings, "config_groups").values() if isinstance(group, dict)]
    stored = [group for group in groups if section(group, "weights")]
    if len({(_format_of(group), string(group, "format")) for group in stored}) > 1:
        stored = [group for group in stored if _is_for_experts(group)]
    if not stored or len({_format_of(group) for group in stored}) > 1:
        return None
    weights, settings = section(stored[0], "weights"), {**settings, **stored[0]}
    bits, kind = whole_number(weights, "num_bits"), string(weights, "type")
    layout = string(settings, "format") or ""
    if bits is None or kind not in ("int", "float"):
        return None
    group = whole_number(weights, "group_size")
    if kind == "float" and bits == 4:
        name = "mxfp4" if "mxfp4" in layout or group == 32 else "nvfp4"
    else:
        name = f"{'fp' if kind == 'float' else 'int'}{bits}"
    return _made(name, "compressed-tensors", bits=bits, group_size=group, block=_block(weights.get("block_structure")))


def _format_of(group: Config) -> tuple[object, ...]:
    weights = section(group, "weights")
    return whole_number(weights, "num_bits"), string(weights, "type"), whole_number(weights, "group_size")


def _is_for_experts(group: Config) -> bool:
    """Return whether the patterns of a group match routed experts."""
    targets = group.get("targets")
    names = [name for name in targets[:_MOST_UNCHANGED] if isinstance(name, str)] if isinstance(targets, list) else []
    return any("experts" in name and "shared_expert" not in name for name in names)


def _mixed(modules: Mapping[str, Quantization]) -> Quantization | None:
    """Return the quantization of most weights: the quantization of the routed experts or, if the model has no routed
    experts, of the networks after attention. Return None if these modules have several quantizations.
    """
    experts = [found for name, found in modules.items() if "experts" in name and "shared_expert" not in name]
    chosen = experts or [found for name, found in modules.items() if "mlp" in name and "expert" not in name]
    return chosen[0] if chosen and all(found == chosen[0] for found in chosen) else None


def _modelopt(settings: Config) -> Quantization | None:
    algorithm = string(settings, "quant_algo")
    if algorithm not in _MODELOPT:
        return None
    name, bits = _MODELOPT[algorithm]
    group = whole_number(settings, "group_size") or _FP4_GROUPS.get(name)
    return _made(name, "modelopt", bits=bits, group_size=group)


def _block(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and len(value) == 2 and all(is_whole(each) and each for each in value) else None


def _made(name: str, method: str, **rest: Any) -> Quantization:
    return Quantization(name=name, method=method, **{key: value for key, value in rest.items() if value is not None})
