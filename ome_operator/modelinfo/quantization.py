"""Which quantization a model's files name, in one vocabulary."""

from typing import Any

from ome_operator.api.learned import Quantization
from ome_operator.modelinfo.json_fields import Config, section, text_part, whole, word

NONE = "none"
_MODELOPT = {
    "NVFP4": ("nvfp4", 4), "FP8": ("fp8", 8), "W4A16_AWQ": ("awq", 4), "W4A8_AWQ": ("awq", 4), "INT8_SQ": ("int8", 8),
}  # fmt: skip
_ALIKE = {"mxfp4": ("mxfp4", 4), "nvfp4": ("nvfp4", 4), "fbgemm_fp8": ("fbgemm_fp8", 8), "fp8": ("fp8", 8)}


def quantization(config: Config, modelopt: Config | None = None) -> Quantization | None:
    """The quantization of a config.json, or of NVIDIA's hf_quant_config.json beside it; None when its words are unknown.

    A config that names none has plain weights.
    """
    found = section(config, "quantization_config") or section(text_part(config), "quantization_config")
    found = found or section(text_part(config), "compression_config")
    if not found and modelopt:
        found = {"quant_method": "modelopt", **section(modelopt, "quantization")}
    if not found:
        return Quantization(name=NONE)
    method = (word(found, "quant_method", "quant_type") or ("modelopt" if "quant_algo" in found else "")).lower()
    if method == "compressed-tensors":
        return _compressed(found)
    if method in ("modelopt", "modelopt_fp4"):
        return _modelopt(found)
    return _plain(found, method)


def _plain(found: Config, method: str) -> Quantization | None:
    bits = whole(found, "bits", "w_bit", "num_bits")
    group = whole(found, "group_size", "q_group_size")
    if method in _ALIKE:
        name, bits = _ALIKE[method]
        block = found.get("weight_block_size")
        return _made(name, method, bits=bits, group_size=32 if name == "mxfp4" else group, block=_block(block))
    if method in ("awq", "gptq", "awq_marlin", "gptq_marlin"):
        return _made(method.partition("_")[0], method, bits=bits, group_size=group)
    if method == "bitsandbytes":
        return _made(method, method, bits=4 if found.get("load_in_4bit") else 8)
    return None


def _compressed(found: Config) -> Quantization | None:
    """compressed-tensors names groups of layers, each with the type of its weights; the first group speaks for all."""
    groups = [one for one in section(found, "config_groups").values() if isinstance(one, dict)]
    weights = next((section(one, "weights") for one in groups if section(one, "weights")), {})
    bits, kind = whole(weights, "num_bits"), word(weights, "type")
    layout = word(found, "format") or ""
    if bits is None or kind not in ("int", "float"):
        return None
    group = whole(weights, "group_size")
    if kind == "float" and bits == 4:
        name = "mxfp4" if "mxfp4" in layout or group == 32 else "nvfp4"
    else:
        name = f"{'fp' if kind == 'float' else 'int'}{bits}"
    return _made(name, "compressed-tensors", bits=bits, group_size=group, block=_block(weights.get("block_structure")))


def _modelopt(found: Config) -> Quantization | None:
    algorithm = word(found, "quant_algo")
    if algorithm not in _MODELOPT:
        return None
    name, bits = _MODELOPT[algorithm]
    return _made(name, "modelopt", bits=bits, group_size=whole(found, "group_size"))


def _block(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value) else None


def _made(name: str, method: str, **rest: Any) -> Quantization:
    return Quantization(name=name, method=method, **{key: value for key, value in rest.items() if value is not None})
