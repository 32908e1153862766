"""Tests of gang placement with the real scheduler: all pods of a gang are placed, or the gang waits (docs/placement.md)."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ome_operator import keys
from tests.support import yamls
from tests.support.kubelet import deleted
from tests.support.rig import Manifest, Rig, is_ready

POOL = "test.example.com/pool"


@pytest.fixture
def gangs(rig: Rig) -> Iterator[Rig]:
    """Yield the cluster with an operator that releases the nodes of partial gangs."""
    rig.stop()
    rig.start("operator", "--gang-timeout", "5")
    yield rig
    rig.stop()
    rig.start()


def bound(rig: Rig, namespace: str, name: str) -> int:
    """Return the number of nodes on which a service has engine pods."""
    pods = rig.all("Pod", namespace, f"{keys.SERVICE}={name},{keys.COMPONENT}!={keys.ROUTER}")
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


def whole(rig: Rig, namespace: str, names: list[str]) -> list[str]:
    return [name for name in names if rig.condition(namespace, name, "Scaled").get("status") == "True"]


def test_two_services_that_compete_for_nodes_are_not_both_partly_placed(gangs: Rig, namespace: str) -> None:
    """Two services each need 12 of 16 nodes: one is placed completely, and the other waits. Without admission, each would
    hold a part, and neither would serve until a user deleted one.
    """
    runtime, names = f"gang-{namespace}", ["one", "two"]
    gangs.create(yamls.runtime(runtime, size=6, gpus=8, decoder=True))
    for name in names:
        gangs.create(yamls.service(namespace, name, runtime, "engine", "decoder", "router"))
    (first,) = gangs.wait("a service serves", lambda: whole(gangs, namespace, names), 120)
    (other,) = {*names} - {first}
    assert bound(gangs, namespace, first) == 12
    gangs.wait("the other has given back", lambda: bound(gangs, namespace, other) == 0, 60)
    held = f"prefill waits for 12 nodes with 8 free GPUs: 4 are free, 12 are held by {namespace}/{first}, which is serving"
    gangs.wait_for_condition(namespace, other, "EngineReady", "WaitingForRoom", held, 40)
    assert whole(gangs, namespace, names) == [first], "pods of a serving service are never removed"
    gangs.delete("InferenceService", namespace, first)
    gangs.ready(namespace, other, 120)
    gangs.delete("ClusterServingRuntime", "", runtime)


def test_holder_of_the_nodes_is_reported_before_any_pod_is_placed(gangs: Rig, namespace: str) -> None:
    """A second service needs nodes that another service holds. The condition of the second service names the other service
    at once. No pod of the second service is on a node, so no node has to be released, and the pods stay.
    """
    runtime = f"full-{namespace}"
    gangs.create(yamls.runtime(runtime, size=16, gpus=8, router=False))
    gangs.create(yamls.service(namespace, "one", runtime, "engine"))
    gangs.ready(namespace, "one", 120)
    gangs.create(yamls.service(namespace, "two", runtime, "engine"))
    held = f"of the nodes that its pods could take, 16 are held by {namespace}/one, which is serving"
    gangs.wait_for_condition(namespace, "two", "EngineReady", "Unschedulable", held, 60)
    gangs.delete("InferenceService", namespace, "one")
    gangs.ready(namespace, "two", 120)
    gangs.delete("ClusterServingRuntime", "", runtime)


def ready_groups(rig: Rig, namespace: str, name: str, size: int) -> dict[tuple[str, str], dict[str, Manifest]]:
    """Return (role, number) -> UID -> pod, for each group of the service whose ranks are all ready."""
    found: dict[tuple[str, str], dict[str, Manifest]] = {}
    for pod in rig.all("Pod", namespace, f"{keys.SERVICE}={name},{keys.COMPONENT}!={keys.ROUTER}"):
        labels = pod["metadata"]["labels"]
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]:
            found.setdefault((labels[keys.COMPONENT], labels[keys.GROUP_INDEX]), {})[pod["metadata"]["uid"]] = pod
    return {group: pods for group, pods in found.items() if len(pods) == size}


@pytest.mark.timeout(2000)
def test_loss_of_three_of_sixteen_nodes_moves_only_their_groups(gangs: Rig, namespace: str) -> None:
    """Eight groups of two nodes each use all 16 nodes. Three nodes are lost, each from another group. These three groups
    still hold three nodes: one group serves on two of these nodes, and a service of a single node can use the third. When
    the lost nodes are back and that service is deleted, all groups return.
    """
    runtime, small = f"lost-{namespace}", f"small-{namespace}"
    quick = {"minReplicas": 4, "lifecycle": {"hangTimeout": "2s", "selfHealTimeout": "2s", "forceDeleteAfter": "1s"}}
    gangs.create(yamls.runtime(runtime, size=2, gpus=8, decoder=True))
    gangs.create(yamls.runtime(small, gpus=8, router=False))
    gangs.create(yamls.service(namespace, "kimi", runtime, "router", engine=quick, decoder=quick))
    gangs.ready(namespace, "kimi", 120)
    before = ready_groups(gangs, namespace, "kimi", 2)
    hit = [("engine", "0"), ("engine", "1"), ("decoder", "0")]
    nodes = [next(iter(before[group].values()))["spec"]["nodeName"] for group in hit]
    stay = {group: {*pods} for group, pods in before.items() if group not in hit}
    assert len(before) == 8 and len({*nodes}) == 3
    with ExitStack() as lost:
        for node in nodes:
            lost.enter_context(deleted(gangs, node))
        gangs.wait("a group of three serves", lambda: len(ready_groups(gangs, namespace, "kimi", 2)) == 6, 120)
        gangs.create(yamls.service(namespace, "small", small, "engine"))
        gangs.ready(namespace, "small", 120)
        # The group may have been complete for a moment before it was recycled, and meanwhile the small service took a node.
        now = gangs.wait("both serve", lambda: len(found := ready_groups(gangs, namespace, "kimi", 2)) == 6 and found, 120)
        assert now and {group: {*now[group]} for group in stay} == stay
    gangs.delete("InferenceService", namespace, "small")
    # two attempts that seemed to fit and failed, each followed by a pause of three minutes
    gangs.wait("all serve again", lambda: len(ready_groups(gangs, namespace, "kimi", 2)) == 8, 420)
    now = ready_groups(gangs, namespace, "kimi", 2)
    assert {group: {*now[group]} for group in stay} == stay
    gangs.ready(namespace, "kimi", 60)
    for name in (runtime, small):
        gangs.delete("ClusterServingRuntime", "", name)


def test_serving_pods_stay_if_the_edit_selects_nonexistent_nodes(rig: Rig, namespace: str) -> None:
    """An edit has a node selector that matches no node. The serving pods stay. An earlier version removed a service that
    served on 96 GPUs for such an edit.
    """
    runtime = f"fits-{namespace}"
    rig.create(yamls.runtime(runtime, size=2, gpus=8, router=False))
    rig.create(yamls.service(namespace, "kimi", runtime, "engine"))
    rig.ready(namespace, "kimi", 60)
    before = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}
    rig.patch("InferenceService", namespace, "kimi", {"spec": {"engine": {"nodeSelector": {POOL: "b"}}}})
    told = rig.wait_for_condition(
        namespace, "kimi", "RolledOut", "DoesNotFit", f"engine needs 2 nodes with {POOL}=b: no node has this label"
    )
    assert "the serving revision stays" in told["message"]
    pods = rig.all("Pod", namespace)
    assert {pod["metadata"]["uid"] for pod in pods} == before and all(map(is_ready, pods))
    nodes = [node["metadata"]["name"] for node in rig.all("Node", "")][:2]
    for node in nodes:
        rig.patch("Node", "", node, {"metadata": {"labels": {POOL: "b"}}})
    rig.wait("it moves", lambda: {pod["spec"].get("nodeName") for pod in rig.all("Pod", namespace)} == set(nodes), 90)
    rig.ready(namespace, "kimi", 60)
    for node in nodes:
        rig.patch("Node", "", node, {"metadata": {"labels": {POOL: None}}})
    rig.delete("ClusterServingRuntime", "", runtime)


def test_foreign_pods_are_read_after_a_failed_attempt(gangs: Rig, namespace: str) -> None:
    """Pods of other users hold 6 of 16 nodes. A service that needs 12 nodes reports this, and starts when these pods are
    gone.
    """
    box = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    for at in range(6):
        metadata = {"name": f"stranger-{at}", "namespace": namespace}
        gangs.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [box]}})
    gangs.wait("they are on nodes", lambda: all(pod["spec"].get("nodeName") for pod in gangs.all("Pod", namespace)), 30)
    runtime = f"strangers-{namespace}"
    gangs.create(yamls.runtime(runtime, size=12, gpus=8, router=False))
    gangs.create(yamls.service(namespace, "kimi", runtime, "engine"))
    said = "engine waits for 12 nodes with 8 free GPUs: 10 are free, 6 are held by others"
    gangs.wait_for_condition(namespace, "kimi", "EngineReady", "WaitingForRoom", said, 60)
    assert bound(gangs, namespace, "kimi") == 0
    for at in range(6):
        gangs.delete("Pod", namespace, f"stranger-{at}", gracePeriodSeconds=0)
    gangs.delete("ClusterServingRuntime", "", runtime)


def test_serving_pods_stay_if_others_hold_the_new_nodes(rig: Rig, namespace: str) -> None:
    """The nodes for a new revision exist, but a pod of another user holds one of them. The serving pods stay. The operator
    reads such pods directly from the API server, and starts the rollout when they are gone.
    """
    runtime, nodes = f"moves-{namespace}", [node["metadata"]["name"] for node in rig.all("Node", "")]
    rig.create(yamls.runtime(runtime, size=2, gpus=8))
    for node in nodes[-2:]:
        rig.patch("Node", "", node, {"metadata": {"labels": {POOL: "moves"}}})
    box = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"containers": [box], "nodeSelector": {"kubernetes.io/hostname": nodes[-1]}}
    rig.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs", "namespace": namespace}, "spec": spec})
    rig.wait("it is there", lambda: (rig.get("Pod", namespace, "theirs") or {}).get("spec", {}).get("nodeName"))
    rig.create(yamls.service(namespace, "kimi", runtime))
    rig.ready(namespace, "kimi", 60)
    ours = f"{keys.SERVICE}=kimi,{keys.COMPONENT}=engine"
    before = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, ours)}
    rig.patch("InferenceService", namespace, "kimi", {"spec": {"engine": {"nodeSelector": {POOL: "moves"}}}})
    free = "engine needs 2 nodes with 8 free GPUs: 1 is free, 1 is held by others"
    told = rig.wait_for_condition(namespace, "kimi", "RolledOut", "WaitingForRoom", free)
    assert "the serving revision stays" in told["message"]
    pods = rig.all("Pod", namespace, ours)
    assert {pod["metadata"]["uid"] for pod in pods} == before and all(map(is_ready, pods))
    rig.delete("Pod", namespace, "theirs", gracePeriodSeconds=0)
    new = {*nodes[-2:]}
    rig.wait("it moves", lambda: {pod["spec"].get("nodeName") for pod in rig.all("Pod", namespace, ours)} == new, 90)
    rig.ready(namespace, "kimi", 60)
    for node in nodes[-2:]:
        rig.patch("Node", "", node, {"metadata": {"labels": {POOL: None}}})
    rig.delete("ClusterServingRuntime", "", runtime)
