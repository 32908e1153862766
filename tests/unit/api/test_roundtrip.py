"""Tests with hypothesis that for any object that a schema allows, parsing succeeds and writes back the same object."""

import string
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ome_operator import api
from ome_operator.api import schema
from ome_operator.api.kinds import KINDS
from tests.unit.api.test_fields import PARSED
from tests.unit.api.walker import OPEN, errors

Strategy = st.SearchStrategy[Any]
TEXT = st.text(string.ascii_letters + string.digits + "-.", min_size=1, max_size=8)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda one: st.lists(one, max_size=2), max_leaves=4)
OPEN_MAP = st.dictionaries(st.sampled_from(["volumes", "nodeSelector", "x"]), JSON, max_size=2)
SPELLED: dict[str, Strategy] = {
    "storageUri": TEXT.map("hf://owner/{}".format),
    "path": TEXT.map("/models/x{}".format),
    "modelParameterSize": st.sampled_from(["7B", "1.04T", "500m", "12"]),
    "class": st.sampled_from(["HPA", "External", "None"]),
    "soak": st.just("90s"),
    "duration": st.just("1h30m"),
    "interval": st.just("10s"),
    "initialDelay": st.just("10s"),
    "readyTimeout": st.just("2m"),
    "instanceReadyTimeout": st.just("45m"),
    "ratios": st.dictionaries(st.just("decoder"), st.integers() | st.floats(0, 9) | st.just("0.5"), max_size=1),
}


def values(node: dict[str, Any], name: str = "") -> Strategy:
    """Return a strategy for all values that this part of the schema allows."""
    if name in SPELLED:
        return SPELLED[name]
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        return st.integers(0, 100) | st.integers(0, 100).map("{}%".format)
    match node.get("type"):
        case "string":
            return TEXT
        case "integer":
            return st.integers(node.get("minimum", 0), node.get("maximum", 1000))
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(node["items"]), min_size=node.get("minItems", 0), max_size=2)
    if "additionalProperties" in node:
        return st.dictionaries(TEXT, values(node["additionalProperties"]), max_size=2)
    return fields(node)


def fields(node: dict[str, Any]) -> Strategy:
    """Return a strategy for maps with the required fields, some of the others, and any further fields if the map is open."""
    known = {name: st.deferred(lambda n=name, b=below: values(b, n)) for name, below in node.get("properties", {}).items()}
    required = {name: known.pop(name) for name in node.get("required", ())}
    some = st.fixed_dictionaries(required, optional=known)
    return st.builds(lambda a, b: b | a, some, OPEN_MAP) if node.get(OPEN) else some


OURS = {kind.kind: kind for kind in KINDS if kind.group == "ome.io"}


@cache
def written(kind: str) -> tuple[dict[str, Any], Strategy]:
    """Return the structural schema of the kind's spec, and a strategy that generates specs according to this schema."""
    accepted = schema.structural(OURS[kind].spec)
    return accepted, fields(accepted)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(st.data())
def test_dump_of_parsed_object_equals_the_original(data: st.DataObject) -> None:
    """`parse` accepts every object that is valid according to the schema, except for rules between fields. `dump` returns
    the original object.
    """
    kind = data.draw(st.sampled_from(sorted(OURS)))
    accepted, strategy = written(kind)
    spec = data.draw(strategy)
    assert list(errors(spec, accepted)) == []
    parsed = PARSED[kind].parse({"kind": kind, "metadata": {"name": "a"}, "spec": spec})
    if isinstance(parsed, api.Invalid):
        assert " is refused: " in parsed.why
        return
    assert parsed.spec.dump() == spec
    again = PARSED[kind].parse(parsed.dump())
    assert again == parsed


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(PARSED)), st.recursive(JSON, lambda one: st.dictionaries(
    st.sampled_from(["metadata", "name", "spec", "engine", "storage", "storageUri", "labels", "status", "groups"]), one,
), max_leaves=12))  # fmt: skip
def test_parse_never_raises(kind: str, body: Any) -> None:
    """`parse` returns an object or Invalid, and never raises, for any body that a file can contain."""
    parsed = PARSED[kind].parse(body)
    assert isinstance(parsed, api.Invalid | api.Object)
