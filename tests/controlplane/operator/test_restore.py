"""Tests of restoring a service from a backup in Velero's order, into its own namespace or as a copy into another one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import yamls
from tests.support.restore import backup, restore
from tests.support.rig import Manifest, Rig

SPEC: Manifest = {
    "engine": {"minReplicas": 1, "maxReplicas": 3, "autoscaler": {"class": "External"}},
    "decoder": {"minReplicas": 0, "maxReplicas": 3, "autoscaler": {"class": "External"}},
    "router": {},
}


@pytest.fixture
def pairs(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a runtime for this test, whose groups have two pods."""
    name = f"pairs-{namespace}"
    rig.create(yamls.runtime(name, size=2, decoder=True))
    yield name
    rig.delete("ClusterServingRuntime", "", name)


@pytest.fixture
def other(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a second namespace."""
    with rig.own_namespace(f"{namespace}-copy") as name:
        rig.wait("its account", lambda: rig.get("ServiceAccount", name, "default"))
        yield name


def scaled(rig: Rig, namespace: str, runtime: str) -> None:
    """Create a service with two prefill groups and one decode group. The spec names only the minimum of both, and the
    numbers are in the RoleScales.
    """
    rig.create(yamls.service(namespace, "s", runtime, **SPEC))
    for role, number in (("engine", 2), ("decoder", 1)):
        rig.wait("its scale", lambda role=role: rig.get("RoleScale", namespace, f"s-{role}"))
        rig.patch("RoleScale", namespace, f"s-{role}", {"spec": {"replicas": number}})
    rig.wait("three groups", lambda: len(running(rig, namespace)) == 6, 60)
    rig.ready(namespace, "s", 60)


def running(rig: Rig, namespace: str) -> dict[str, Manifest]:
    """Return name -> pod, for the engine pods that are not terminating."""
    pods = rig.all("Pod", namespace, "component%21=router")
    return {one["metadata"]["name"]: one for one in pods if "deletionTimestamp" not in one["metadata"]}


def contacted(pods: dict[str, Manifest]) -> set[str]:
    """Return the namespaces in the leader addresses of these pods."""
    env = (one for pod in pods.values() for one in pod["spec"]["containers"][0]["env"])
    return {one["value"].rpartition(".")[2] for one in env if one["name"] == "LWS_LEADER_ADDRESS"}


def uids(pods: dict[str, Manifest]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods.values()}


def scales(rig: Rig, namespace: str) -> dict[str, int]:
    return {one["metadata"]["name"]: one["spec"]["replicas"] for one in rig.all("RoleScale", namespace)}


def late(rig: Rig, namespace: str) -> Any:
    """Return a function for the argument `after` of `restore`. After the InferenceServices were restored, it waits until
    the operator has created their RoleScales and has nothing left to do.
    """

    def after(kind: str) -> None:
        if kind == "InferenceService":
            rig.wait("the operator's scales", lambda: len(scales(rig, namespace)) == 2, 20)
            rig.wait_until_quiet()

    return after


@pytest.mark.parametrize("without", [(), ("ControllerRevision",), ("StatefulSet", "Deployment", "ReplicaSet")])
@pytest.mark.parametrize("slow", [False, True])
def test_copied_service_contacts_no_rank_of_the_original(
    rig: Rig, namespace: str, other: str, pairs: str, without: tuple[str, ...], slow: bool
) -> None:
    scaled(rig, namespace, pairs)
    before, saved = running(rig, namespace), backup(rig, namespace)
    restore(rig, saved, other, without=without, after=late(rig, other) if slow else lambda _: None)
    rig.wait("no address of the original", lambda: contacted(running(rig, other)) == {other}, 120)
    rig.ready(other, "s", 120)
    rig.wait_until_quiet()
    pods = running(rig, other)
    assert contacted(pods) == {other} and len(pods) == 6
    assert scales(rig, other) == {"s-engine": 2, "s-decoder": 1}
    advice = rig.condition(other, "s", "Advice").get("message", "")
    assert (f"was restored from a backup of namespace {namespace}" in advice) == ("ControllerRevision" not in without)
    assert uids(running(rig, namespace)) == uids(before), "the pods of the original are the same"
    assert rig.condition(namespace, "s", "Ready")["status"] == "True"


@pytest.mark.parametrize("slow", [False, True])
def test_number_of_groups_is_kept_after_a_restore_into_the_same_namespace(
    rig: Rig, namespace: str, pairs: str, slow: bool
) -> None:
    scaled(rig, namespace, pairs)
    saved = backup(rig, namespace)
    rig.clear(namespace)
    left = ("Pod", "StatefulSet", "RoleScale", "ReplicaSet")
    rig.wait("everything is gone", lambda: not any(rig.all(kind, namespace) for kind in left), 90)
    restored = {body["metadata"]["name"] for body in saved["Pod"] if body["metadata"]["labels"]["component"] != "router"}
    restore(rig, saved, namespace, after=late(rig, namespace) if slow else lambda _: None)
    made = uids(running(rig, namespace))
    rig.ready(namespace, "s", 120)
    rig.wait_until_quiet()
    assert scales(rig, namespace) == {"s-engine": 2, "s-decoder": 1}
    assert running(rig, namespace).keys() == restored and uids(running(rig, namespace)) == made, "no pod was restarted"
    assert "restored from a backup" not in rig.condition(namespace, "s", "Advice").get("message", "")
