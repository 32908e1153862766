"""It fits or it waits, on the real scheduler (docs/placement.md)."""

from collections.abc import Iterator

import pytest

from ome_operator import keys
from tests.support import yamls
from tests.support.rig import Rig, is_ready

POOL = "test.example.com/pool"


@pytest.fixture
def gangs(rig: Rig) -> Iterator[Rig]:
    """An operator that takes half gangs back."""
    rig.stop()
    rig.start("operator", "--gang-timeout", "5")
    yield rig
    rig.stop()
    rig.start()


def bound(rig: Rig, namespace: str, name: str) -> int:
    """Nodes that a service holds with its engines."""
    pods = rig.all("Pod", namespace, f"{keys.SERVICE}={name},{keys.COMPONENT}!={keys.ROUTER}")
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


def whole(rig: Rig, namespace: str, names: list[str]) -> list[str]:
    return [name for name in names if rig.condition(namespace, name, "Ready").get("status") == "True"]


def test_two_services_that_want_the_same_nodes_do_not_hold_half_each(gangs: Rig, namespace: str) -> None:
    """12 of 16 nodes each. Without turns each of them held a part, and neither served until a person deleted a service."""
    runtime, names = f"gang-{namespace}", ["one", "two"]
    gangs.create(yamls.runtime(runtime, size=6, gpus=8, decoder=True))
    for name in names:
        gangs.create(yamls.service(namespace, name, runtime, "engine", "decoder", "router"))
    (first,) = gangs.wait("a service serves", lambda: whole(gangs, namespace, names), 120)
    (other,) = {*names} - {first}
    assert bound(gangs, namespace, first) == 12
    gangs.wait("the other has given back", lambda: bound(gangs, namespace, other) == 0, 60)
    gangs.says(namespace, other, "EngineReady", "WaitingForRoom", "prefill waits for nodes", 30)
    assert whole(gangs, namespace, names) == [first], "what serves is never taken back"
    gangs.delete("InferenceService", namespace, first)
    gangs.ready(namespace, other, 120)
    gangs.delete("ClusterServingRuntime", "", runtime)


def test_nothing_is_torn_down_for_nodes_that_are_not_there(rig: Rig, namespace: str) -> None:
    """A node selector that no node has took a service down that served on 96 GPUs."""
    runtime = f"fits-{namespace}"
    rig.create(yamls.runtime(runtime, size=2, gpus=8, router=False))
    rig.create(yamls.service(namespace, "kimi", runtime, "engine"))
    rig.ready(namespace, "kimi", 60)
    before = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}
    rig.patch("InferenceService", namespace, "kimi", {"spec": {"engine": {"nodeSelector": {POOL: "b"}}}})
    told = rig.says(
        namespace, "kimi", "RolledOut", "DoesNotFit", f"engine needs 2 nodes with {POOL}=b: no node has that label"
    )
    assert "what serves stays" in told["message"]
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
