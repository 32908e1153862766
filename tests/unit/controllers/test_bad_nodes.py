"""Tests of the controller that records failures by node: which objects it reads, what it decides, and what it stores
(docs/bad-nodes.md).
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers import bad_nodes
from ome_operator.controllers.bad_nodes import WRITES, BadNodes
from ome_operator.core.badnodes.record import format_time
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.kube.errors import KubeError
from tests.support import bodies
from tests.support.bad_nodes import LiveGroup
from tests.support.fake_api import Call, FakeApi
from tests.support.parts import change_deps

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


def node(name: str) -> dict[str, Any]:
    """Return a node with eight GPUs."""
    body = bodies.node(name)
    return {**body, "metadata": {**body["metadata"], "uid": f"uid-{name}"}}


def ended(group: LiveGroup) -> dict[str, Any]:
    """Return the pod of a group whose container has ended."""
    (pod,) = group.pods()
    body = bodies.pod(pod)
    body["metadata"] |= {"creationTimestamp": pod.times.created, "resourceVersion": str(int(group.ended[0]))}
    last = {"exitCode": 1, "reason": "Error", "message": "it died", "finishedAt": format_time(group.ended[0])}
    body["status"]["containerStatuses"][0] |= {"lastState": {"terminated": last}, "restartCount": 1}
    return body


class Stored:
    """An API server with NodeFaults objects."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.api = FakeApi(
            {
                "list_objects NodeFaults": lambda _: [dict(one) for one in self.objects.values()],
                "apply NodeFaults/status": self._status,
                "apply NodeFaults": self._apply,
                "delete NodeFaults": self._delete,
            }
        )

    def _apply(self, call: Call) -> dict[str, Any]:
        self.objects[call.name] = {"metadata": {"name": call.name, "uid": f"of-{call.name}"}}
        return self.objects[call.name]

    def _status(self, call: Call) -> dict[str, Any]:
        self.objects[call.name]["status"] = call.body["status"]
        return self.objects[call.name]

    def _delete(self, call: Call) -> dict[str, Any]:
        assert call.uid == f"of-{call.name}"
        del self.objects[call.name]
        return {}

    def verbs(self) -> list[str]:
        """Return the requests since the last call of this method."""
        found = [f"{call.verb} {call.name}".strip() for call in self.api.calls]
        self.api.calls.clear()
        return found


class Case:
    """Some nodes, and a service with one group on the first of them."""

    def __init__(self, stored: Stored | None = None, *, acts: bool = True, stores: bool = True, nodes: int = 30) -> None:
        self.stored, self.now, self.called = stored or Stored(), NOW, list[Ref]()
        self.handler = EventHandler(ClusterCache(Deps()), lambda *_: None, lambda _: (), lambda _: ())
        self.cache = self.handler.cache
        service = {"name": "svc", "namespace": "team", "uid": "s", "resourceVersion": "1"}
        self.handler.handle_observed("InferenceService", {"metadata": service, "spec": {"engine": {}}})
        for number in range(nodes):
            self.handler.handle_observed("Node", node(f"n{number}"))
        self.group = LiveGroup("team", "svc", 1, nodes=["n0"], created=NOW.timestamp() - 5000)
        self.nodes = BadNodes(self.cache, self.stored.api, self.called.append, lambda: self.now, acts=acts, stores=stores)

    async def fail(self, times: int = 1) -> None:
        """Let the group fail on its node this number of times, a hundred seconds apart."""
        for _ in range(times):
            self.now += timedelta(seconds=100)
            self.group.ended = {0: self.now.timestamp()}
            self.handler.handle_observed("Pod", ended(self.group))
            await self.nodes.evaluate()


async def test_a_node_is_avoided_and_stored_after_three_failures() -> None:
    case = Case()
    await case.nodes.load()
    assert case.stored.verbs() == ["list_objects"]
    await case.fail()
    assert case.stored.verbs() == [], "a single failure is not worth an object"
    await case.fail(2)
    assert case.nodes.avoided_nodes("team").keys() == {"n0"} and not case.nodes.avoided_nodes("others")
    status = case.stored.objects["n0"]["status"]
    assert status["avoided"].startswith("by services of team: engine of team/svc failed on this node 3 times")
    assert [each["namespace"] for each in status["avoidedBy"]] == ["team"]
    assert status["faults"][0]["count"] == 3
    assert case.called == [Ref("InferenceService", "team", "svc")], "its service is reconciled"
    case.stored.verbs()
    await case.nodes.evaluate()
    assert case.stored.verbs() == ["list_objects"], "nothing has changed"


async def test_restart_loads_recorded_failures_and_counts_none_again() -> None:
    case = Case()
    await case.fail(3)
    again = Case(case.stored)
    again.now = case.now
    again.group.ended = {0: case.now.timestamp()}
    again.handler.handle_observed("Pod", ended(again.group))
    case.stored.verbs()
    await again.nodes.load()
    assert again.nodes.avoided_nodes("team").keys() == {"n0"}
    assert case.stored.verbs() == ["list_objects"]
    assert case.stored.objects["n0"]["status"]["faults"][0]["count"] == 3


@pytest.mark.parametrize("how", ["annotation", "deletion"])
async def test_deleted_or_annotated_node_fault_is_forgiven_until_new_failures(how: str) -> None:
    case = Case()
    await case.fail(3)
    case.now += timedelta(seconds=50)
    if how == "deletion":
        del case.stored.objects["n0"]
    else:
        case.stored.objects["n0"]["metadata"]["annotations"] = {keys.FORGIVEN: format_time(case.now.timestamp())}
    case.called.clear()
    await case.nodes.evaluate()
    assert not case.nodes.avoided_nodes("team")
    assert case.called == [Ref("InferenceService", "team", "svc")]
    await case.fail(2)
    assert not case.nodes.avoided_nodes("team")
    await case.fail()
    assert case.nodes.avoided_nodes("team").keys() == {"n0"}, "it fails again"


async def test_forgive_time_in_the_future_is_limited() -> None:
    case = Case()
    await case.fail(3)
    case.stored.objects["n0"]["metadata"]["annotations"] = {keys.FORGIVEN: "2999-01-01T00:00:00Z"}
    await case.nodes.evaluate()
    del case.stored.objects["n0"]["metadata"]["annotations"]
    await case.fail(3)
    assert case.nodes.avoided_nodes("team").keys() == {"n0"}


async def test_node_fault_object_is_deleted_when_nothing_is_recorded() -> None:
    case = Case()
    await case.fail(3)
    case.now += timedelta(hours=24)
    await case.nodes.evaluate()
    assert case.stored.objects == {} and not case.nodes.avoided_nodes("team")


@pytest.mark.parametrize("settled", [{"frozen": "2026-11-24T15:40:00Z by alice"}, {"observe": True}])
async def test_no_failures_are_recorded_during_a_freeze(settled: dict[str, Any]) -> None:
    case = Case()
    case.cache._index.deps = change_deps(case.cache._index.deps, **settled)
    await case.fail(4)
    assert case.stored.verbs() == [] and not case.nodes.avoided_nodes("team")


async def test_operator_without_store_right_avoids_nodes_without_writing() -> None:
    case = Case(stores=False)
    await case.nodes.load()
    await case.fail(3)
    assert case.nodes.avoided_nodes("team") and case.stored.verbs() == []


async def test_disabled_avoidance_records_failures_but_avoids_no_node() -> None:
    case = Case(acts=False)
    await case.fail(3)
    assert "n0" in case.stored.objects and case.nodes.avoided_nodes("team") == {}


async def test_writes_of_node_faults_are_limited_per_round() -> None:
    case = Case(nodes=0)
    for number in range(3 * WRITES):
        body = node(f"n{number}")
        body["status"]["conditions"] += [{"type": "KernelDeadlock", "status": "True"}]
        case.handler.handle_observed("Node", body)
    await case.nodes.load()
    case.now += timedelta(seconds=301)
    for looks in (1, 2, 3, 4):
        await case.nodes.evaluate()
        assert len(case.stored.objects) == min(3 * WRITES, looks * WRITES)
    assert not case.nodes.avoided_nodes("team"), "a fault that all nodes report is ignored"


async def test_refused_node_fault_write_is_repeated() -> None:
    case = Case()
    case.stored.api.answers["apply NodeFaults"] = KubeError("no")
    await case.fail(3)
    assert case.nodes.avoided_nodes("team") and not case.stored.objects
    case.stored.api.answers["apply NodeFaults"] = case.stored._apply
    await case.nodes.evaluate()
    assert "n0" in case.stored.objects


async def test_field_dropped_by_an_older_crd_is_not_written_repeatedly() -> None:
    case = Case()

    def pruned(call: Call) -> dict[str, Any]:
        kept = {key: value for key, value in call.body["status"].items() if key != "avoidedBy"}
        case.stored.objects[call.name]["status"] = kept
        return case.stored.objects[call.name]

    case.stored.api.answers["apply NodeFaults/status"] = pruned
    await case.fail(3)
    assert case.nodes.avoided_nodes("team")
    case.stored.verbs()
    for _ in range(3):
        await case.nodes.evaluate()
    assert not [verb for verb in case.stored.verbs() if verb.startswith("apply")]
    case.stored.objects["n0"]["status"] = {**case.stored.objects["n0"]["status"], "avoided": "by nobody"}
    await case.nodes.evaluate()
    assert [verb for verb in case.stored.verbs() if verb.startswith("apply")] == ["apply n0"]


async def test_unreadable_stored_faults_do_not_stop_the_controller() -> None:
    case = Case()
    works = case.stored.api.answers["list_objects NodeFaults"]
    case.stored.api.answers["list_objects NodeFaults"] = KubeError("no")
    await case.nodes.load()
    assert case.nodes.avoided_nodes("team") == {}
    case.stored.api.answers["list_objects NodeFaults"] = works
    await case.fail(3)
    assert case.nodes.avoided_nodes("team").keys() == {"n0"}


async def test_service_created_during_an_evaluation_causes_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()

    async def create() -> None:
        name = f"new-{len(case.cache.services())}"
        metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"}
        case.handler.handle_observed("InferenceService", {"metadata": metadata, "spec": {"engine": {}}})

    monkeypatch.setattr(bad_nodes.PACER, "yield_if_due", create)
    await case.nodes.evaluate()
    assert len(case.cache.services()) == 2
