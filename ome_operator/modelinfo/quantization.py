"""Determine the quantization that a model's files state. The names of quantizations are the same for all formats."""

from typing import Any

from ome_operator.api.learned import Quantization
from ome_operator.modelinfo.json_fields import Config, is_whole, section, string, text_part, whole_number

NONE = "none"
_MODELOPT = {
    "NVFP4": ("nvfp4", 4), "FP8": ("fp8", 8), "W4A16_AWQ": ("awq", 4), "W4A8_AWQ": ("awq", 4), "INT8_SQ": ("int8", 8),
}  # fmt: skip
_ALIKE = {"mxfp4": ("mxfp4", 4), "nvfp4": ("nvfp4", 4), "fbgemm_fp8": ("fbgemm_fp8", 8), "fp8": ("fp8", 8)}


def quantization(config: Config, modelopt: Config | None = None) -> Quantization | None:
    """Return the quantization in a config.json, or in NVIDIA's hf_quant_config.json next to it; None if it is unknown.

    A config that mentions no quantization means weights that are not quantized.
    """
    settings = section(config, "quantization_config") or section(text_part(config), "quantization_config")
    settings = settings or section(text_part(config), "compression_config")
    if not settings and modelopt:
        settings = {"quant_method": "modelopt", **section(modelopt, "quantization")}
    if not settings:
        return Quantization(name=NONE)
    method = (string(settings, "quant_method", "quant_type") or ("modelopt" if "quant_algo" in settings else "")).lower()
    if method == "compressed-tensors":
        return _compressed(settings)
    if method in ("modelopt", "modelopt_fp4"):
        return _modelopt(settings)
    return _plain(settings, method)


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
    """Return the quantization in the format of compressed-tensors. The format has groups of layers with different types
    of weights; the first group is used for all layers.
    """
    groups = [group_config for group_config in section(settings, "config_groups").values() if isinstance(group_config, dict)]
    weights = next((section(group_config, "weights") for group_config in groups if section(group_config, "weights")), {})
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


def _modelopt(settings: Config) -> Quantization | None:
    algorithm = string(settings, "quant_algo")
    if algorithm not in _MODELOPT:
        return None
    name, bits = _MODELOPT[algorithm]
    return _made(name, "modelopt", bits=bits, group_size=whole_number(settings, "group_size"))


def _block(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and len(value) == 2 and all(map(is_whole, value)) else None


def _made(name: str, method: str, **rest: Any) -> Quantization:
    return Quantization(name=name, method=method, **{key: value for key, value in rest.items() if value is not None})
