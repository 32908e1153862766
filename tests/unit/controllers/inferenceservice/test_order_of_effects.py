"""What has to be there before anything else is made."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.inferenceservice.execution import Execution, Result
from ome_operator.controllers.inferenceservice.executor import ADDRESSED, Executor
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.plan import Apply, Plan
from ome_operator.kube.errors import Conflict, NotFound


def manifest(kind: str) -> dict[str, Any]:
    metadata = {"name": "svc-1", "namespace": "ns", "labels": {keys.SERVICE: "svc"}, "annotations": {keys.HASH: "h"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {}}


def new() -> Execution:
    """Of a service of which nothing is known."""
    service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="u")
    return Execution(service, ServiceMemory(), set(), Result(), lambda: 0.0)


class Api:
    """An API server on which somebody deletes revisions."""

    def __init__(self, gone: bool) -> None:
        self.gone, self.applied = gone, list[str]()

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        raise NotFound("gone", 404)

    async def apply(self, body: dict[str, Any], uid: str = "") -> Any:
        if self.gone and uid:
            raise Conflict("another UID", 409)
        self.applied.append(body["kind"])
        stored = {**body, "metadata": {**body["metadata"], "uid": f"{body['kind']}-uid", "resourceVersion": "2"}}
        return SimpleNamespace(body=stored, warnings=())


async def kinds(*apply: str, gone: bool = False) -> tuple[list[str], Result]:
    """What is applied, in this order, of a revision that was known and of objects of these kinds."""
    api, cluster = Api(gone), EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    run = new()
    first = (Apply(manifest("ControllerRevision"), "old"),)
    plan = Plan(first=first, apply=tuple(Apply(manifest(kind), "") for kind in apply))
    await Executor(api, cluster, 1.0).effects(plan, run)  # type: ignore[arg-type]
    return api.applied, run.result


async def test_a_slice_is_stamped_from_what_is_stored() -> None:
    assert (await kinds("StatefulSet"))[0] == ["ControllerRevision", "StatefulSet"]


async def test_nothing_is_stamped_from_a_revision_that_somebody_deleted_just_now() -> None:
    applied, outcome = await kinds("StatefulSet", gone=True)
    assert applied == [] and outcome.requeue_after == 1.0, "the next pass stores it first"


async def test_what_selects_pods_comes_after_what_makes_them() -> None:
    applied, _ = await kinds("Service", "PodDisruptionBudget", "ServiceAccount", "StatefulSet", "Deployment")
    assert applied[1:] == ["ServiceAccount", "StatefulSet", "Deployment", "Service"]


async def test_budgets_are_made_apart() -> None:
    plan = Plan(apply=tuple(Apply(manifest(kind), "") for kind in ("PodDisruptionBudget", "StatefulSet", "Service")))
    api, cluster = Api(gone=False), EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    executor, run = Executor(api, cluster, 1.0), new()  # type: ignore[arg-type]
    assert await executor.effects(plan, run)
    assert api.applied == ["StatefulSet", "Service"]
    await executor.budgets(plan, run)
    assert api.applied[2:] == ["PodDisruptionBudget"]


class Slow(Api):
    """An API server that counts how many Services wait for an address."""

    waiting = most = 0

    async def apply(self, body: dict[str, Any], uid: str = "") -> Any:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(0.001)
        self.waiting -= 1
        return await super().apply(body, uid)


@pytest.mark.parametrize(("address", "most"), [({}, ADDRESSED), ({"clusterIP": "None"}, 3 * ADDRESSED)])
async def test_few_services_wait_for_an_address_at_a_time(address: dict[str, str], most: int) -> None:
    api, cluster = Slow(gone=False), EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    executor = Executor(api, cluster, 1.0)  # type: ignore[arg-type]
    plan = Plan(apply=(Apply({**manifest("Service"), "spec": address}, ""),))
    runs = [new() for _ in range(3 * ADDRESSED)]
    await asyncio.gather(*(executor.effects(plan, run) for run in runs))
    assert (api.most, len(api.applied)) == (most, len(runs))
