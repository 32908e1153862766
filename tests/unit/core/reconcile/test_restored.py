"""Tests of a service that was restored from a backup, into its own namespace or as a copy into another namespace."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.restored import LEADER_ADDRESS
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.passes import conditions, sets, settled

SHAPES = [
    Shape(size=1, router=False),
    Shape(size=2, engines=2),
    Shape(size=3, decoders=2),
    Shape(size=2, engines=2, decoders=1, strategy="surge"),
]


def restored(world: World, namespace: str = "copy") -> None:
    """Replace all objects by those that a backup restores: objects without owners, and a service with another UID."""
    for one in world.children.values():
        one.owner = ""
        one.manifest["metadata"] = {**one.manifest["metadata"], "namespace": namespace, "ownerReferences": []}
    for pod in world.pods.values():
        pod.workload_uid = pod.workload = ""
    world.service = replace(world.service, uid="restored", namespace=namespace, status={})


def addresses(value: Any) -> Iterator[str]:
    """Yield every address of a leader in a manifest."""
    if isinstance(value, dict):
        if value.get("name") == LEADER_ADDRESS:
            yield value["value"]
        for one in value.values():
            yield from addresses(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from addresses(one)


def advice(world: World) -> str:
    """Return the Advice of the next pass."""
    return "".join(one["message"] for one in world.sync().status["conditions"] if one["type"] == "Advice")


@pytest.mark.parametrize("shape", SHAPES)
def test_copied_service_contacts_no_rank_of_the_original(shape: Shape) -> None:
    world = settled(shape)
    (old,) = sets(world)
    pods = {pod.uid for pod in world.pods.values()}
    restored(world)
    world.unusable = {old}
    world.settle()
    (new,) = sets(world)
    assert new != old and not pods & {pod.uid for pod in world.pods.values()}
    assert {pod.labels[keys.REVISION] for pod in world.pods.values()} == {new}
    running = [one.manifest for (kind, _), one in world.children.items() if kind == "StatefulSet"]
    assert {one.rpartition(".")[2] for one in addresses(running)} == {"copy"}
    assert conditions(world.sync())["Ready"][0] == "True"
    kept = world.children["ControllerRevision", f"svc-{old}"]
    assert kept.owner == "" and {one.rpartition(".")[2] for one in addresses(kept.manifest)} == {"team"}
    assert f"revision {old} was restored from a backup of namespace team" in advice(world)
    assert f"`kubectl delete controllerrevision svc-{old} -n copy`" in advice(world)
    del world.children["ControllerRevision", f"svc-{old}"]
    world.settle()
    assert sets(world) == {new} and "restored" not in advice(world)


def test_pods_that_contact_the_original_service_are_always_removed() -> None:
    """Pods of a restored copy that contact the leader of the original service are always removed, even if no node has the
    model, the rollout is paused, or the pods belong to a controller that was not restored.
    """
    for shape in (Shape(size=2, paused=True), Shape(size=2)):
        world = settled(replace(shape, paused=False))
        (old,) = sets(world)
        restored(world)
        world.unusable = {old}
        world.edit(shape.service(), shape.deps(model=shape.paused))
        world.service = replace(world.service, uid="restored", namespace="copy")
        for _ in range(30):
            world.carry_out(world.sync())
            world.step()
        assert not [pod for pod in world.pods.values() if pod.labels[keys.REVISION] == old]
        assert old not in sets(world)


def test_restored_objects_that_appear_later_are_also_deleted() -> None:
    world = settled(Shape(size=2, engines=2))
    (old,) = sets(world)
    restored(world)
    late = {key: one for key, one in world.children.items() if key[0] == "StatefulSet"}
    for key in late:
        del world.children[key]
    world.unusable = {old}
    world.run(10)
    world.children |= late
    world.settle()
    assert old not in sets(world) and len(world.living_pods("engine")) == 4


def test_copy_that_serves_is_not_restarted_by_an_operator_upgrade() -> None:
    """A copy that serves under an older version of the operator is not restarted by an upgrade. After the upgrade, a message
    states the problem.
    """
    world = settled(Shape(size=2))
    (old,) = sets(world)
    world.service = replace(world.service, namespace="copy")
    pods = world.living_pods("engine")
    world.settle()
    assert sets(world) == {old} and world.living_pods("engine") == pods
    assert f"revision {old} was made in namespace team, and its pods contact the ranks there" in advice(world)
    world.children["ControllerRevision", f"svc-{old}"].owner = ""  # somebody removed the owner
    world.settle()
    assert world.living_pods("engine") == pods


def test_revision_with_a_user_defined_leader_address_is_not_taken_for_a_copy() -> None:
    env = [{"name": LEADER_ADDRESS, "value": "lead.example.com"}]
    service = parts.service(engine={"runner": {"name": "ome-container", "env": env}})
    world = World(service, Shape(size=1, router=False).deps(), 3)
    world.settle()
    (old,) = sets(world)
    pods = world.living_pods()
    restored(world)
    world.settle()
    assert sets(world) == {old} and len(world.living_pods()) == len(pods)


@pytest.mark.parametrize("namespace", ["team", "copy"])
@pytest.mark.parametrize("pods", [True, False])
def test_number_of_groups_is_kept_after_a_restore(namespace: str, pods: bool) -> None:
    """The number of groups of a service survives a restore. The restore skips the RoleScale of the backup, because the
    service was restored first and the operator has created another one. The number is taken from the restored pods or
    StatefulSets.
    """
    world = settled(Shape(size=2, engines=1, scaled=True))
    scale = ("RoleScale", "svc-engine")
    world.children[scale].manifest["spec"]["replicas"] = 2
    world.settle()
    restored(world, namespace)
    world.unusable = sets(world) if namespace == "copy" else set()
    del world.children[scale]
    if pods:
        world.children = {key: one for key, one in world.children.items() if key[0] != "StatefulSet"}
    else:
        world.pods.clear()
    world.settle()
    assert world.children[scale].manifest["spec"]["replicas"] == 2
    assert len(world.living_pods("engine")) == 4


def test_new_role_scale_is_limited_by_its_bounds() -> None:
    world = settled(Shape(size=1, engines=3, router=False))
    scaled = Shape(size=1, engines=1, router=False, scaled=True)
    world.edit(scaled.service())
    world.settle()
    assert world.children["RoleScale", "svc-engine"].manifest["spec"]["replicas"] == 2
    assert len(world.living_pods()) == 2


def test_restored_role_without_groups_starts_with_its_minimum() -> None:
    world = settled(Shape(size=1, engines=1, scaled=True, router=False))
    restored(world, "team")
    world.pods.clear()
    world.children = {key: one for key, one in world.children.items() if key[0] not in ("StatefulSet", "RoleScale")}
    world.settle()
    assert world.children["RoleScale", "svc-engine"].manifest["spec"]["replicas"] == 1
