"""Tests that OME's objects get a new owner, and that no other owner loses its fields."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.adopt import takeover
from ome_operator.adopt.handover import OldObject, is_taken_over, pending_reason
from ome_operator.core.observed.managed_fields import applied_fields

THEIRS: dict[str, Any] = {
    "manager": "manager", "operation": "Update", "time": "2026-01-01T00:00:00Z",
    "fieldsV1": {"f:metadata": {"f:ownerReferences": {}, "f:labels": {"f:a": {}}}, "f:spec": {"f:selector": {}}},
}  # fmt: skip
LATER = {**THEIRS, "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {"f:b": {}}}}}
STATUS = {**THEIRS, "subresource": "status", "fieldsV1": {"f:status": {}}}
PERSON = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:metadata": {"f:annotations": {"f:x": {}}}}}


def test_fields_of_the_old_manager_become_applied_fields() -> None:
    metadata = takeover.patch({"resourceVersion": "7", "managedFields": [THEIRS, PERSON, STATUS, LATER]})["metadata"]
    assert applied_fields({"metadata": metadata}) == {
        "f:metadata": {"f:ownerReferences": {}, "f:labels": {"f:a": {}, "f:b": {}}},
        "f:spec": {"f:selector": {}},
    }
    assert metadata["managedFields"][:2] == [PERSON, STATUS], "other owners keep their fields"
    assert metadata["labels"] == {keys.MANAGED_BY: keys.MANAGER}
    assert metadata["resourceVersion"] == "7"


def test_status_fields_of_the_old_manager_are_merged_into_the_applied_ones() -> None:
    ours = {"manager": keys.MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:url": {}}}}
    other = {**STATUS, "manager": "other"}
    theirs = {**STATUS, "fieldsV1": {"f:status": {"f:address": {}}}}
    metadata = takeover.status_patch({"resourceVersion": "7", "managedFields": [THEIRS, theirs, other, ours]}, ["manager"])
    entries = metadata["metadata"]["managedFields"]
    assert entries[:-1] == [THEIRS, other]
    assert applied_fields(metadata, "status") == {"f:status": {"f:url": {}, "f:address": {}}}


def test_patch_without_an_old_manager_keeps_all_managed_fields() -> None:
    metadata = takeover.patch({"resourceVersion": "7", "managedFields": [PERSON]})["metadata"]
    assert metadata["managedFields"] == [PERSON]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Service", "kimi", True),
        ("Service", "kimi-decoder", True),
        ("Service", "kimi-predictor", False),
        ("HorizontalPodAutoscaler", "kimi-engine", True),
        ("ServiceAccount", "kimi-router", True),
        ("ServiceAccount", "kimi-engine", False),
        ("Deployment", "kimi-engine", False),
        ("ConfigMap", "kimi", False),
    ],
)
def test_object_with_a_wanted_name_is_taken_over_and_others_deleted(kind: str, name: str, expected: bool) -> None:
    assert is_taken_over("kimi", OldObject(kind, {"name": name})) is expected


def told(type_: str, status: str, message: str = "", generation: int = 2) -> dict[str, Any]:
    return {"type": type_, "status": status, "message": message, "observedGeneration": generation}


def test_the_old_pods_stay_until_the_new_slice_is_complete_for_this_generation() -> None:
    def why(*conditions: dict[str, Any]) -> str:
        return pending_reason({"metadata": {"generation": 2}, "status": {"conditions": list(conditions)}})

    assert why(told("RolledOut", "True"), told("Ready", "False", "NameTaken")) == ""
    assert "check that the operator runs" in why()
    assert "check that the operator runs" in why({"type": "EngineReady", "status": "False", "message": "what OME said"})
    assert why(told("RolledOut", "True", generation=1), told("EngineReady", "False", "engine 0/1")) == "engine 0/1"
    taken = told("RouterReady", "False", "Role a was made by manager: run `ome adopt service ns/a`, or delete this object")
    assert why(told("RolledOut", "False", "comes up"), taken) == "comes up"
    observed = told("Frozen", "True", "only observed (operator.observe of the chart); would store revision a")
    assert why(told("EngineReady", "False", "engine 0/1"), observed).startswith("only observed (operator.observe")
    assert why(told("RolledOut", "True", generation=1), told("AnotherOperator", "True", "manager also writes")) == (
        "manager also writes"
    )
