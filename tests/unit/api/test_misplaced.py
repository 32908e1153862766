"""Tests that a field that stands too deep in an object is moved only to a place whose field accepts its value."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ome_operator.api.base import Inline, Spec
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.api.strict import _alternatives, find_mistakes

VALUES: tuple[Any, ...] = (1, {"a": 1}, [{"a": 1}])
"""One value of each form."""


def inner_classes(
    path: tuple[str, ...], above: tuple[type[Spec], ...]
) -> Iterator[tuple[tuple[str, ...], tuple[type[Spec], ...]]]:
    """Yield (path, classes) for each class of fields below the last class of `above`. `classes` are the classes on the path,
    outermost first.
    """
    for field in above[-1].model_fields.values():
        for one in _alternatives(field.annotation):
            if isinstance(one, type) and issubclass(one, Spec) and one not in above:
                place = (*path, str(field.alias)), (*above, one)
                yield place
                yield from inner_classes(*place)


def refuses_form(spec: type[Spec], key: str, value: Any) -> bool:
    """Return whether the field accepts no value of this JSON type, such as a map or a text, whatever the value contains."""
    (field,) = (one for one in spec.model_fields.values() if one.alias == key)
    try:
        TypeAdapter[Any](field.annotation or Any).validate_python(value)
    except ValidationError as error:
        kinds = {one["type"] for one in error.errors() if one["loc"] == ()}
        maps_and_lists = {"model_type", "model_attributes_type", "dict_type", "list_type"}
        return bool(kinds & maps_and_lists) if value == 1 else any(kind.endswith("_type") for kind in kinds)
    return False


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_misplaced_field_is_moved_only_where_its_value_is_valid(kind: Kind) -> None:
    moved = 0
    places = {classes: path for path, classes in inner_classes(("spec",), (kind.spec,))}
    for classes, path in places.items():
        if issubclass(classes[-1], Inline):
            continue  # its unknown fields are those of a pod
        own = {str(field.alias) for field in classes[-1].model_fields.values()}
        outer = {str(field.alias) for one in classes[:-1] for field in one.model_fields.values()} - own
        for value in VALUES:
            body: Any = dict.fromkeys(outer, value)
            for name in reversed(path):
                body = {name: body}
            said = {one.field: one.sentence for one in find_mistakes(kind, body) if "is not a field of" in one.sentence}
            for key in outer:
                home = said[".".join((*path, key))].partition("move it to ")[2].partition(",")[0]
                assert not home or not refuses_form(classes[home.count(".")], key, value), (path, key, value)
                moved += bool(home)
    assert moved or kind.kind != "InferenceService"
