"""Tests that nothing that tenants write, and no other object in the cluster, can stop an adoption, extend it to other
objects, or write control characters to the terminal.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.adopt import cluster, webhooks
from ome_operator.adopt import services as handing
from ome_operator.adopt.handover import old_objects
from ome_operator.adopt.steps import StepReporter
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support.fake_api import Call, FakeApi

READY = {"type": "RolledOut", "status": "True", "observedGeneration": 1}


def metadata(namespace: str, name: str, **more: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "uid": f"uid-of-{namespace}-{name}", "resourceVersion": "1", **more}


def owned(namespace: str, name: str, owner: str, version: str = keys.API_VERSION) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": "InferenceService", "uid": owner, "name": "svc", "controller": True}
    return metadata(namespace, name, ownerReferences=[reference])


def cluster_of(services: Mapping[str, bool], children: list[dict[str, Any]]) -> FakeApi:
    """Return a cluster with OME's Deployments and with these services: `namespace/name` -> whether the service is ready."""

    def found(call: Call) -> Any:
        namespace = next(name.partition("/")[0] for name in services if name.endswith(f"/{call.name}"))
        if call.name == "gone":
            return NotFound("it does not exist")
        ready = services[f"{namespace}/{call.name}"]
        return {"metadata": {"generation": 1}, "status": {"conditions": [READY] if ready else []}}

    def listed(call: Call) -> Any:
        if call.kind == "InferenceService":
            return [metadata(*name.split("/")) for name in services]
        return children if call.kind == "Deployment" else []

    gone: Any = {"kind": "Status"}
    return FakeApi(
        {
            "list_metadata": listed,
            "served": [],
            "get InferenceService": found,
            "get Service": NotFound("none"),
            "delete": gone,
        }
    )


async def test_a_service_that_does_not_start_delays_no_other_namespace() -> None:
    """Services that never start delay only their own namespace. Previously, 50 such services of a tenant delayed the
    services of all other namespaces by 50 hours.
    """
    services = {f"bad/svc{number}": False for number in range(50)} | {"good/fine": True}
    children = [owned(*name.split("/"), f"uid-of-{name.replace('/', '-')}") for name in services]
    api, lines = cluster_of(services, children), list[str]()
    begin = time.monotonic()
    adoption = asyncio.create_task(
        handing.hand_over(api, StepReporter(lines.append, dry_run=False), (), replace=False, patience=3600)
    )
    while not any("done   good/fine: remove Deployment fine" in line for line in lines):
        assert not adoption.done() and time.monotonic() - begin < 10, lines
        await asyncio.sleep(0.01)
    adoption.cancel()
    assert not [call for call in api.calls if call.verb == "delete" and call.name != "fine"]


async def test_service_deleted_during_the_adoption_is_reported_in_one_line() -> None:
    api, lines = cluster_of({"a/gone": True, "a/later": True}, []), list[str]()
    children = [owned("a", name, f"uid-of-a-{name}") for name in ("gone", "later")]
    api.answers["list_metadata"] = lambda call: (
        [metadata("a", "gone"), metadata("a", "later")] if call.kind == "InferenceService"
        else children if call.kind == "Deployment" else []
    )  # fmt: skip
    steps = StepReporter(lines.append, dry_run=False)
    await handing.hand_over(api, steps, (), replace=False, patience=10)
    assert "LEFT   a/gone: it does not exist" in lines and steps.left == 1
    assert "done   a/later: remove Deployment later" in lines


async def test_an_object_of_another_namespace_or_of_another_kind_belongs_to_no_service() -> None:
    """An object belongs to a service only if it is in the service's namespace and its owner has the kind of this project.
    Anyone can name a service of another namespace as an owner, and KServe also has a kind InferenceService.
    """
    mine = owned("victim", "mine", "uid")
    others = [owned("tenant", "forged", "uid"), owned("victim", "kserve", "uid", "serving.kserve.io/v1beta1")]
    api = FakeApi({"list_metadata": lambda call: [mine, *others] if call.kind == "Deployment" else [], "served": []})
    found = await old_objects(api)
    assert [each.name for each in found["victim", "uid"]] == ["mine"]
    assert [each.name for each in found["tenant", "uid"]] == ["forged"], "no service of this namespace has this UID"


def configuration(name: str) -> dict[str, Any]:
    target = {"service": {"namespace": "ns", "name": "server"}}
    rules = [{"apiGroups": ["ome.io", "apps"]}]
    return {"metadata": {"name": name, "uid": "u"}, "webhooks": [{"clientConfig": target, "rules": rules}]}


@pytest.mark.parametrize(
    ("name", "yes", "removed"),
    [("inferenceservice.ome.io", False, True), ("policy.corp.example", False, False), ("policy.corp.example", True, True)],
)
async def test_foreign_webhook_of_a_stopped_server_is_kept(name: str, yes: bool, removed: bool) -> None:
    """Without --yes, only OME's own webhooks are removed. A webhook of another product stays even if its server is down,
    because it may protect the cluster.
    """

    def listed(call: Call) -> Any:
        return [configuration(name)] if call.kind == "ValidatingWebhookConfiguration" else []

    api, lines = FakeApi({"list_objects": listed, "delete": {"kind": "Status"}}), list[str]()
    await webhooks.remove(api, StepReporter(lines.append, dry_run=False), yes)
    assert bool(api.kinds("delete")) is removed
    assert removed or any(line.startswith("LEFT") and "pass --yes" in line for line in lines)


@pytest.mark.parametrize(("yes", "released"), [(False, False), (True, True)])
async def test_object_being_deleted_keeps_its_finalizer(yes: bool, released: bool) -> None:
    """Without --yes, an object that is being deleted keeps its finalizer, because removing the finalizer would complete the
    deletion.
    """
    body = {"metadata": metadata("ns", "svc", finalizers=["inferenceservice.finalizers"])}
    live = {"metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    api, lines = FakeApi({"get": live, "patch_merge": live}), list[str]()
    steps = StepReporter(lines.append, dry_run=False)
    await cluster._finalizers(api, steps, {"InferenceService": [body]}, yes)
    assert (api.kinds("patch_merge") == ["InferenceService"]) is released and steps.left == (not released)


@pytest.mark.parametrize(("ahead", "counts"), [(-60, True), (30, True), (3600, False), (10**8, False), (-3600, False)])
def test_future_time_in_managed_fields_does_not_stop_the_adoption(ahead: int, counts: bool) -> None:
    """A time in the future in managedFields does not stop an adoption. Previously, a single forged entry stopped it for
    ever.
    """
    when = (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {"manager": "x", "operation": "Update", "subresource": "status", "time": when, "fieldsV1": {"f:status": {}}}
    assert bool(cluster._recent([{"metadata": metadata("ns", "svc", managedFields=[entry])}])) is counts


def labelled(namespace: str, replicas: int, account: str = "") -> dict[str, Any]:
    pod = {"spec": {"containers": [], **({"serviceAccountName": account} if account else {})}}
    return {"metadata": metadata(namespace, "ome"), "spec": {"replicas": replicas, "template": pod}}


MANAGER = "system:serviceaccount:ome:manager"
OMES, DECOY = labelled("ome", 0, "manager"), labelled("tenant", 0)
WRITTEN = {"manager": "ome", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}


@pytest.mark.parametrize(
    ("deployments", "stopped"),
    [
        ([OMES], True),
        ([DECOY], False),
        ([labelled("ome", 1, "manager")], False),
        ([OMES, labelled("tenant", 1)], True),
        ([labelled("ome", 1, "manager"), DECOY], False),
    ],
)
async def test_a_deployment_of_a_tenant_is_not_taken_for_omes_controller(
    deployments: list[dict[str, Any]], stopped: bool
) -> None:
    """A stopped Deployment of a tenant does not prove that OME's controller is stopped: only a stopped Deployment that has
    the right to write statuses does. In this test, a service was written a moment ago, so OME's controller may still run.
    """

    def review(call: Call) -> Any:
        asked = call.body["spec"]
        assert asked["resourceAttributes"]["subresource"] == "status" and "namespace" not in asked["resourceAttributes"]
        return {"status": {"allowed": asked["user"] == MANAGER}}

    api, lines = FakeApi({"list_objects": deployments, "create SubjectAccessReview": review}), list[str]()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    services = [{"metadata": metadata("ns", "svc", managedFields=[{**WRITTEN, "time": now}])}]
    assert await cluster._stopped(api, StepReporter(lines.append, dry_run=False), services, False) is stopped, lines
    ignored = [each for each in deployments if each["metadata"]["namespace"] == "tenant"]
    assert len([line for line in lines if "Deployment tenant/ome" in line and "ignored" in line]) == len(ignored)


async def test_without_permission_every_deployment_counts_as_the_ome_controller() -> None:
    api, lines = FakeApi({"list_objects": [labelled("any", 1)], "create": Forbidden("no", 403)}), list[str]()
    assert await cluster._stopped(api, StepReporter(lines.append, dry_run=False), [], False) is False
    assert "is not known" in lines[0] and "kubectl -n any scale deployment ome" in lines[-1]


def test_output_contains_no_control_characters() -> None:
    lines = list[str]()
    steps = StepReporter(lines.append, dry_run=True)
    for tell in (steps.report_unchanged, steps.report_note, steps.report_open_problem):
        tell("spec.\x1b[2J\rdone   remove webhook\n")
    assert len(lines) == 3 and all(line.isprintable() for line in lines)


def test_field_names_are_truncated() -> None:
    assert len(cluster._listed(["x" * 10**6] * 9)) < 1_200
