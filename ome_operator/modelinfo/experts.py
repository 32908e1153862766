"""Read the experts of a mixture-of-experts model from its config.json: how many there are, how many of them process a token,
and how many layers have them.

Families state these numbers in different fields, and some families state only a part of them, because their code contains
the rest. `experts` has a result only if every number is known; otherwise `unknown_experts` says which number is missing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator.api.learned import Experts
from ome_operator.modelinfo.json_fields import Config, is_whole, section, string, whole_number

MOST_LAYERS = 10_000
"""Maximum number of layers whose experts are counted, because they are counted one by one."""
_MOST_NUMBERS = 65_536
"""Maximum number of characters of a text that lists numbers of layers."""
_ROUTED = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_PER_TOKEN = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", "top_k_experts",
)  # fmt: skip
"""Fields with the number of experts per token. `top_k` is not among them: it is a setting of text generation, which the
nested configs of some models contain."""
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_ONE_SHARED = (
    "shared_expert_intermediate_size", "share_expert_dim", "share_expert_dims", "shared_intermediate_size",
)  # fmt: skip
"""Fields with the width of a shared expert. A family that has such a field has a single shared expert."""
_SWITCHES = ("is_moe", "enable_moe_block")
"""Fields that are false for a dense model of a family with experts."""
_WITH_EXPERTS, _WITHOUT = frozenset({"sparse", "moe", "hash_moe"}), frozenset({"dense"})
"""Words of `mlp_layer_types` for layers with experts, and for other layers."""


class _Family(NamedTuple):
    """What the code of a family determines and its config.json does not state."""

    shared: int | None = None
    """Number of shared experts; None if the config states it."""
    everywhere: bool = False
    """Whether every layer of the family has experts."""


_FAMILIES: Mapping[str, _Family] = MappingProxyType(
    {
        **dict.fromkeys(
            ("dbrx", "gemma4_text", "gpt_oss", "granitemoe", "minimax_m2", "mixtral", "olmoe", "phimoe"), _Family(0, True)
        ),
        **dict.fromkeys(("jamba", "mimo_v2_flash", "qwen3_moe", "qwen3_vl_moe_text"), _Family(0)),
        **dict.fromkeys(("deepseek_v4", "qwen3_5_moe_text"), _Family(None, True)),
        "llama4_text": _Family(1),
        "qwen2_moe": _Family(1),
    }
)
"""Maps `model_type` to what is known of the family. Checked against the classes of transformers 5.19 and 5.24
(tests/data/models/)."""


def experts(text: Config) -> Experts | None:
    """Return the experts of a text model; None for a dense model, and if one of the numbers is not known."""
    text = _with_nested(text)
    routed, per_token = _number(text, *_ROUTED), _number(text, *_PER_TOKEN)
    shared, layers = _shared(text), _layers_with_experts(text)
    if is_dense(text) or not routed or not per_token or per_token > routed or shared is None or layers is None:
        return None
    return Experts(routed=routed, shared=shared, per_token=per_token, layers=layers)


def unknown_experts(text: Config) -> str:
    """Return a clause that states why the experts of a text model are not known. Return "" if the experts are known, and
    for a dense model.
    """
    text = _with_nested(text)
    if is_dense(text) or experts(text) is not None:
        return ""
    kind = string(text, "model_type") or "(none)"
    for value, missing in (
        (_number(text, *_ROUTED), "the number of experts"),
        (_number(text, *_PER_TOKEN), "the number of experts per token"),
        (_shared(text), "the number of shared experts"),
    ):
        if value is None:
            return f"config.json does not state {missing} in a known field"
    routed, per_token = _number(text, *_ROUTED) or 0, _number(text, *_PER_TOKEN) or 0
    if not 0 < per_token <= routed:
        return f"config.json states {per_token} experts per token, but {routed} experts"
    return f"the layers of model type {kind} that have experts are not known"


def is_dense(text: Config) -> bool:
    """Return whether a config states no experts: none of its fields about experts has a value, or a field switches them
    off.
    """
    text = _with_nested(text)
    counts = [text[name] for name in _ROUTED if name in text]
    if any(text.get(name) is False for name in _SWITCHES) or (counts and all(count in (None, 0) for count in counts)):
        return True
    return not any(_stated(value) for name, value in text.items() if "expert" in name or "moe" in name)


def _with_nested(text: Config) -> Config:
    """Return the config with the fields of its feed-forward part, where DBRX states its experts."""
    return {**text, **section(text, "ffn_config")}


def _stated(value: object) -> bool:
    """Return whether a field has a value that experts need. A dense model of a family with experts has 0, null or an
    empty list.
    """
    return bool(value) and value is not True and not isinstance(value, str)


def _number(text: Config, *names: str) -> int | None:
    """Return the number in the first of the fields `names` that contains a whole number, or a list with the same whole
    number for every layer; None if there is no such field.
    """
    for name in names:
        value = text.get(name)
        if isinstance(value, list) and value and all(is_whole(each) and each == value[0] for each in value):
            value = value[0]
        if is_whole(value):
            return value
    return None


def _shared(text: Config) -> int | None:
    """Return the number of shared experts; None if neither the config nor the code of a known family states it."""
    stated = _number(text, *_SHARED)
    if stated is not None:
        return stated
    if any(whole_number(text, name) for name in _ONE_SHARED):
        return 1
    return _family(text).shared


def _family(text: Config) -> _Family:
    return _FAMILIES.get(string(text, "model_type") or "", _Family())


def layer_count(text: Config) -> int | None:
    """Return the number of layers of a text model, without draft layers; None if the config does not state it."""
    stated = whole_number(text, "num_hidden_layers", "n_layers", "n_layer")
    words = text.get("layers_block_type")
    return len(words) if stated is None and isinstance(words, list) and words else stated


def _layers_with_experts(text: Config) -> int | None:
    """Return the number of layers that have experts, or None if it is not known or 0."""
    layers = layer_count(text)
    if layers is None or layers > MOST_LAYERS:
        return None
    listed = _listed(text, layers)
    if listed is None:
        listed = _computed(text, layers)
    return listed or None


def _listed(text: Config, layers: int) -> int | None:
    """Return the number of layers with experts if a field of the config lists the layers, otherwise None."""
    if isinstance(kinds := text.get("mlp_layer_types"), list) and len(kinds) >= layers:
        sparse = sum(kind in _WITH_EXPERTS for kind in kinds[:layers] if isinstance(kind, str))
        return sparse if sparse + sum(kind in _WITHOUT for kind in kinds[:layers] if isinstance(kind, str)) == layers else 0
    if isinstance(kinds := text.get("layers_block_type"), list) and len(kinds) >= layers:
        return kinds[:layers].count("moe")
    if isinstance(pattern := text.get("hybrid_override_pattern"), str) and len(pattern) == layers:
        return pattern.count("E")  # Nemotron: a letter for each layer
    if isinstance(numbers := text.get("moe_layers"), list) and numbers:
        return len({number for number in numbers if is_whole(number) and number < layers})
    if isinstance(written := text.get("moe_layers_enum"), str) and written:  # Step: numbers with commas between them
        words = {word.strip() for word in written[:_MOST_NUMBERS].split(",")}
        return sum(int(word) < layers for word in words if word.isdecimal() and len(word) <= len(str(MOST_LAYERS)))
    if isinstance(flags := text.get("moe_layer_freq"), list) and len(flags) >= layers:
        return flags[:layers].count(1)
    return None


def _computed(text: Config, layers: int) -> int | None:
    """Return the number of layers with experts, computed from fields such as the number of the first layer with experts and
    the distance between two such layers. Return None for a family that is not known and whose config contains none of these
    fields.
    """
    if (first := whole_number(text, "first_k_dense_replace")) is not None:  # DeepSeek numbers the layers from 0
        step = _step(text, "moe_layer_freq")
        return step and sum(number >= first and number % step == 0 for number in range(layers))
    if (first := whole_number(text, "num_dense_layers")) is not None:
        return max(0, layers - first)
    if (period := whole_number(text, "expert_layer_period")) and (
        offset := whole_number(text, "expert_layer_offset")
    ) is not None:
        return sum(number % period == offset for number in range(layers))
    name = next((name for name in ("interleave_moe_layer_step", "decoder_sparse_step") if name in text), "")
    if name or "mlp_only_layers" in text:  # these families number the layers from 1
        step, listed = _step(text, name), text.get("mlp_only_layers")
        dense = {number for number in listed if type(number) is int} if isinstance(listed, list) else set()
        return step and sum((number + 1) % step == 0 and number not in dense for number in range(layers))
    return layers if _family(text).everywhere else None


def _step(text: Config, name: str) -> int | None:
    """Return the distance between two consecutive layers with experts: 1 if the config does not contain the field, None for
    a value that is not a positive whole number.
    """
    value: Any = text.get(name, 1)
    return value if is_whole(value) and value else None


def plain_layers(text: Config, mixture: Experts | None) -> int:
    """Return the number of layers that have a network without experts. `mixture` are the experts of the model."""
    layers, kind = layer_count(text) or 0, string(text, "model_type")
    if kind == "gemma4_text":  # every layer has a network without experts beside its experts
        return layers
    if kind == "nemotron_h":  # most layers have neither experts nor such a network
        words, pattern = text.get("layers_block_type"), text.get("hybrid_override_pattern")
        if isinstance(words, list):
            return words[:layers].count("mlp")
        return pattern.count("-") if isinstance(pattern, str) else 0
    return layers - (mixture.layers if mixture else 0)
