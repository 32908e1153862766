"""The operator changes only its own objects. Objects of others stay, and orphans of the operator are adopted without a
restart (decisions 19, 24).
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed.objects import Refusal
from tests.conftest import STORY
from tests.support import parts
from tests.support.conditions import plain
from tests.support.live import Live
from tests.support.shapes import Shape, seeds, shapes
from tests.support.simulator import World

NAMES = [
    ("Service", "svc"), ("Service", "svc-engine"), ("Service", "svc-pods"), ("Role", "svc-router"),
    ("RoleScale", "svc-engine"), ("HorizontalPodAutoscaler", "svc-engine"), ("ServiceAccount", "svc-router"),
]  # fmt: skip


def stranger(world: World, key: tuple[str, str], owner: str, owned: str) -> Live:
    """Return an object of another user that has a name the operator needs."""
    kind, name = key
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER, keys.COMPONENT: "engine"}
    manifest = {"kind": kind, "metadata": {"name": name, "labels": labels}, "spec": {"replicas": 7}}
    world.children[key] = Live(manifest, "stranger", 1, owner, owned, owned)
    return world.children[key]


@STORY
@given(
    shapes(engines=st.integers(1, 2), scaled=True, router=True),
    st.sampled_from(NAMES),
    st.sampled_from([("somebody", "0123"), ("somebody", ""), (parts.UID, ""), ("", "")]),
    seeds,
)
def test_taken_name_is_reported_by_a_condition_until_it_is_free(
    shape: Shape, key: tuple[str, str], whose: tuple[str, str], seed: int
) -> None:
    """An object that does not belong to the operator has a name that the operator needs. A condition reports it until the
    name is free. The object has another owner, has this service as its owner but was not applied by the operator, or has no
    owner.
    """
    if key[0] == "RoleScale" and whose[0] in ("", parts.UID):
        return  # the operator never applies RoleScales: one with its labels is its own unless it has another owner
    world = World(shape.service(), shape.deps(), seed)
    found = stranger(world, key, *whose)
    before = replace(found)
    for _ in range(40):
        world.carry_out(world.sync())
        world.step()
    assert world.children[key] == before
    said = [one for one in plain(world.service.status) if one["reason"] == "NameTaken"]
    assert said and all(one["status"] == "False" and key[1] in one["message"] for one in said)
    del world.children[key]
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.children[key].owner == parts.UID


@given(shapes(engines=st.integers(1, 2)), seeds)
def test_refused_retry_of_a_successful_write_is_not_reported(shape: Shape, seed: int) -> None:
    """A write was carried out, but its response was lost, and the API server, which had just started, refused the repeated
    write. The refusal is not reported, because the object exists.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    right = world.service.status
    world.refusals = {key: Refusal("Forbidden", "RBAC is not up yet") for key in [*world.children, ("Secret", "svc-ssh")]}
    world.carry_out(world.sync())
    assert world.service.status == right


KINDS = [
    "Service",
    "ConfigMap",
    "Deployment",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "PodDisruptionBudget",
    "RoleScale",
    "Role",
]


@STORY
@given(
    shapes(engines=st.integers(1, 2)),
    st.sampled_from(KINDS),
    st.sampled_from([("somebody", "0123"), (parts.UID, ""), ("", "")]),
    seeds,
)
def test_superfluous_foreign_objects_are_kept(shape: Shape, kind: str, whose: tuple[str, str], seed: int) -> None:
    """An object that the service does not need any more stays if it is not the operator's. Only objects that this service
    owns and that the operator applied are deleted.
    """
    if kind == "RoleScale" and whose[0] == parts.UID:
        return  # the operator never applies RoleScales, so this RoleScale is its own
    world = World(shape.service(), shape.deps(), seed)
    found = stranger(world, (kind, "other"), *whose)
    found.manifest["spec"] = {"replicas": 0}
    before = replace(found)
    world.settle()
    world.edit(deps=replace(shape, image="b").deps())
    world.settle()
    assert world.children[kind, "other"] == before


def made_anew(world: World) -> None:
    """Delete the service with `--cascade=orphan` and apply it again."""
    for one in world.children.values():
        one.owner = ""
    world.service = replace(world.service, uid="another", status={})


@given(shapes(engines=st.integers(1, 2), scaled=False), seeds)
def test_own_orphans_are_adopted_without_pod_restarts(shape: Shape, seed: int) -> None:
    """A service is deleted with `kubectl delete --cascade=orphan` and applied again, or restored from a backup: its objects
    name an owner that is gone. The new service adopts them, and no pod restarts.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    pods = world.living_pods()
    made_anew(world)
    world.settle()
    assert world.living_pods() == pods
    assert {one.owner for one in world.children.values()} == {"another"}
    assert world.condition("Ready")["status"] == "True"


@STORY
@given(shapes(engines=st.just(1), scaled=True), seeds, st.booleans())
def test_orphaned_role_scale_is_used_before_its_adoption(shape: Shape, seed: int, lost: bool) -> None:
    """The RoleScale of a deleted service counts before the next service of the same name has adopted it. Otherwise the
    groups above minReplicas would be stopped and started again. If there is no RoleScale, the new one gets the number of
    existing groups.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    world.children["RoleScale", "svc-engine"].manifest["spec"]["replicas"] = 2
    world.settle()
    pods = world.living_pods()
    made_anew(world)
    if lost:
        del world.children["RoleScale", "svc-engine"]
    world.settle()
    assert world.living_pods() == pods and len(world.living_pods("engine")) == 2 * shape.size


@STORY
@given(shapes(engines=st.integers(1, 2), scaled=False), seeds)
def test_orphans_of_another_revision_are_removed(shape: Shape, seed: int) -> None:
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    made_anew(world)
    world.edit(deps=replace(shape, image="b").deps())
    world.service = replace(world.service, uid="another")
    world.settle()
    assert {one.labels[keys.REVISION] for one in world.pods.values()} == {world.service.status["revision"]}
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("router", [True, False])
def test_objects_of_a_deleted_service_with_the_same_name_are_waited_for(router: bool) -> None:
    """A service is deleted and created again at once. The new service waits until the old objects, which still refer to the
    deleted service, are gone; their pods do not count for it.
    """
    shape = Shape(size=2, router=router)
    world = World(shape.service(), shape.deps(), 7)
    world.settle()
    former = dict(world.children)
    world.service = replace(world.service, uid="another", status={})
    for _ in range(5):
        world.carry_out(world.sync())
    assert world.children == former
    assert world.condition("Ready")["status"] == "False"
    world.children.clear()
    world.settle()
    assert {one.owner for one in world.children.values()} == {"another"}
    assert world.condition("Ready")["status"] == "True"
