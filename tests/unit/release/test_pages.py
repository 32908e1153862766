"""Tests that pages and schemas of the charts are generated from the charts' own files, and are up to date."""

import json
from pathlib import Path
from typing import Any

import pytest

from release import pages
from release.values import values

ROOT = Path(__file__).parents[3]
RESOURCES = ROOT / "charts/ome-resources"


def test_committed_chart_pages_equal_the_generated_ones() -> None:
    assert pages.differences() == [], "make charts"


def test_every_value_has_a_description() -> None:
    """Every value of the chart has a description in values.yaml, from which the page and the schema get it."""
    listed = values((RESOURCES / "values.yaml").read_text())
    assert len(listed) > 50
    assert [value.key for value in listed if not value.text] == []


def below(node: dict[str, Any], path: str) -> dict[str, dict[str, Any]]:
    """Return what a user can write below a field: its fields, the fields of its items, and any other key."""
    found = {f"{path}.{name}": value for name, value in node.get("properties", {}).items()}
    found |= {f"{path}[].{name}": value for name, value in node.get("items", {}).get("properties", {}).items()}
    return found | ({f"{path}.*": rest} if isinstance(rest := node.get("additionalProperties"), dict) else {})


def undescribed(node: dict[str, Any], path: str = "") -> list[str]:
    """Return the leaves of a schema that have no description of their own, even if a node above has one."""
    inside = below(node, path)
    if not inside:
        return [] if node.get("description") else [path]
    return [found for place, value in inside.items() for found in undescribed(value, place)]


def test_every_value_of_the_schema_has_a_description() -> None:
    schema = json.loads((RESOURCES / "values.schema.json").read_text())
    assert undescribed(schema) == [".global"], "a value of Helm itself"
    assert schema["properties"]["image"]["properties"]["digest"]["description"].startswith("Digest of the image")


def test_every_field_below_a_described_parent_is_listed() -> None:
    field = {"properties": {"name": {"type": "string"}}}
    schema = {"properties": {name: {"description": "Said."} for name in ("list", "map", "any")}}
    schema["properties"]["list"]["items"] = field  # type: ignore[assignment]
    schema["properties"]["map"] |= field  # type: ignore[arg-type]
    schema["properties"]["any"]["additionalProperties"] = field  # type: ignore[assignment]
    assert undescribed(schema) == [".list[].name", ".map.name", ".any.*.name"]


def test_crd_chart_has_no_values() -> None:
    """The chart with the CRDs has no values, and so it needs neither values.yaml nor a schema."""
    templates = "".join(file.read_text() for file in (ROOT / "charts/ome-crd/templates").iterdir())
    assert ".Values" not in templates and not (ROOT / "charts/ome-crd/values.yaml").exists()


def test_value_missing_in_the_schema_is_reported() -> None:
    with pytest.raises(SystemExit, match=r"values\.schema\.json has no a\.b"):
        pages.described({"properties": {"a": {}}}, values("a:\n  # -- New.\n  b: 1\n"))


def test_description_of_a_removed_value_is_dropped() -> None:
    made = pages.described({"properties": {"a": {"description": "old", "type": "string"}}}, [])
    assert json.loads(made) == {"properties": {"a": {"type": "string"}}}


def test_schema_descriptions_below_a_value_are_kept() -> None:
    items = {"properties": {"name": {"description": "kept"}}}
    schema = {"properties": {"a": {"description": "old", "items": items}}}
    made = json.loads(pages.described(schema, values("# -- New.\na: []\n")))
    assert made == {"properties": {"a": {"description": "New.", "items": items}}}
