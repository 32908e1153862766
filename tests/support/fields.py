"""Enumerates every field of a parsed spec by its path, and creates bodies in which a field is set."""

import copy
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from ome_operator.api import Inline, Spec

Body = dict[str, Any]
POD = "*"
"""Stands for all fields of an inline pod spec that its class does not define itself."""
KEYS = {"acceleratorConfig": "gpu", "ratios": "decoder"}
"""Field that is a map -> the key that the map gets, if its keys have to be names of something. Any other map gets `a`."""
VALUES: dict[str, Any] = {
    POD: {"shareProcessNamespace": True},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["elsewhere"]}]}]}}},
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}},
    "components": (["engine", "decoder", "router"], ["engine"]),
    "configuration": {"merged_weights": True},
    "containers": [{"name": "side", "image": "side:1"}],
    "conditions": [{"type": "Ready", "status": "True"}],
    "end": "23:00",
    "env": [{"name": "A", "value": "1"}],
    "envFrom": [{"configMapRef": {"name": "more"}}],
    "excludedClasses": ["gpu"],
    "fineTunedWeights": ["lora"],
    "imagePullSecrets": [{"name": "pull"}],
    "memoryBandwidthGBps": 500,
    "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization"}}}],
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["elsewhere"]}]}]}},
    "modelType": ("merged", "elsewhere"),
    "operator": "GreaterThan",
    "perHour": 3,
    "perMillionTokens": 3,
    "preferredPrecisions": ["int4"],
    "resources": {"limits": {"cpu": "1"}},
    "runner": {"env": [{"name": "A", "value": "1"}]},
    "start": "07:00",
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
}  # fmt: skip
"""Valid values of fields whose type does not determine them: fields that the CRDs leave open, and fields that refuse an
arbitrary word.
"""
_TEXTS = ("elsewhere", "7s", "3", "9.9", "25%", "hf://other/files", "1T", "local:///other", "/other")
_NUMBERS = (7, 3, 1, 500, 0, 5000)


class Field(NamedTuple):
    """A field of a spec that has no subfields."""

    path: str
    """Path of the field, with `[]` after lists and `{}` after maps."""
    values: tuple[Any, ...]
    """Values that are valid in the field, in the order in which they are tried."""
    owners: tuple[type[Spec] | None, ...]
    """For each step of the path, the class that defines the field; None for a key of a map."""


def fields(spec: type[Spec], at: str = "spec", owners: tuple[type[Spec] | None, ...] = (None,)) -> Iterator[Field]:
    """Yield all fields below a spec, depth first."""
    for field in spec.model_fields.values():
        yield from _of(f"{at}.{field.alias}", field.annotation, (*owners, spec))
    if issubclass(spec, Inline):
        yield Field(f"{at}.{POD}", (VALUES[POD],), (*owners, spec))


def _of(path: str, annotation: Any, owners: tuple[type[Spec] | None, ...]) -> Iterator[Field]:
    kind = bare(annotation)
    if isinstance(kind, type) and issubclass(kind, Spec):
        yield from fields(kind, path, owners)
        return
    origin, inside = get_origin(kind), [bare(item) for item in get_args(kind)]
    for container, mark in ((list, "[]"), (dict, "{}")):
        if origin is container and isinstance(inside[-1], type) and issubclass(inside[-1], Spec):
            yield from fields(inside[-1], path + mark, owners)
            return
    name = path.rpartition(".")[2]
    yield Field(path, _fitting(name, kind), owners)


def _fitting(name: str, kind: Any) -> tuple[Any, ...]:
    """Return values that are valid in a field of this name and type."""
    given = VALUES.get(name)
    if given is None or get_origin(kind) is Literal or (kind is str and not isinstance(given, str | int)):
        return _values(kind)
    return given if isinstance(given, tuple) else (given,)


def bare(annotation: Any) -> Any:
    """Return the type without `None` and without the metadata of Annotated."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = annotation.__origin__
        elif get_origin(annotation) in (Union, types.UnionType):
            kinds = [item for item in get_args(annotation) if item is not type(None)]
            if len(kinds) > 1:
                return kinds[-1]  # an integer or a string
            annotation = kinds[0]
        else:
            return annotation


def _values(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    if kind is bool:
        return True, False
    if kind is int:
        return _NUMBERS
    if kind is str:
        return _TEXTS
    origin = get_origin(kind)
    if origin is list:
        return tuple([item] for item in _values(bare(get_args(kind)[0])))
    if origin is dict:
        inside = bare(get_args(kind)[1])
        return ({"a": "b"},) if inside in (str, Any) else tuple({"decoder": item} for item in _values(inside))
    raise TypeError(f"no value for {kind}: add it here")


def with_value(body: Body, field: Field, value: Any) -> Body:
    """Return the body with this value in the field. Missing parent objects are created with their required fields."""
    out = copy.deepcopy(body)
    place, steps = out, field.path.split(".")
    for number, step in enumerate(steps[:-1]):
        made = required(field.owners[number + 1])
        name = step.removesuffix("[]").removesuffix("{}")
        if step.endswith("[]"):
            place = place.setdefault(name, [{}])[0]
        elif step.endswith("{}"):
            place = place.setdefault(name, {}).setdefault(KEYS.get(name, "a"), {})
        else:
            place = place.setdefault(name, {})
        place |= {key: item for key, item in made.items() if key not in place}
    place |= value if steps[-1] == POD else {steps[-1]: value}
    return out


def required(spec: type[Spec] | None) -> Body:
    """Return the required fields of an object of the class."""
    out: Body = {}
    for field in (spec.model_fields if spec else {}).values():
        if field.is_required():
            kind = bare(field.annotation)
            if isinstance(kind, type) and issubclass(kind, Spec):
                out[str(field.alias)] = required(kind)
            else:
                out[str(field.alias)] = _fitting(str(field.alias), kind)[0]
    return out


def merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Body:
    """Return both bodies merged. Maps are merged recursively."""
    out = dict(lower)
    for key, value in upper.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merged(out[key], value) if both else value
    return out
