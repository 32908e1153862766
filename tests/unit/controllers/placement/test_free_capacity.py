"""Tests that the free capacity of nodes is computed again only if something changed."""

from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.occupancy import Occupancy
from ome_operator.controllers.placement.free_capacity import FreeCapacity
from ome_operator.core.observed.objects import Child, Deps, Node, Pod, Ref
from tests.support.fake_api import FakeApi
from tests.unit.core.rollout.makers import pod

GPU = "nvidia.com/gpu"


def workload(gpus: int) -> dict[str, Any]:
    """Return the stored template of a role whose pods need this number of GPUs."""
    box = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    return {"spec": {"template": {"spec": {"containers": [box]}}}}


class Known:
    """A cluster with two nodes and a revision."""

    def __init__(self) -> None:
        self.found = {name: Node(name, 1, {}, True, 8, room=((GPU, 8),)) for name in ("n1", "n2")}
        self.occupancy, self.children = Occupancy(), {"ControllerRevision": self}
        self.revisions: list[Child] = []
        self.pods: list[Pod] = []

    def deps(self) -> Deps:
        return replace(Deps(), nodes=self.found)

    def find_resource(self, _: Ref) -> None:
        """Return None: the service is deleted, and its pods are still there."""

    def group(self, _: tuple[str, str]) -> list[Child]:
        return self.revisions

    def pods_of(self, namespace: str, service: str) -> list[Pod]:
        return [pod for pod in self.pods if (pod.namespace, pod.service) == (namespace, service)]

    def store(self) -> None:
        """Add the revision of the pods to the cluster."""
        roles = {"engine": {"leader": workload(2), "worker": workload(3), "size": 2, "port": 80}}
        content = {"revision": 1, "data": {"workloads": roles}}
        labels = {keys.REVISION: "r1"}
        self.revisions = [
            Child("ControllerRevision", "team", "r", "u", 1, "former", labels, "", "applied", False, 0, "", content)
        ]


def room(known: Any, foreign: ForeignPods | None = None) -> FreeCapacity:
    return FreeCapacity(known, foreign or ForeignPods(FakeApi({}), lambda: 0.0, lambda _: False))


def free(made: FreeCapacity) -> dict[str, int]:
    return {name: dict(node.room)[GPU] for name, node in made.nodes().items()}


def test_free_capacity_is_allocatable_minus_requests_of_pods() -> None:
    known = Known()
    known.store()
    made = room(known)
    leader, worker = pod("l", node="n1"), pod("w", 1, node="n1")
    known.occupancy.pod(None, leader)
    known.occupancy.pod(None, worker)
    assert free(made) == {"n1": 3, "n2": 8}
    known.occupancy.pod(worker, None)
    assert free(made) == {"n1": 6, "n2": 8}
    known.found = {**known.found, "n3": known.found["n2"]._replace(name="n3")}
    del known.found["n2"]
    assert free(made) == {"n1": 6, "n3": 8}


def test_free_capacity_is_not_recomputed_without_changes() -> None:
    known = Known()
    known.store()
    made = room(known)
    first, version = dict(made.nodes()), made.version
    assert made.nodes() == first and made.version == version
    known.occupancy.pod(None, pod("l", node="n1"))
    then = dict(made.nodes())
    assert then["n2"] is first["n2"] and then["n1"] is not first["n1"] and made.version == version + 1


def test_node_heartbeat_causes_no_recomputation() -> None:
    """A heartbeat of a node, which gives it a new version with the same contents, does not cause a new computation. A
    thousand nodes send several heartbeats a second.
    """
    known = Known()
    made = room(known)
    made.nodes()
    version = made.version
    known.found["n1"] = known.found["n1"]._replace(version=2)
    assert free(made) == {"n1": 8, "n2": 8} and made.version == version
    known.found = {**known.found, "n2": known.found["n2"]._replace(room=((GPU, 4),))}
    assert free(made) == {"n1": 8, "n2": 4} and made.version == version + 1


def test_pods_with_unknown_revision_are_counted_after_it_is_known() -> None:
    known = Known()
    made = room(known)
    known.occupancy.pod(None, pod("l", node="n1"))
    assert free(made) == {"n1": 8, "n2": 8}
    known.store()
    assert free(made) == {"n1": 6, "n2": 8}


async def test_foreign_pods_reduce_free_capacity() -> None:
    known = Known()
    known.store()
    box = {"name": "c", "resources": {"limits": {GPU: "5"}}}
    foreign = ForeignPods(FakeApi({"list_objects Pod": [{"spec": {"containers": [box]}}]}), lambda: 1000.0, lambda _: False)
    made = room(known, foreign)
    known.occupancy.pod(None, pod("l", node="n1"))
    await foreign.read_nodes(["n1"])
    assert free(made) == {"n1": 1, "n2": 8}


def test_malformed_revision_does_not_affect_other_services() -> None:
    known = Known()
    known.store()
    for data in ({"workloads": {"engine": {}}}, {"workloads": []}, {"workloads": {"engine": {"size": "x", "port": 1}}}, []):
        known.revisions = [known.revisions[0]._replace(content={"data": data})]
        known.occupancy.pod(None, pod("l", node="n1"))
        assert free(room(known)) == {"n1": 8, "n2": 8}


async def test_free_capacity_without_the_pods_of_one_service() -> None:
    known = Known()
    known.store()
    box = {"name": "c", "resources": {"limits": {GPU: "1"}}}
    foreign = ForeignPods(FakeApi({"list_objects Pod": [{"spec": {"containers": [box]}}]}), lambda: 1000.0, lambda _: False)
    made, mine = room(known, foreign), pod("l", node="n1")
    other = pod("o", node="n1")._replace(service="other")
    known.occupancy.pod(None, mine)
    known.occupancy.pod(None, other)
    known.pods = [mine]
    assert free(made) == {"n1": 4, "n2": 8}
    await foreign.read_nodes(["n1", "n2"])
    for foreign, left in ((True, {"n1": 5, "n2": 7}), (False, {"n1": 6, "n2": 8})):
        without = made.nodes_without([Ref("InferenceService", mine.namespace, mine.service)], foreign=foreign)
        assert {name: dict(node.room)[GPU] for name, node in without.items()} == left
    assert free(made) == {"n1": 3, "n2": 7}, "nothing is changed"
