"""Tests of which directories the operator tells an agent to read into the page cache, and when it tells so."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers import prefetching
from ome_operator.controllers.nodemodels import NodeModelsReconciler
from ome_operator.core.observed.objects import Ref
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

PLACE, OTHER = "/mnt/models/.ome/" + "a" * 32, "/mnt/models/.ome/" + "b" * 32
Body = dict[str, Any]


def meta(name: str, **more: Any) -> Body:
    return {"name": name, "uid": name, "resourceVersion": "1", **more}


def record(node: str = "n", *, on: bool = True, told: tuple[str, ...] = ()) -> Body:
    """Return the NodeModels object of an agent that reads into the page cache, if `on` is true. `told` are the directories
    that the operator has listed in it.
    """
    status = {"summary": "none", **({"prefetch": {"limit": 10}} if on else {})}
    spec = {"prefetch": list(told)} if told else {}
    return {"apiVersion": keys.API_VERSION, "kind": "NodeModels", "metadata": meta(node), "spec": spec, "status": status}


def node(name: str = "n") -> Body:
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta(name)}


def host_path(place: str) -> Body:
    return {"name": "m", "hostPath": {"path": place}}


def revision(places: dict[str, str]) -> Body:
    """Return a stored revision. `places` maps components to the directories that they mount."""
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER, keys.REVISION: "r1"}
    applied = [{"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {}}}]
    volumes = [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]
    roles = {
        name: {
            "leader": {"spec": {"template": {"spec": {"volumes": [*volumes, {"name": "m", "hostPath": {"path": place}}]}}}}
        }
        for name, place in places.items()
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": meta("svc-r1", namespace="ns", labels=labels, managedFields=applied),
        "revision": 1,
        "data": {"workloads": roles},
    }


def second(number: int) -> str:
    return f"2026-01-01T00:00:{number:02}Z"


def pod(
    name: str,
    *,
    rank: int = 0,
    ready: bool = False,
    component: str = "engine",
    on: str = "n",
    version: int = 1,
    began: int | None = None,
    since: int = 0,
) -> Body:
    """Return a pod of a group. `began` is the second at which its container started (None: it does not run), and `since` the
    second at which its readiness changed last.
    """
    labels = {
        keys.SERVICE: "svc",
        keys.MANAGED_BY: keys.MANAGER,
        keys.REVISION: "r1",
        keys.COMPONENT: component,
        keys.GROUP_INDEX: "0",
        keys.POD_INDEX: str(rank),
        **({keys.WORKER_INDEX: "0"} if rank == 0 else {}),
    }
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": second(since)}]
    owner = {"kind": "StatefulSet", "name": f"svc-{component}-r1-0", "uid": "set", "controller": True}
    state = {"waiting": {}} if began is None else {"running": {"startedAt": second(began)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **meta(name, namespace="ns", labels=labels),
            "resourceVersion": str(version),
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": on, "containers": []},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [{"name": "main", "state": state}]},
    }


REVISION = revision({"engine": PLACE, "decoder": OTHER})


async def told(handler: EventHandler) -> list[Any]:
    """Reconcile the NodeModels object `n`, and return the field `prefetch` in each write of this object."""
    api = FakeApi({"list_objects Pod": []})
    reconciler = NodeModelsReconciler(handler, api, makers.queue(), 600.0, roots=("/mnt/models",))
    await reconciler.reconcile(Ref("NodeModels", "", "n"))
    return [body["spec"].get("prefetch") for body in api.bodies("apply") if body["kind"] == "NodeModels"]


CASES: dict[str, tuple[list[Body], list[Any]]] = {
    "a pod starts": ([record(), pod("a")], [[PLACE]]),
    "it was told already": ([record(told=(PLACE,)), pod("a")], []),
    "the agent reads nothing": ([record(on=False), pod("a")], []),
    "the pod serves": ([record(told=(PLACE,)), pod("a", ready=True)], [None]),
    "the pod is gone": ([record(told=(PLACE,))], [None]),
    "the pod is not here": ([record(), pod("a", on="m")], []),
    "a router": ([record(), pod("a", component=keys.ROUTER)], []),
    "another rank, whose leader starts": ([record(), pod("a", on="m"), pod("b", rank=1, ready=True)], [[PLACE]]),
    "another rank, whose leader serves": ([record(), pod("a", on="m", ready=True), pod("b", rank=1, ready=True)], []),
    "a leader that starts": ([record(), pod("a", began=5)], [[PLACE]]),
    "a leader that was ready since its container started": ([record(), pod("a", began=5, since=9)], []),
    "its container started again": ([record(), pod("a", began=9, since=9)], [[PLACE]]),
    "its container waits to start again": ([record(), pod("a", since=9)], [[PLACE]]),
    "another rank, whose leader was ready": (
        [record(), pod("a", on="m", began=5, since=9), pod("b", rank=1, ready=True, began=5, since=5)],
        [],
    ),
    "two components": ([record(), pod("a"), pod("d", component="decoder")], [[PLACE, OTHER]]),
}


@pytest.mark.parametrize("case", CASES)
async def test_agent_is_told_the_directories_of_starting_pods_on_its_node(case: str) -> None:
    bodies, expected = CASES[case]
    assert await told(makers.cluster(node(), REVISION, *bodies)) == expected


async def test_prefetch_apply_keeps_the_permission_for_removal() -> None:
    """Telling an agent to read weights does not withdraw the permission to remove a directory. Both are fields of the same
    apply, which removes fields that it does not contain.
    """
    body = record()
    body["status"]["unused"] = [{"directory": OTHER, "offer": "then"}]
    api = FakeApi({"list_objects Pod": []})
    handler = makers.cluster(node(), revision({"engine": PLACE}), body, pod("a"))
    await NodeModelsReconciler(handler, api, makers.queue(), 600.0, roots=("/mnt/models",)).reconcile(
        Ref("NodeModels", "", "n")
    )
    (spec,) = [body["spec"] for body in api.bodies("apply") if body["kind"] == "NodeModels"]
    assert spec == {"remove": [{"directory": OTHER, "offer": "then"}], "prefetch": [PLACE]}


@pytest.mark.parametrize("data", [None, {"workloads": 5}, {"workloads": {"engine": {"leader": {"spec": 5}}}}])
async def test_malformed_revision_gives_no_prefetch_directories(data: Any) -> None:
    assert await told(makers.cluster(node(), {**REVISION, "data": data}, record(), pod("a"))) == []


async def test_number_of_prefetched_directories_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetching, "LISTED", 1)
    assert await told(makers.cluster(node(), REVISION, record(), pod("a"), pod("d", component="decoder"))) == [[PLACE]]


def test_node_records_are_reconciled_when_pods_of_a_group_change() -> None:
    """When the pods of a group change, the records of their nodes are reconciled, so that agents learn which weights to
    read. Records of agents that read no weights into the page cache are not reconciled. Changes of pods that do not affect
    the weights to read cause no reconciliation.
    """
    dirty: list[Ref] = []
    handler = makers.cluster(record("n"), record("m"), record("off", on=False), dirty=dirty)
    here = [Ref("NodeModels", "", name) for name in ("m", "n")]

    def records() -> list[Ref]:
        found = sorted(ref for ref in dirty if ref.kind == "NodeModels")
        dirty.clear()
        return found

    records()
    handler.handle_observed("Pod", pod("a", on="n"))
    assert records() == here[1:]
    handler.handle_observed("Pod", pod("b", rank=1, on="m"))
    assert records() == here
    handler.handle_observed("Pod", pod("c", rank=2, on="off"))
    assert records() == here, "its group"
    handler.handle_observed("Pod", pod("a", on="n", ready=True, version=2))
    assert records() == here, "the leader serves"
    handler.handle_observed("Pod", pod("a", on="n", ready=True, version=3))
    assert records() == []
    handler.handle_observed("Pod", pod("a", on="n", began=5, since=9, version=4))
    assert records() == [], "the leader is not ready for a moment"
    handler.handle_observed("Pod", pod("a", on="n", began=9, since=9, version=5))
    assert records() == here, "its container started again"
    handler.handle_deleted("Pod", "a", 6)
    assert records() == here
    handler.handle_observed("NodeModels", {**record("n", on=False), "metadata": {**meta("n"), "resourceVersion": "2"}})
    handler.handle_deleted("NodeModels", "m", 3)
    records()
    handler.handle_deleted("Pod", "b", 5)
    assert records() == []
