"""Tests in which the operator and an autoscaler write the same RoleScale at the same time."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.core.observed.objects import Child
from ome_operator.core.reconcile.plan import ApplyStatus, Create, Patch, Plan
from ome_operator.kube.errors import AlreadyExists
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

LABELS = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}


def scale(version: int, replicas: int, current: int = 0) -> dict[str, Any]:
    metadata = {"name": "svc-engine", "namespace": "ns", "uid": "u", "resourceVersion": str(version), "labels": LABELS}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "RoleScale",
        "metadata": {**metadata, "ownerReferences": [makers.OWNER]},
        "spec": {"replicas": replicas},
        "status": {"replicas": current},
    }


async def carried_out(plan: Plan, stored: dict[str, Any], *seen: dict[str, Any]) -> tuple[Result, dict[Any, Child]]:
    """Return the result of a plan, with this stored RoleScale and with these known objects of the service."""
    api, cluster, execution = FakeApi({"apply": stored, "get": stored}), makers.cluster(*seen), makers.execution()
    api.answers["create"] = AlreadyExists("it exists", 409)
    api.answers["patch_merge"] = lambda call: {**stored, "metadata": {**stored["metadata"], **call.body["metadata"]}}
    await makers.executor(api, cluster).execute_effects(plan, execution)
    return execution.result, cluster.cache.children_of("ns", "svc")


@pytest.mark.parametrize(("replicas", "again"), [(1, False), (3, True)])
async def test_replicas_from_the_write_response_are_used(replicas: int, again: bool) -> None:
    """The response to a write contains the number of replicas that an autoscaler has set just before, and this number is
    used. The event of the autoscaler's write is older than the response, so the event is ignored.
    """
    plan = Plan(apply_status=(ApplyStatus(scale(5, 1, 1)),))
    outcome, _ = await carried_out(plan, scale(7, replicas, 1), scale(5, 1))
    assert outcome.has_written is again


@pytest.mark.parametrize("lost", [{}, {"labels": {}}, {"ownerReferences": []}], ids=["nothing", "labels", "owner"])
async def test_existing_role_scale_is_used_immediately(lost: dict[str, Any]) -> None:
    """A RoleScale that already exists is used at once, even if it has lost its labels, so that no watch reports it."""
    stored, plan = scale(7, 3), Plan(create=(Create(scale(0, 1)),))
    outcome, known = await carried_out(plan, {**stored, "metadata": {**stored["metadata"], **lost}})
    found = known["RoleScale", "svc-engine"]
    assert outcome.status_changed and (found.replicas, found.owner) == (3, "u")


async def test_wake_uses_the_field_manager_of_the_role_scale_creation() -> None:
    """A wake writes the number of groups with the same field manager as the creation of the RoleScale. The operator has a
    second field manager for everything else, and managedFields show which one wrote the number.
    """
    api, execution, managers = FakeApi(), makers.execution(), []

    async def patch_merge(*args: Any) -> dict[str, Any]:
        managers.append(args[-1])
        return {**scale(8, 2), "spec": args[4]["spec"]}

    api.patch_merge = patch_merge  # type: ignore[method-assign]
    cluster = makers.cluster(scale(7, 0))
    body = {"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 2}}
    await makers.executor(api, cluster).execute_effects(
        Plan(scale=(Patch("RoleScale", "svc-engine", "u", body),)), execution
    )
    assert managers == [keys.SCALE_MANAGER] and execution.result.has_written
    assert cluster.cache.children_of("ns", "svc")["RoleScale", "svc-engine"].replicas == 2
