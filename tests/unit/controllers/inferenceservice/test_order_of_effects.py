"""Tests of the objects that must exist before others are created."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.core.reconcile.plan import Apply, Plan
from ome_operator.core.render.router import RULES
from ome_operator.kube.errors import Conflict, Forbidden, NotFound
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers


def manifest(kind: str) -> dict[str, Any]:
    metadata = {"name": "svc-1", "namespace": "ns", "labels": {keys.SERVICE: "svc"}, "annotations": {keys.HASH: "h"}}
    metadata |= {"ownerReferences": [makers.OWNER]}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {}}


def wants(*kinds: str, **more: Any) -> tuple[Apply, ...]:
    return tuple(Apply({**manifest(kind), **more}, "") for kind in kinds)


async def kinds(*apply: str, gone: bool = False) -> tuple[list[str], Result]:
    """Return the kinds that are applied, in order, for a known revision and objects of these kinds."""
    refuses = {"apply ControllerRevision": Conflict("another UID", 409), "get": NotFound("gone", 404)} if gone else {}
    api, execution = FakeApi(refuses), makers.execution()
    plan = Plan(first=(Apply(manifest("ControllerRevision"), "old"),), apply=wants(*apply))
    await makers.executor(api, makers.cluster()).execute_effects(plan, execution)
    return api.kinds("apply"), execution.result


async def test_statefulset_is_created_after_its_controller_revision() -> None:
    assert (await kinds("StatefulSet"))[0] == ["ControllerRevision", "StatefulSet"]


async def test_statefulset_is_not_created_if_its_revision_was_just_deleted() -> None:
    applied, outcome = await kinds("StatefulSet", gone=True)
    assert applied == ["ControllerRevision"] and outcome.requeue_after == 1.0, "the next pass stores it first"


async def test_statefulset_is_not_created_from_a_revision_of_another_owner() -> None:
    """No StatefulSet is created from a revision of another owner. Such a revision belongs to a deleted service of the
    same name, and the garbage collector removes it together with what was created from it.
    """
    former = manifest("ControllerRevision")
    former["metadata"] |= {"uid": "x", "resourceVersion": "4", "ownerReferences": [{**makers.OWNER, "uid": "former"}]}
    api, cluster = FakeApi({"apply ControllerRevision": former, "get": former}), makers.cluster()
    plan = Plan(first=(Apply(manifest("ControllerRevision"), ""),), apply=wants("StatefulSet"))
    await makers.executor(api, cluster).execute_effects(plan, makers.execution())
    assert "StatefulSet" not in api.kinds("apply")


async def test_services_are_created_after_the_workloads_they_select() -> None:
    applied, _ = await kinds("Service", "PodDisruptionBudget", "ServiceAccount", "StatefulSet", "Deployment")
    assert applied[1:] == ["PodDisruptionBudget", "ServiceAccount", "StatefulSet", "Deployment", "Service"]


def bound(*, uid: str = "", **role: Any) -> Plan:
    """Return a plan with a RoleBinding and its Role. `uid` is the UID of the existing RoleBinding."""
    owned = {"metadata": {**manifest("Role")["metadata"], "ownerReferences": [makers.OWNER]}}
    binding, wanted = wants("RoleBinding", "Role", **owned, roleRef={"kind": "Role", "name": "svc-1"}, rules=RULES, **role)
    return Plan(apply=(replace(binding, after=("Role", "svc-1"), uid=uid), wanted))


@pytest.mark.parametrize(("refused", "order"), [((), ["Role", "RoleBinding"]), (("Role",), ["Role"])])
async def test_role_binding_is_created_after_its_role(refused: tuple[str, ...], order: list[str]) -> None:
    """A RoleBinding is created only after its Role is stored, because an API server refuses the RoleBinding while the Role
    does not exist.
    """
    plan = bound()
    answers = {f"apply {kind}": Forbidden("no", 403) for kind in refused}
    api = FakeApi({**answers, "get Role": plan.apply[1].manifest})
    await makers.executor(api, makers.cluster()).execute_effects(plan, makers.execution())
    assert api.kinds("apply") == order


MORE = [*RULES, {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}]


@pytest.mark.parametrize("uid", ["", "binding"])
@pytest.mark.parametrize(
    "live",
    [
        {"metadata": {"name": "svc-1"}, "rules": MORE},
        {"metadata": {"name": "svc-1"}, "rules": RULES},
        {"metadata": {"name": "svc-1", "ownerReferences": [{**makers.OWNER, "uid": "former"}]}, "rules": RULES},
        {"metadata": {"name": "svc-1", "ownerReferences": [makers.OWNER]}, "rules": MORE},
        NotFound("gone", 404),
    ],
)
async def test_role_binding_is_created_only_for_an_own_unchanged_role(live: Any, uid: str) -> None:
    """A RoleBinding is created only if the stored Role has the operator's UID and contents. A RoleBinding refers to a Role
    by name, so it grants the rights of whatever Role has the name when a request is authorized.
    """
    api, execution = FakeApi({"get Role": live}), makers.execution()
    await makers.executor(api, makers.cluster()).execute_effects(bound(uid=uid), execution)
    assert api.kinds("apply") == ["Role"], "the Role is the operator's own in the cache, but not in the API server"
    assert execution.result.requeue_after == 1.0
