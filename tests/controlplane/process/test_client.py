"""Tests of the client with a real API server: what its writes change, and what they must not change."""

import asyncio
import itertools
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.inferenceservice import controller_ref
from ome_operator.core.observed import managed_fields
from ome_operator.kube.client import Client
from ome_operator.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, NotServed
from ome_operator.kube.resources import RESOURCES

_NUMBER = itertools.count()
POD = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}
CONTENT: dict[str, dict[str, Any]] = {
    "ConfigMap": {"data": {"x": "1"}},
    "Service": {"spec": {"selector": {"a": "b"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}},
    "ServiceAccount": {"automountServiceAccountToken": False},
    "Role": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "StatefulSet": {
        "spec": {"replicas": 0, "serviceName": "s", "selector": SELECTOR, "template": POD, "ordinals": {"start": 1}}
    },
    "Deployment": {"spec": {"replicas": 0, "selector": SELECTOR, "template": POD}},
    "ControllerRevision": {"revision": 1, "data": {"inputs": {"a": {}, "b": [], "c": [{"d": 1}]}}},
    "PodDisruptionBudget": {"spec": {"selector": SELECTOR, "maxUnavailable": 1}},
    "HorizontalPodAutoscaler": {
        "spec": {
            "minReplicas": 1,
            "maxReplicas": 2,
            "scaleTargetRef": {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "name": "r"},
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        }
    },
    "RoleScale": {"spec": {"replicas": 2}},
}
ABSENT = "11111111-2222-3333-4444-555555555555"
NOT_HERE = {"ScaledObject", "LeaderWorkerSet", "HTTPRoute"}
"""Kinds that the operator knows and that this cluster does not have."""
NOT_KEPT = {"SelfSubjectReview", "SubjectAccessReview"}
"""Kinds of reviews, which are answered and not stored."""
VERSIONS = {
    "Role": "rbac.authorization.k8s.io/v1",
    "StatefulSet": "apps/v1",
    "Deployment": "apps/v1",
    "ControllerRevision": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "RoleScale": keys.API_VERSION,
}


def manifest(kind: str, **metadata: Any) -> dict[str, Any]:
    name = {"name": f"o{next(_NUMBER)}", "namespace": "default", "labels": {"empty": ""}, **metadata}
    made = {"apiVersion": VERSIONS.get(kind, "v1"), "kind": kind, "metadata": name, **CONTENT[kind]}
    made["metadata"]["annotations"] = {keys.HASH: managed_fields.digest(made)}
    return made


async def test_any_character_can_be_applied(client: Client) -> None:
    """Any character can be applied, because messages and arguments of engines may contain any."""
    every = "".join(chr(n) for n in (*range(0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 0x101)))
    body = {**manifest("ConfigMap"), "data": {"every": every}}
    assert (await client.apply(body)).body["data"]["every"] == every


@pytest.mark.parametrize("kind", CONTENT)
async def test_apply_without_uid_creates_and_never_changes_an_existing_object(client: Client, kind: str) -> None:
    """An apply without a UID creates an object, and never changes an object that exists. It is one atomic request: it names
    a resourceVersion that no object has, so the API server refuses it if the object exists.
    """
    wanted = manifest(kind)
    first = await client.apply(wanted)
    with pytest.raises(Conflict):
        await client.apply(wanted)
    uid = first.body["metadata"]["uid"]
    again = await client.apply(wanted, uid)
    assert again.body["metadata"]["uid"] == uid
    with pytest.raises(Conflict):
        await client.apply(wanted, "11111111-2222-3333-4444-555555555555")
    await client.delete(kind, "default", wanted["metadata"]["name"], uid)
    with pytest.raises(Conflict):
        await client.apply(wanted, uid)


@pytest.mark.parametrize("kind", CONTENT)
async def test_owned_digest_after_apply_equals_the_applied_digest(client: Client, kind: str) -> None:
    wanted = manifest(kind)
    body = (await client.apply(wanted)).body
    assert managed_fields.owned_digest(body) == wanted["metadata"]["annotations"][keys.HASH]


async def test_edit_by_another_client_is_detected_on_a_kind_without_generation(client: Client) -> None:
    wanted = manifest("ConfigMap")
    body = (await client.apply(wanted)).body
    edited = await client.update({**body, "data": {"x": "2", "more": "y"}}, "stranger")
    assert managed_fields.owned_digest(edited) != wanted["metadata"]["annotations"][keys.HASH]
    assert edited["metadata"]["annotations"] == body["metadata"]["annotations"], "the hash alone does not show the edit"
    mended = (await client.apply(wanted, body["metadata"]["uid"])).body
    assert managed_fields.owned_digest(mended) == wanted["metadata"]["annotations"][keys.HASH]
    assert mended["data"] == {"x": "1", "more": "y"}


async def test_one_of_many_concurrent_creations_succeeds(client: Client) -> None:
    wanted = manifest("ConfigMap")
    answers = await asyncio.gather(*(client.apply(wanted) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(one, Conflict) for one in answers) == 7


async def test_foreign_object_is_refused_and_own_orphan_is_adopted(client: Client) -> None:
    theirs = await client.create(manifest("ConfigMap"), "stranger")
    refusal = controller_ref.claim_object(theirs, "kimi", "me").refusal
    assert refusal is not None
    assert "last written by stranger" in refusal.message
    labels = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "kimi"}
    orphan = (await client.apply(manifest("ConfigMap", labels=labels))).body
    assert controller_ref.claim_object(orphan, "kimi", "me").uid == orphan["metadata"]["uid"]


async def test_metadata_request_returns_no_data(client: Client) -> None:
    """A request for metadata returns no data of the object. `ome diff` uses it to see whether a Secret or a ConfigMap
    exists.
    """
    body = (await client.apply(manifest("ConfigMap"))).body
    found = await client.get_metadata("ConfigMap", "default", body["metadata"]["name"])
    assert found["uid"] == body["metadata"]["uid"] and "data" not in found
    with pytest.raises(NotFound):
        await client.get_metadata("ConfigMap", "default", "absent")


async def test_delete_with_other_uid_raises_conflict(client: Client) -> None:
    body = (await client.apply(manifest("ConfigMap"))).body
    name, uid = body["metadata"]["name"], body["metadata"]["uid"]
    with pytest.raises(Conflict):
        await client.delete("ConfigMap", "default", name, ABSENT)
    await client.delete("ConfigMap", "default", name, uid)
    with pytest.raises(NotFound):
        await client.delete("ConfigMap", "default", name, uid)


@pytest.mark.parametrize("kind", sorted(RESOURCES.keys() - NOT_HERE - NOT_KEPT))
async def test_request_for_an_absent_object_raises_not_found(client: Client, kind: str) -> None:
    """A request for an object that does not exist raises NotFound, because the API server's message names the object. A
    404 that names no object, or another object, comes from another server.
    """
    where = kind, "default" if RESOURCES[kind].namespaced else "", "absent"
    with pytest.raises(NotFound):
        await client.get(*where)
    with pytest.raises(NotFound):
        await client.delete(*where, ABSENT)
    with pytest.raises(NotFound):
        await client.patch_merge(*where, ABSENT, {})


@pytest.mark.parametrize("kind", sorted(NOT_HERE))
async def test_request_for_an_unserved_kind_raises_not_served(client: Client, kind: str) -> None:
    with pytest.raises(NotServed):
        await client.get(kind, "default", "absent")
    with pytest.raises(NotServed):
        await client.delete(kind, "default", "absent", ABSENT)
    with pytest.raises(NotServed):
        await client.list_objects(kind)
    assert await client.served_plurals(RESOURCES[kind].api_version) == frozenset()


async def test_status_write_of_an_absent_object_raises_not_found(client: Client) -> None:
    for kind in ("InferenceService", "NodeModels", "RoleScale"):
        metadata = {"name": "absent", **({"namespace": "default"} if RESOURCES[kind].namespaced else {})}
        body = {"apiVersion": keys.API_VERSION, "kind": kind, "metadata": metadata, "status": {}}
        with pytest.raises(NotFound):
            await client.apply(body, subresource="status")


async def test_creation_in_an_absent_namespace_raises_not_served(client: Client) -> None:
    wanted = manifest("ConfigMap", namespace="nowhere")
    for write in (client.create, client.apply):
        with pytest.raises(NotServed, match='namespaces "nowhere" not found'):
            await write(wanted)
    with pytest.raises(NotFound):
        await client.get("ConfigMap", "nowhere", "absent")


async def test_patch_with_other_uid_raises_conflict(client: Client) -> None:
    body = (await client.apply(manifest("ConfigMap"))).body
    name, uid = body["metadata"]["name"], body["metadata"]["uid"]
    patched = await client.patch_merge("ConfigMap", "default", name, uid, {"metadata": {"annotations": {"d": "1"}}})
    assert patched["metadata"]["annotations"]["d"] == "1"
    with pytest.raises(Conflict):
        await client.patch_merge("ConfigMap", "default", name, "1111", {"data": {"x": "9"}})


async def test_dry_run_reports_errors_and_changes_nothing(client: Client) -> None:
    wanted = manifest("StatefulSet")
    await client.apply(wanted, dry_run=True)
    with pytest.raises(NotFound):
        await client.get("StatefulSet", "default", wanted["metadata"]["name"])
    wanted["spec"] = {**wanted["spec"], "podManagementPolicy": "Sometimes"}
    with pytest.raises(Invalid, match="podManagementPolicy"):
        await client.apply(wanted, dry_run=True)


async def test_create_with_another_manager_raises_already_exists(client: Client) -> None:
    wanted = manifest("RoleScale")
    body = await client.create(wanted, keys.SCALE_MANAGER)
    assert managed_fields.owned_digest(body) == ""
    with pytest.raises(AlreadyExists):
        await client.create(wanted, keys.SCALE_MANAGER)


async def test_lists_are_paginated_and_may_contain_only_metadata(client: Client) -> None:
    for _ in range(3):
        await client.apply(manifest("ConfigMap", labels={"page": "yes"}))
    found = await client.list_metadata("ConfigMap", label_selector="page=yes")
    assert len(found) == 3
    assert all(one["uid"] for one in found)
    assert len(await client.list_objects("ConfigMap", label_selector="page=yes", limit=1)) == 1
    assert await client.list_objects("ConfigMap", field_selector="metadata.name=nobody") == []


async def test_served_plurals_lists_kinds_of_group_version(client: Client) -> None:
    assert "inferenceservices" in await client.served_plurals(keys.API_VERSION)
    assert await client.served_plurals("nobody.io/v1") == frozenset()
