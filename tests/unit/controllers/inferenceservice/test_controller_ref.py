"""Tests of the owner of an existing object that has the name of an object that the operator wants to create."""

from typing import Any

from ome_operator import keys
from ome_operator.controllers.inferenceservice import controller_ref

APPLIED = [{"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
THEIRS = [{"manager": "manager", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]
LABELS = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "kimi"}


def live(
    owner: dict[str, Any] | None, entries: list[dict[str, Any]], labels: dict[str, str] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "kimi", "namespace": "ns", "uid": "object", "managedFields": entries}
    metadata["labels"] = labels or LABELS
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "InferenceService", "name": "kimi", "controller": True, **owner}]
    return {"kind": "Service", "metadata": metadata}


def test_object_with_own_uid_and_apply_is_owned() -> None:
    assert controller_ref.claim_object(live({"uid": "me"}, APPLIED), "kimi", "me") == controller_ref.Ownership(uid="object")


def test_object_of_this_service_from_another_operator_is_refused() -> None:
    found = controller_ref.claim_object(live({"uid": "me"}, THEIRS), "kimi", "me").refusal
    assert found is not None
    assert found.reason == "NameTaken"
    assert "created by manager: run `ome adopt service ns/kimi`" in found.message


def test_object_of_a_deleted_service_with_the_same_name_is_waited_for() -> None:
    found = controller_ref.claim_object(live({"uid": "former"}, APPLIED), "kimi", "me").refusal
    assert found is not None
    assert found.reason == "Waiting"


def test_own_orphan_is_adopted() -> None:
    assert controller_ref.claim_object(live(None, APPLIED), "kimi", "me") == controller_ref.Ownership(uid="object")


def test_object_of_other_owner_is_refused_as_name_taken() -> None:
    for other in (
        live({"uid": "x", "kind": "Deployment", "name": "web"}, THEIRS),
        live({"uid": "x", "name": "other"}, APPLIED),
        live(None, THEIRS),
        live(None, APPLIED, {keys.SERVICE: "other", keys.MANAGED_BY: keys.MANAGER}),
    ):
        found = controller_ref.claim_object(other, "kimi", "me").refusal
        assert found is not None
        assert found.reason == "NameTaken"
        assert "Service kimi" in found.message


def test_role_scale_is_owned_according_to_its_owner_reference() -> None:
    assert controller_ref.scale(live({"uid": "me"}, THEIRS), "kimi", "me").uid == "object"
    assert controller_ref.scale(live(None, THEIRS), "kimi", "me").uid == "object", "labels of the operator, no owner"
    waiting = controller_ref.scale(live({"uid": "former"}, THEIRS), "kimi", "me").refusal
    assert waiting is not None
    assert waiting.reason == "Waiting"
    taken = controller_ref.scale(
        live(None, THEIRS, {keys.SERVICE: "other", keys.MANAGED_BY: keys.MANAGER}), "kimi", "me"
    ).refusal
    assert taken is not None
    assert taken.reason == "NameTaken"
