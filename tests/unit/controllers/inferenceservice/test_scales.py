"""What an autoscaler does at the very moment at which we write to its scale."""

from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.inferenceservice.execution import Execution, Result
from ome_operator.controllers.inferenceservice.executor import Executor
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.observed.objects import Child
from ome_operator.core.plan import ApplyStatus, Create, Plan
from ome_operator.kube.errors import AlreadyExists

LABELS = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}


def scale(version: int, replicas: int, current: int = 0) -> dict[str, Any]:
    owner = {"kind": "InferenceService", "name": "svc", "uid": "s", "controller": True}
    metadata = {"name": "svc-engine", "namespace": "ns", "uid": "u", "resourceVersion": str(version), "labels": LABELS}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "RoleScale",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"replicas": replicas},
        "status": {"replicas": current},
    }


class Api:
    """An API server that has this scale, and merges what it lacks."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self._stored = stored

    async def apply(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(body=self._stored, warnings=())

    async def create(self, *_: object) -> Any:
        raise AlreadyExists("it exists", 409)

    async def get(self, *_: object) -> Any:
        return self._stored

    async def patch_merge(self, kind: str, namespace: str, name: str, uid: str, patch: Any) -> Any:
        return {**self._stored, "metadata": {**self._stored["metadata"], **patch["metadata"]}}


async def carried_out(plan: Plan, stored: dict[str, Any], *seen: dict[str, Any]) -> tuple[Result, dict[Any, Child]]:
    """What comes of a plan, and what is known of the service's objects then."""
    cluster = EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    for body in seen:
        cluster.seen("RoleScale", body)
    service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="s")
    run = Execution(service, ServiceMemory(), set(), Result(), lambda: 0.0)
    await Executor(Api(stored), cluster, 1.0).effects(plan, run)  # type: ignore[arg-type]
    return run.result, cluster.children_of("ns", "svc")


@pytest.mark.parametrize(("replicas", "again"), [(1, False), (3, True)])
async def test_replicas_that_came_with_the_answer_are_looked_at(replicas: int, again: bool) -> None:
    """Their own event is older than the answer and tells nothing any more."""
    plan = Plan(apply_status=(ApplyStatus(scale(5, 1, 1)),))
    outcome, _ = await carried_out(plan, scale(7, replicas, 1), scale(5, 1))
    assert outcome.wrote is again


@pytest.mark.parametrize("lost", [{}, {"labels": {}}, {"ownerReferences": []}], ids=["nothing", "labels", "owner"])
async def test_a_scale_that_was_there_already_counts_at_once(lost: dict[str, Any]) -> None:
    """Also one whose labels somebody took off, which no watch tells of."""
    stored, plan = scale(7, 3), Plan(create=(Create(scale(0, 1)),))
    outcome, known = await carried_out(plan, {**stored, "metadata": {**stored["metadata"], **lost}})
    found = known["RoleScale", "svc-engine"]
    assert outcome.status_changed and (found.replicas, found.owner) == (3, "s")
