"""Collects the facts about a model that are known without reading its files. The sources are the model's status, the
configuration in its spec, and known recipes.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import AcceleratorClass, Facts, Model, Runtime
from ome_operator.api.learned import Quantization
from ome_operator.api.well_known import WellKnown
from ome_operator.capacity.model import ModelFacts, matrix_widths
from ome_operator.cookbook.library import memory, published_config
from ome_operator.cookbook.own_model import names_code
from ome_operator.core.observed.validation import RenderedComponent
from ome_operator.core.selection.model_profile import facts_of, facts_of_model
from ome_operator.modelinfo.extract import CONFIG, facts
from ome_operator.modelinfo.json_fields import text_part
from ome_operator.modelinfo.quantization import NONE, quantization, quantization_by_name
from ome_operator.modelinfo.weight_sizes import weight_bytes
from ome_operator.util.memoize import memoize_by_identity


@memoize_by_identity(512)
def model_facts(model: Model, well_known: WellKnown) -> ModelFacts:
    """Return all known facts about a model. The result is cached by identity of the arguments."""
    config = config_of(model)
    if config is None:
        return ModelFacts(model.name, _stated(model, facts_of(model, well_known)[0]), None, ())
    seen = facts_of_model(model)
    read = _stated(model, seen if seen.experts or seen.attention else facts({CONFIG: json.dumps(config)}))
    stored = weight_bytes(config, quantized=_stored(model, seen))
    return ModelFacts(model.name, read, stored, matrix_widths(config), names_code([config]))


def _stated(model: Model, read: Facts) -> Facts:
    """Return the facts that were read from a model's files. If these facts contain no architecture, the architecture in the
    model's spec is added.
    """
    written = model.spec.model_architecture
    return read if read.architecture or not written else read.model_copy(update={"architecture": written})


def _stored(model: Model, seen: Facts) -> Quantization | None:
    """Return the quantization of the stored weights if the config.json does not state it; otherwise None. The quantization
    is taken from other files of the model that were read, such as hf_quant_config.json. If none of these files states
    it, it is taken from the model's spec, provided that the spec contains a config.json which states no quantization.
    """
    if seen.quantization is not None:
        return seen.quantization
    written, config = model.spec.quantization, model.spec.model_configuration
    stated = quantization(config) if isinstance(config, Mapping) else None
    return quantization_by_name(written) if written and stated is not None and stated.name == NONE else None


def config_of(model: Model) -> Mapping[str, Any] | None:
    """Return the config.json of a model. It is the configuration in the model's spec. If the spec contains no config.json,
    the published configuration is returned, provided that a recipe contains the model. Return None if neither exists.
    """
    own = model.spec.model_configuration
    if isinstance(own, Mapping) and text_part(own).get("num_hidden_layers"):
        return own
    scheme, _, place = model.spec.storage.storage_uri.partition("://")
    return published_config(place.partition("@")[0]) if scheme == "hf" else None


def node_labels(classes: Mapping[str, AcceleratorClass]) -> dict[str, Mapping[str, str]]:
    """Map the name of each accelerator class to the labels that select its nodes."""
    return {name: accelerator.spec.discovery.node_selector or {} for name, accelerator in classes.items()}


def gpu_memory(
    inputs: Mapping[str, Any],
    runtime: Runtime | None,
    parts: Iterable[RenderedComponent],
    classes: Mapping[str, AcceleratorClass],
) -> dict[str, int]:
    """Return the memory in bytes of one GPU, by name of the accelerator class, for the classes on which a revision with the
    inputs `inputs` may run. `runtime` is None if the runtime is not known.
    """
    chosen = {part["class"] for part in (inputs.get("accelerator") or {}).values() if "class" in part}
    required = runtime.spec.accelerator_requirements if runtime is not None else None
    named = frozenset(chosen or (required and required.accelerator_classes) or ())
    boxes = [
        box for part in parts if part.component != keys.ROUTER for pod in part.pods for box in pod["spec"]["containers"]
    ]
    asked = frozenset(name for box in boxes for name in ((box.get("resources") or {}).get("limits") or {}))
    return memories(classes, named, asked)


def memories(classes: Mapping[str, AcceleratorClass], named: frozenset[str], resources: frozenset[str]) -> dict[str, int]:
    """Return the memory in bytes of one GPU, by name of the accelerator class. The classes are those whose names are in
    `named` or, if `named` is empty, all that provide a resource in `resources`. Classes with an unknown memory are left out.
    """
    sizes = {name: memory(accelerator) for name, accelerator in matching_classes(classes, named, resources).items()}
    return {name: size for name, size in sizes.items() if size}


def matching_classes(
    classes: Mapping[str, AcceleratorClass], named: frozenset[str], resources: frozenset[str]
) -> dict[str, AcceleratorClass]:
    """Return the accelerator classes whose names are in `named`. If `named` is empty, return all classes that provide a
    resource in `resources`.
    """
    return {
        name: accelerator
        for name, accelerator in classes.items()
        if (name in named if named else resources & {each.name for each in accelerator.spec.resources or ()})
    }
