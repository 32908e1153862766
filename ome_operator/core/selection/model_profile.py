"""What is known of a model when something is chosen for it: what people wrote in its spec, else the facts of its files, else
those of a well-known model of its name.
"""

import re
from typing import NamedTuple

from ome_operator.api import Facts, Model, Version
from ome_operator.api.well_known import NOBODY, WellKnown
from ome_operator.core.weights.mount import files_uri
from ome_operator.util.memoize import memoize_by_identity

_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([KMBT]?)\s*$", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
PLAIN = "none"
"""The quantization of weights that have none."""


class ModelProfile(NamedTuple):
    """A model, as far as it is known; None and "" are not known."""

    name: str
    format: Version | None
    framework: Version | None
    architecture: str
    quantization: str
    """"" for plain weights, too: nobody writes that."""
    quantizations: frozenset[str]
    """Every word for it, in small letters: a runtime that names any of them is for this model."""
    parameters: float | None
    pipeline: str
    """Class of a diffusion pipeline."""
    weight_bytes: int | None
    learned: bool
    """Whether the facts of its files are there."""
    well_known: str = ""
    """Repository of the well-known model that it is known by, "" where its spec or its files say what it is."""


@memoize_by_identity(512)
def known(model: Model, files: bool = True, well_known: WellKnown = NOBODY) -> ModelProfile:
    """What is known of a model; without `files` only what people wrote.

    A version that was only learned from its files is left out: nobody asked for it.
    """
    facts, repository = facts_of(model, well_known) if files else (Facts(), "")
    spec = model.spec
    pipeline = spec.diffusion_pipeline
    words = _words(facts)
    quantization = spec.quantization or (words[0] if words else "")
    return ModelProfile(
        name=model.name,
        format=spec.model_format or (Version(name=facts.format.name) if facts.format else None),
        framework=spec.model_framework or (Version(name=facts.framework.name) if facts.framework else None),
        architecture=spec.model_architecture or facts.architecture or "",
        quantization=quantization,
        quantizations=frozenset(words if quantization.lower() in words else [quantization.lower()]),
        parameters=size(spec.model_parameter_size) or facts.parameters or size(facts.parameter_size),
        pipeline=(pipeline.class_name if pipeline else None) or facts.pipeline or "",
        weight_bytes=facts.weight_bytes,
        learned=bool(facts.model_fields_set) and not repository,
        well_known=repository,
    )


def facts_of(model: Model, well_known: WellKnown) -> tuple[Facts, str]:
    """The facts of a model's files and ""; before anybody has read them those of a well-known model, and its repository.

    Whoever writes the architecture has said what the model is: a field that is silent then means that there is none.
    """
    facts = learned(model)
    if facts.model_fields_set or model.spec.model_architecture:
        return facts, ""
    found = well_known.find(model.name, model.spec.storage.storage_uri)
    return (found.facts, found.repository) if found is not None else (facts, "")


def _words(facts: Facts) -> list[str]:
    """What the files call a quantization: the name first, then the tool's own word for it; [] for plain weights.

    Runtimes of Kimi K2 Thinking ask for `compressed-tensors`, which is how its weights are packed; `int4` is what they are.
    """
    found = facts.quantization
    if found is None or found.name == PLAIN:
        return []
    return list(dict.fromkeys(word.lower() for word in (found.name, found.method) if word))


def learned(model: Model) -> Facts:
    """The facts in a model's status; empty where another version of the operator wrote what this one cannot read, and where
    they are of files that the model does not name any more.
    """
    uri, status = files_uri(model.spec.storage), model.status
    if (status.get("weights") or {}).get("uri", uri) != uri:
        return Facts()
    try:
        return Facts.read(status.get("facts") or {})
    except ValueError:
        return Facts()


def size(text: str | None) -> float | None:
    """Parameters of "7B", "1.04T" or "500M"; None when it is no such text."""
    found = _SIZE.match(text or "")
    return float(found[1]) * _UNITS[found[2].upper()] if found else None
