"""State why the parameters, or the bytes, of a model cannot be calculated from its config.json."""

import json

from ome_operator.modelinfo import architecture
from ome_operator.modelinfo.experts import layer_count, unknown_experts
from ome_operator.modelinfo.json_fields import Config, shorten, string, text_part, whole_number
from ome_operator.modelinfo.quantization import NONE, quantization

SIZES = (
    "hidden_size", "d_model", "num_hidden_layers", "n_layers", "num_attention_heads", "n_heads", "num_key_value_heads",
    "head_dim", "vocab_size",
)  # fmt: skip
"""Fields of a config.json that are a whole number above 0 in every family that states them as a single value."""
NO_HEADS = "config.json does not contain the numbers of attention heads and key-value heads"
_LONGEST = 64
"""Maximum number of characters of a value that a clause contains."""


def wrong_size(text: Config) -> str:
    """Return a clause about the first size of a text model that is not a whole number above 0; "" if there is none. A size
    that is missing or null is not wrong, because not every family states all sizes.
    """
    for field in SIZES:
        stated = text.get(field)
        if isinstance(stated, int | float | str) and not whole_number(text, field):
            return f"states {field}: {json.dumps(stated)[:_LONGEST]}, but a whole number above 0 is needed"
    return ""


def uncounted(config: Config) -> str:
    """Return a clause that states why the parameters of a model are not known; for a model whose parameters can be
    calculated, the result has no meaning.
    """
    text = text_part(config)
    kind = string(text, "model_type")
    if kind is None:
        return "config.json does not contain model_type"
    if kind not in architecture.FAMILIES:
        return f"the tensors of model type {kind[:_LONGEST]} are not known"
    if wrong := wrong_size(text):
        return f"config.json {wrong}"
    found = {
        "hidden_size": whole_number(text, "hidden_size"),
        "num_hidden_layers": layer_count(text),
        "vocab_size": whole_number(text, "vocab_size"),
    }
    if missing := [field for field, value in found.items() if not value]:
        return f"config.json does not contain {' and '.join(missing)}"
    if architecture.attention_shape(text) is None:
        return NO_HEADS
    if why := unknown_experts(text):
        return why
    if architecture.has_tied_embedding(config) is None:
        return "config.json and its text part state different values of tie_word_embeddings"
    return f"config.json lacks a size that model type {kind} needs, such as the width of a layer or of an expert"


def unweighed(config: Config, modelopt: Config | None) -> str:
    """Return a clause that states why the bytes of a model's weights are not known; for a model whose bytes can be
    calculated, the result has no meaning. `modelopt` is the content of NVIDIA's hf_quant_config.json if it exists.
    """
    stored = quantization(config, modelopt)
    if stored is None:
        return "the quantization in its files is not known"
    if stored.name != NONE and not stored.bits:
        return f"its files do not state the bits of its quantization {shorten(stored.name)} as a number"
    return uncounted(config)
