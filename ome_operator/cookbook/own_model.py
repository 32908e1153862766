"""Make a model that has no recipe known to the cookbook, from the content of its files or from the facts that an agent
read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator.api import Facts, Model, propose_name
from ome_operator.capacity.division import find_uneven_size
from ome_operator.capacity.model import matrix_widths
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cookbook.library import Library, ServedModel
from ome_operator.cookbook.preset import environment
from ome_operator.cookbook.request import RecipeRefused
from ome_operator.modelinfo.uncounted import unweighed
from ome_operator.modelinfo.weight_sizes import WeightBytes, weight_bytes

_DENSE, _WITH_EXPERTS = ("tp", "tp+dp", "tp+pp"), ("tp", "tp+dp", "tp+pp", "tp+ep", "tp+dp+ep", "dp+ep")
"""Strategies for a dense model and for an MoE model. Disaggregation is not among them, because its sizes come from published
recipes."""
_NO_PARSER = "the cookbook knows no parser for this model: pass the name of a parser"


class OwnModel(NamedTuple):
    """The known facts about a model that the user names by its files or its repository."""

    title: str
    """The last part of the model's path or repository."""
    uri: str
    """The model's storage URI."""
    path: str
    """The directory of the model's files on the nodes."""
    facts: Facts
    config: Mapping[str, Any] | None = None
    """Content of config.json; None if only the facts are known."""
    modelopt: Mapping[str, Any] | None = None
    """Content of NVIDIA's hf_quant_config.json if it exists."""
    stored_bytes: int | None = None
    """Bytes of all safetensors files; None if they were not read."""
    remote_code: bool | None = None
    """Whether the files name Python code that is stored with the weights; None if they were not read."""


def with_own_model(known: Library, own: OwnModel) -> Library:
    """Return a library with only this model, on the hardware of `known`. Raises RecipeRefused if the size of its weights is
    not known.
    """
    weights = _weights(own)
    if weights is None:
        why = unweighed(own.config, own.modelopt) if own.config is not None else "no agent has read it from its files"
        raise RecipeRefused(
            f"The size of {own.title} is not known: {why}. Pass --from with a directory that also contains its safetensors "
            "files, or their model.safetensors.index.json."
        )
    served = _served(own, weights)
    return Library({served.name.lower(): served}, known.hardware, {})


def names_code(files: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a JSON file of a model names Python code for its configuration, model, tokenizer or processor
    (`auto_map`). Nested parts of a config, such as `text_config`, are searched, too.
    """
    return any("auto_map" in part for file in files for part in (file, *file.values()) if isinstance(part, Mapping))


def _weights(own: OwnModel) -> WeightBytes | None:
    """Return the bytes of the weights, counted from the config if possible, and otherwise from the sizes of the files.
    Return None if neither is known.
    """
    counted = weight_bytes(own.config, own.modelopt) if own.config is not None else None
    stored = own.stored_bytes or own.facts.weight_bytes
    return counted or (WeightBytes(0, stored) if stored else None)


def _served(own: OwnModel, weights: WeightBytes) -> ServedModel:
    manifest = (
        environment()
        .get_template("model.yaml.j2")
        .render(own=own, name=propose_name(own.title), size=own.facts.parameter_size, quantization=_quantization(own.facts))
    )
    model = Model.parse(
        {
            "kind": "ClusterBaseModel",
            "metadata": {"name": propose_name(own.title)},
            "spec": {
                "modelFormat": {"name": "safetensors"},
                "modelArchitecture": own.facts.architecture,
                "quantization": _quantization(own.facts) or None,
                "storage": {"storageUri": own.uri, "path": own.path},
            },
        }
    )
    if not isinstance(model, Model):
        raise RecipeRefused(f"{own.title} cannot be the name of a model: {model.why}.")
    return ServedModel(
        name=own.title,
        repository=own.uri.partition("://")[2],
        model=model,
        manifest=manifest,
        facts=own.facts,
        weights=weights,
        widths=matrix_widths(own.config) if own.config is not None else (),
        tool_call_parser=None,
        reasoning_parser=None,
        why=_NO_PARSER,
        strategies=_WITH_EXPERTS if own.facts.experts else _DENSE,
        remote_code=own.remote_code,
        wide_nodes=0,
        wide_batch=0,
        own=True,
    )


def _quantization(facts: Facts) -> str:
    name = facts.quantization.name if facts.quantization else ""
    return "" if name == "none" else name


def largest_tp(served: ServedModel, gpus: int) -> int:
    """Return the largest number of GPUs that divides `gpus` and among which the matrices and heads of a model divide
    evenly.
    """
    numbers = (number for number in range(gpus, 0, -1) if gpus % number == 0)
    return next((tp for tp in numbers if find_uneven_size(served.sizes, ParallelShape(tp=tp, cut=tp)) is None), gpus)
