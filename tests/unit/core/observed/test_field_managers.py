"""Tests of the search in managedFields."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.field_managers import applied_entry, entries, last_writer, writer_of

APPLIED = {"manager": keys.MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:02Z"}
ANNOTATED = {
    "manager": "ome",
    "operation": "Update",
    "time": "2026-01-01T00:00:03Z",
    "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{keys.MOVE}": {}}, "f:ownerReferences": {".": {}}}},
}
STATUS = {**APPLIED, "subresource": "status", "time": "2026-01-01T00:00:09Z"}
METADATA = {"managedFields": [STATUS, ANNOTATED, {**APPLIED, "operation": "Update"}, APPLIED]}


def test_entries_are_those_of_the_object_or_of_a_subresource() -> None:
    assert [*entries(METADATA, "status")] == [STATUS] and STATUS not in entries(METADATA)


def test_the_apply_of_the_operator_is_found() -> None:
    assert applied_entry(METADATA) is APPLIED and applied_entry(METADATA, "status") is STATUS
    assert applied_entry({"managedFields": [ANNOTATED]}) is None


@pytest.mark.parametrize(
    ("path", "manager"),
    [
        (("annotations", keys.MOVE), "ome"),
        (("ownerReferences",), "ome"),
        (("annotations", "other"), None),
        (("labels", keys.MOVE), None),
    ],
)
def test_the_writer_of_a_field_is_found(path: tuple[str, ...], manager: str | None) -> None:
    assert writer_of(METADATA, *path).get("manager") == manager


def test_the_last_writer_of_the_status_is_not_the_last_writer_of_the_object() -> None:
    assert last_writer(METADATA) == "ome"


@pytest.mark.parametrize("metadata", [{}, {"managedFields": None}, {"managedFields": [{}]}])
def test_objects_without_records_have_no_writer(metadata: dict[str, Any]) -> None:
    assert last_writer(metadata) == "" and applied_entry(metadata) is None and not writer_of(metadata, "ownerReferences")
