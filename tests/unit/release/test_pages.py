"""Pages and schemas of the charts: written from the charts' own files, and written again after the last change."""

import json
from pathlib import Path
from typing import Any

import pytest

from release import pages
from release.values import values

ROOT = Path(__file__).parents[3]
RESOURCES = ROOT / "charts/ome-resources"


def test_what_is_committed_is_what_would_be_written() -> None:
    assert pages.differences() == [], "make charts"


def test_every_value_has_a_description() -> None:
    """In values.yaml, and so on the page and in the schema."""
    listed = values((RESOURCES / "values.yaml").read_text())
    assert len(listed) > 50
    assert [value.key for value in listed if not value.text] == []


def undescribed(node: dict[str, Any], path: str = "") -> list[str]:
    """Leaves of a schema that say nothing of themselves."""
    below = node.get("properties")
    if not below or "description" in node:
        return [] if "description" in node else [path]
    return [found for name, one in below.items() for found in undescribed(one, f"{path}.{name}")]


def test_every_value_of_the_schema_has_a_description() -> None:
    schema = json.loads((RESOURCES / "values.schema.json").read_text())
    assert undescribed(schema) == [".global"], "helm's own"
    assert schema["properties"]["image"]["properties"]["digest"]["description"].startswith("Digest of the image")


def test_a_value_that_the_schema_does_not_know_is_said() -> None:
    with pytest.raises(SystemExit, match=r"values\.schema\.json has no a\.b"):
        pages.described({"properties": {"a": {}}}, values("a:\n  # -- New.\n  b: 1\n"))


def test_what_is_no_value_any_more_loses_its_description() -> None:
    made = pages.described({"properties": {"a": {"description": "old", "type": "string"}}}, [])
    assert json.loads(made) == {"properties": {"a": {"type": "string"}}}
