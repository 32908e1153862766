"""Collect the known properties of a model, for the selection of a runtime and of accelerators.

Values in the model's spec take precedence over facts from its files. Facts from its files take precedence over the facts of
a well-known model of the same name.
"""

import re
from typing import NamedTuple

from ome_operator.api import Facts, Model, Version
from ome_operator.api.well_known import NO_MODELS, WellKnown
from ome_operator.core.weights.mount import files_uri
from ome_operator.util.memoize import memoize_by_identity

_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([KMBT]?)\s*$", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
PLAIN = "none"
"""The word by which facts and specs state that weights are not quantized. In a spec, it means the same as no value."""


class ModelProfile(NamedTuple):
    """The known properties of a model; unknown values are None or ""."""

    name: str
    format: Version | None
    framework: Version | None
    architecture: str
    quantization: str
    """Quantization of the weights; "" if it is unknown or the weights are not quantized, because specs leave the field
    unset for such weights."""
    quantizations: frozenset[str]
    """All names of the quantization, in lower case. A runtime that names any of these supports the model."""
    parameters: float | None
    pipeline: str
    """Class name of the model's diffusion pipeline; "" for other models."""
    weight_bytes: int | None
    learned: bool
    """Whether the facts were read from the model's files."""
    well_known: str = ""
    """Repository of the well-known model from which the facts are taken; "" if the spec or the files provide them."""


@memoize_by_identity(512)
def profile_of(model: Model, files: bool = True, well_known: WellKnown = NO_MODELS) -> ModelProfile:
    """Return the known properties of a model. If `files` is false, only the spec of the model is used, and not the facts
    from its files.

    The version of a format or framework is left out if only the files state it, because nobody has requested it.
    """
    facts, repository = facts_of(model, well_known) if files else (Facts(), "")
    spec = model.spec
    pipeline = spec.diffusion_pipeline
    words = _words(facts)
    written = "" if (spec.quantization or "").lower() == PLAIN else spec.quantization
    quantization = written or (words[0] if words else "")
    return ModelProfile(
        name=model.name,
        format=spec.model_format or (Version(name=facts.format.name) if facts.format else None),
        framework=spec.model_framework or (Version(name=facts.framework.name) if facts.framework else None),
        architecture=spec.model_architecture or facts.architecture or "",
        quantization=quantization,
        quantizations=frozenset(words if quantization.lower() in words else [quantization.lower()]),
        parameters=parameter_count(spec.model_parameter_size) or facts.parameters or parameter_count(facts.parameter_size),
        pipeline=(pipeline.class_name if pipeline else None) or facts.pipeline or "",
        weight_bytes=facts.weight_bytes,
        learned=bool(facts.model_fields_set) and not repository,
        well_known=repository,
    )


def facts_of(model: Model, well_known: WellKnown) -> tuple[Facts, str]:
    """Return (the facts of a model's files, ""), or, before its files were read, (facts, repository) of a well-known
    model.

    If the spec names the architecture, the well-known facts are not used: an unset field then means that the value does not
    apply.
    """
    facts = facts_of_model(model)
    if facts.model_fields_set or model.spec.model_architecture:
        return facts, ""
    match = well_known.find(model.name, model.spec.storage.storage_uri)
    return (match.facts, match.repository) if match is not None else (facts, "")


def _words(facts: Facts) -> list[str]:
    """Return the names of the quantization in the facts, the common name before the tool's own name; [] for weights that
    are not quantized.

    Both names are needed: runtimes of Kimi K2 Thinking support `compressed-tensors`, which is the packing of its `int4`
    weights.
    """
    quantization = facts.quantization
    if quantization is None or quantization.name == PLAIN:
        return []
    return list(dict.fromkeys(word.lower() for word in (quantization.name, quantization.method) if word))


def facts_of_model(model: Model) -> Facts:
    """Return the facts in a model's status.

    They are empty if another version of the operator wrote facts that this version cannot parse, or if they were read from
    files that the model no longer refers to.
    """
    uri, status = files_uri(model.spec.storage), model.status
    if (status.get("weights") or {}).get("uri", uri) != uri:
        return Facts()
    try:
        return Facts.read(status.get("facts") or {})
    except ValueError:
        return Facts()


def format_parameters(parameters: float) -> str:
    """Return a number of parameters in the unit in which it is readable, such as 1,026.4B, 82.0M or 330.0K."""
    for unit, size, least in (("B", 1e9, 1e8), ("M", 1e6, 1e6)):
        if parameters >= least:
            return f"{parameters / size:,.1f}{unit}"
    return f"{parameters / 1e3:,.1f}K"


def parameter_count(text: str | None) -> float | None:
    """Return the number of parameters in "7B", "1.04T" or "500M"; None for other texts."""
    match = _SIZE.match(text or "")
    return float(match[1]) * _UNITS[match[2].upper()] if match else None
