"""What an autoscaler does at the very moment at which we write to its scale."""

from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cluster import Cluster
from ome_operator.executor import Executor, Outcome, Run
from ome_operator.kube.errors import AlreadyExists
from ome_operator.memory import Memory
from ome_operator.plan import ApplyStatus, Create, Plan

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
    """An API server that has this scale."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self._stored = stored

    async def apply(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(body=self._stored, warnings=())

    async def create(self, *_: object) -> Any:
        raise AlreadyExists("it exists", 409)

    async def get(self, *_: object) -> Any:
        return self._stored


async def carried_out(plan: Plan, stored: dict[str, Any], *known: dict[str, Any]) -> Outcome:
    """What comes of a plan."""
    cluster = Cluster(lambda *_: None, lambda _: (), lambda _: ())
    for body in known:
        cluster.seen("RoleScale", body)
    service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="s")
    run = Run(service, Memory(), set(), Outcome())
    await Executor(Api(stored), cluster, lambda: 0.0, 1.0).effects(plan, run)  # type: ignore[arg-type]
    return run.outcome


@pytest.mark.parametrize(("replicas", "again"), [(1, False), (3, True)])
async def test_replicas_that_came_with_the_answer_are_looked_at(replicas: int, again: bool) -> None:
    """Their own event is older than the answer and tells nothing any more."""
    plan = Plan(apply_status=(ApplyStatus(scale(5, 1, 1)),))
    assert (await carried_out(plan, scale(7, replicas, 1), scale(5, 1))).wrote is again


async def test_a_scale_that_was_there_already_counts_at_once() -> None:
    assert (await carried_out(Plan(create=(Create(scale(0, 1)),)), scale(7, 3))).learned
