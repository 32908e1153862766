"""Find the place in an object where a field that was written in another place belongs."""

import re
from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from ome_operator.api import pod_fields
from ome_operator.api.base import Inline, Spec

WHOLE = {"modelName": "spec.model.name", "runtimeName": "spec.runtime.name"}
"""Field of other kinds -> the field that does the same."""
OLD = frozenset({"predictor"})
"""Parts of the spec that are accepted only for objects of earlier versions."""
_DEEPEST, _LISTED = 4, 3
"""Maximum number of fields on the path of a place, and maximum number of places that are named."""


def correct_place(spec: type[Spec], field: str, of_pod: bool) -> str:
    """Return an instruction that names the place of a field, "" if the field has none.

    field     Path at which the field is written, such as `spec.minReplicas`.
    spec      Class of the kind's spec.
    of_pod    Whether the field is in a part of the object that contains the fields of a pod.
    """
    *above, key = re.sub(r"\[\d+\]", "", field).split(".")
    deep = len(above) > 1 and "runner" not in above
    if deep and not (of_pod and any(key in pod_fields.fields(type_) for type_ in (pod_fields.POD, pod_fields.CONTAINER))):
        return ""  # whether an outer part of the object takes the value depends on its form, see strict.py
    places = _places(spec)
    if (instead := WHOLE.get(key)) and instead.rpartition(".")[0] in places.get(instead.rpartition(".")[2], ()):
        return f"write {instead} instead"
    if key in ("name", "namespace", "labels", "annotations") and len(above) == 1:
        return f"move it to metadata.{key}"
    meant = pod_fields.MEANT.get(key, "")
    for word, text in ((key, "move it to {}"), (meant.partition(" ")[0], f"write {meant} in {{}} instead")):
        found = [place for place in places.get(word, ()) if place != ".".join(above)]
        component = [place for place in found if len(above) > 1 and place.split(".")[:2] == above[:2]]
        if found := component or ([] if deep else found):
            depth = min(place.count(".") for place in found)
            names = [place for place in found if place.count(".") == depth][:_LISTED]
            return text.format(" or ".join(filter(None, (", ".join(names[:-1]), names[-1]))))
    return ""


@cache
def _places(spec: type[Spec]) -> dict[str, tuple[str, ...]]:
    """Return for each name of a field the paths of the maps that may contain it, in the order of the classes. The fields of
    a pod and of a container count below the components.
    """
    found: dict[str, list[str]] = {}
    for place, names in _maps(spec, ("spec",)):
        for name in names:
            found.setdefault(name, []).append(place)
    return {name: tuple(places) for name, places in found.items()}


def _maps(spec: type[Spec], where: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    own = {str(field.alias): field for field in spec.model_fields.values()}
    inline = pod_fields.field_forms(spec.INLINE) if issubclass(spec, Inline) else {}
    container = pod_fields.field_forms(pod_fields.CONTAINER) if "runner" in own else {}
    if "runner" in own:  # what pod and container both have, such as resources, is meant for the container
        yield ".".join((*where, "runner")), list(container)
    yield ".".join(where), [*own, *(name for name in inline if name not in own and name not in container)]
    if len(where) < _DEEPEST:
        for name, field in ((name, field) for name, field in own.items() if name not in OLD):
            for one in _classes(field.annotation):
                yield from _maps(one, (*where, name))


def _classes(annotation: Any) -> Iterator[type[Spec]]:
    """Yield the classes in `X | None` and `Annotated[X, …]`. Lists and maps of any keys have no single place."""
    if get_origin(annotation) is Annotated:
        yield from _classes(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        yield from (inner for one in get_args(annotation) for inner in _classes(one))
    elif isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
