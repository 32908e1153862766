"""Compute the work of a model for each token: the bytes that the GPUs read, the operations, and the size of the KV cache."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator.api.learned import Facts
from ome_operator.capacity.model import ModelFacts, matrix_widths
from ome_operator.modelinfo import architecture
from ome_operator.modelinfo.experts import layer_count
from ome_operator.modelinfo.extract import CONFIG, facts
from ome_operator.modelinfo.json_fields import text_part
from ome_operator.modelinfo.layer_sizes import CacheEntries
from ome_operator.modelinfo.quantization import quantization, quantization_settings
from ome_operator.modelinfo.request_cache import RequestCache, cache_entries, linear_state, request_cache
from ome_operator.modelinfo.uncounted import unweighed, wrong_size
from ome_operator.modelinfo.weight_sizes import WeightBytes, weight_bytes
from ome_operator.sizing.errors import PlanRefused, nearest
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document

_QUANTIZED: Mapping[str, Mapping[str, Any] | None] = {
    "bf16": None,
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "fp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
    "mxfp4": {"quant_method": "mxfp4"},
    "int4": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
    },
}
_ALIASES = {"nvfp4": "fp4"}
MOST_LAYERS = 1000
"""Largest number of layers that is accepted. Published models have at most 200."""
_STORED = {"mxfp4": "mxfp4", "nvfp4": "fp4"}
"""Maps the name of a quantization of 4 bits to the precision. All other quantizations of 4 bits, such as AWQ and GPTQ, have
the precision INT4."""

_FOUR_BITS = frozenset({"fp4", "mxfp4"})
_NOTHING = RequestCache(0)


@dataclass(frozen=True)
class Shape:
    """The sizes of a model in one precision, and the work for each token."""

    name: str
    precision: str
    known: ModelFacts
    layers: int
    expert_layers: int
    hidden: int
    experts: int
    """Number of routed experts in a layer; 0 for a dense model."""
    per_token: int
    routed_bytes: float
    rest_bytes: float
    """Bytes of all weights except routed experts and the input embedding."""
    routed_flops: float
    """Number of operations for one token in routed experts."""
    rest_flops: Mapping[str, float]
    """Maps each precision to the number of operations in it for one token, without routed experts and without attention
    to other tokens. Matrices that are not quantized compute in BF16."""
    head_flops: float
    """The part of `rest_flops` that prefill computes only for the last token of a prompt: the output projection to the
    vocabulary (LM head)."""
    attended: tuple[CacheEntries, ...]
    """The cache entries that attention and indexers read for each token, over all layers."""
    cache_heads: int
    """Largest number of GPUs among which the KV cache of a token can be divided; 1 for latent attention (MLA)."""
    longest: int
    """Context length of the model, in tokens; 0 if unknown."""
    request_cache: RequestCache = _NOTHING
    """The memory that an engine needs for each request."""
    state: int = 0
    """Bytes of the states of linear attention that each step reads and writes for a request."""
    state_heads: int = 1
    """Largest number of GPUs among which the states of a request can be divided: the heads of linear attention, or 1."""
    estimated: bool = False
    """Whether the model family is unknown. If so, the sizes are estimates, and every prediction is rough."""

    @property
    def facts(self) -> Facts:
        """The facts read from the model's config.json."""
        return self.known.facts


@cache
def shape(name: str, precision: str = "") -> Shape:
    """Return the Shape of a known model by the model's name or repository. If `precision` is "", the precision of the
    published weights is used.

    Raises PlanRefused for an unknown model or precision.
    """
    found = _found(_known(), name)
    if found is None:
        return _published(name, precision)
    said, title = found
    wanted = _spelled(precision) or (said.get("published") or {}).get(title, said["precision"])
    if wanted not in _QUANTIZED:
        raise PlanRefused(f"The precision {wanted} is not supported: {nearest(wanted, _QUANTIZED)}.")
    longest = (said.get("context") or {}).get(title, said["config"]["max_position_embeddings"])
    plain = (said.get("unchanged") or {}).get(wanted)
    stored = {**(_QUANTIZED[wanted] or {}), **({"ignore": plain} if plain else {})}
    changed = {"max_position_embeddings": longest, "quantization_config": stored}
    return shape_of(title, {**said["config"], **changed}, wanted)


def _spelled(precision: str) -> str:
    """Return the name of a precision as it is spelled in `_QUANTIZED`."""
    return _ALIASES.get(precision.lower(), precision.lower())


def _published(name: str, precision: str) -> Shape:
    """Return the Shape of a model in data/published_configs.json. Raises PlanRefused for an unknown model or precision."""
    configs = _configs()
    if found := _found(configs, name):
        return from_config(found[1], found[0]["config"], precision)
    raise PlanRefused(f"No data for the model {name or '(none)'}: {nearest(_short(name), spellings())}.")


def spellings() -> list[str]:
    """Return all names of models that `shape` knows."""
    return [each for models in (_known(), _configs()) for title, said in models.items() for each in _names(title, said)]


def _found(models: Mapping[str, Mapping[str, Any]], name: str) -> tuple[Mapping[str, Any], str] | None:
    """Return the data of a model, and the spelling of its name that matches `name`; None for an unknown model."""
    for title, said in models.items():
        for spelling in _names(title, said):
            if _short(name) == spelling.lower():
                return said, spelling
    return None


def _short(name: str) -> str:
    return name.strip().lower().rpartition("/")[2]


def _names(title: str, said: Mapping[str, Any]) -> tuple[str, ...]:
    return title, *said.get("names", ())


@cache
def _configs() -> Mapping[str, dict[str, Any]]:
    """Return the published config.json files of models whose layers differ, reduced to the fields that the sizes need."""
    found: dict[str, dict[str, Any]] = json.loads(package_data.text("ome_operator.sizing", "published_configs.json"))
    return found


@cache
def _known() -> Mapping[str, dict[str, Any]]:
    text = package_data.text("ome_operator.sizing", "models.yaml")
    found: dict[str, dict[str, Any]] = document(text)
    return found


def from_config(
    name: str, config: Mapping[str, Any], precision: str = "", modelopt: Mapping[str, Any] | None = None
) -> Shape:
    """Return the Shape of a model from its config.json. If `precision` is "", the precision of the stored weights is used.
    `modelopt` is the content of NVIDIA's hf_quant_config.json, if it exists.

    Raises PlanRefused for an unknown precision or model family, and for too many layers.
    """
    text = text_part(config)
    wanted = _spelled(precision) or stored_precision(config, modelopt)
    if wanted is None:
        raise PlanRefused(f"The quantization of {name} is not known: pass --precision, one of {', '.join(_QUANTIZED)}.")
    if wanted not in _QUANTIZED:
        raise PlanRefused(f"The precision {wanted} is not supported: {nearest(wanted, _QUANTIZED)}.")
    check_sizes(name, text)
    stored = quantization_settings(config, modelopt) if not precision else _QUANTIZED[wanted] or {}
    one_part = {**text, "tie_word_embeddings": architecture.has_tied_embedding(config), "quantization_config": stored}
    if precision:
        one_part.pop("expert_dtype", None)  # this field also states a precision
    return shape_of(name, one_part, wanted)


def check_sizes(name: str, text: Mapping[str, Any]) -> None:
    """Raise PlanRefused if the config of a text model states a size that is not a whole number above 0, or more than
    MOST_LAYERS layers. A missing or null size is accepted, because not every family states all sizes.
    """
    if wrong := wrong_size(text):
        raise PlanRefused(f"{name} {wrong}: check config.json.")
    if (layers := layer_count(text) or 0) > MOST_LAYERS:
        raise PlanRefused(
            f"{name} has {layers:,} layers, but models of at most {MOST_LAYERS:,} layers are supported: check config.json."
        )


def stored_precision(config: Mapping[str, Any], modelopt: Mapping[str, Any] | None = None) -> str | None:
    """Return the precision of the weights that a config.json, and NVIDIA's hf_quant_config.json, describe; None if their
    quantization is not known. `modelopt` is the content of hf_quant_config.json; None if it does not exist.
    """
    stored = quantization(config, modelopt)
    if stored is None:
        return None
    if stored.bits == 4:
        return _STORED.get(stored.name, "int4")
    return "fp8" if stored.bits == 8 else "bf16"


def shape_of(name: str, config: Mapping[str, Any], precision: str) -> Shape:
    """Return the Shape of a model from its config.json. `precision` is the precision of most weights; the quantization in
    the config states the precision of each part. Raises PlanRefused for an unknown model family.
    """
    read, sizes = facts({CONFIG: json.dumps(config)}), weight_bytes(config)
    mixture, seen = read.experts, read.attention
    count = architecture.count_parameters(config, seen, mixture, tied=architecture.has_tied_embedding(config))
    if sizes is None or seen is None or count is None or not read.layers or not read.hidden_size:
        raise PlanRefused(f"The sizes of {name} are unknown: {unweighed(config, None)}.")
    active = count.routed * mixture.per_token / mixture.routed if mixture else 0.0
    return Shape(
        name=name,
        precision=precision,
        known=ModelFacts(name, read, sizes, matrix_widths(config)),
        layers=read.layers,
        expert_layers=mixture.layers if mixture else 0,
        hidden=read.hidden_size,
        experts=mixture.routed if mixture else 0,
        per_token=mixture.per_token if mixture else 0,
        routed_bytes=sizes.routed,
        rest_bytes=max(0.0, sizes.rest - 2.0 * count.lookups),
        routed_flops=2 * active,
        rest_flops=_rest_flops(count.active - active, sizes, precision),
        head_flops=2.0 * (read.vocabulary or 0) * read.hidden_size,
        attended=cache_entries(config, seen),
        cache_heads=1 if seen.kv_lora_rank else seen.kv_heads,
        request_cache=request_cache(config, seen) or RequestCache(0),
        state=linear_state(config),
        state_heads=seen.linear_heads or 1,
        longest=read.context_length or 0,
    )


def _rest_flops(active: float, sizes: WeightBytes, precision: str) -> dict[str, float]:
    """Return `Shape.rest_flops`. `active` is the number of parameters outside routed experts that a token uses."""
    names = {8: "fp8", 4: precision if precision in _FOUR_BITS else "int4"}
    out = {names[bits]: 2.0 * number for bits, number in sizes.quantized if bits in names and number}
    plain = 2.0 * active - sum(out.values())
    return {**out, "bf16": plain} if plain > 0 else out
