"""Tests of the reconciliation that follows the creation of a service."""

import asyncio
import contextlib
from typing import Any

import pytest

from ome_operator import keys, names
from ome_operator.controllers.base import Core
from ome_operator.controllers.inferenceservice.first_pods import FirstPods
from ome_operator.controllers.inferenceservice.memory import Memories, ServiceMemory
from ome_operator.core.observed.objects import Ref
from ome_operator.core.reconcile.plan import Apply, Plan
from ome_operator.settings import Settings
from tests.support.fake_api import Call, FakeApi
from tests.unit.controllers import makers

SERVICE = Ref("InferenceService", "ns", "svc")
LABELS = {keys.SERVICE: "svc", keys.COMPONENT: "engine", keys.REVISION: "r", keys.MANAGED_BY: keys.MANAGER}
NAME = names.leader(names.object_prefix("svc", "engine", "r"), 0)


def created(call: Call) -> dict[str, Any]:
    return {**call.body, "metadata": {**call.body["metadata"], "uid": "w", "resourceVersion": "6", "generation": 1}}


def apply(kind: str) -> Apply:
    metadata = {"name": NAME, "namespace": "ns", "labels": LABELS, "ownerReferences": [makers.OWNER]}
    return Apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"replicas": 1}}, "")


def pod() -> dict[str, Any]:
    owner = {"kind": "StatefulSet", "name": NAME, "uid": "w", "controller": True}
    metadata = {"name": f"{NAME}-0", "namespace": "ns", "uid": "p", "labels": LABELS, "ownerReferences": [owner]}
    return {"kind": "Pod", "metadata": {**metadata, "resourceVersion": "7"}}


@pytest.mark.looptime
@pytest.mark.parametrize("exist", [True, False])
async def test_a_new_service_is_reconciled_again_only_if_its_pods_are_missing(exist: bool) -> None:
    api = FakeApi({"apply StatefulSet": created})
    handler, queue = makers.cluster({"kind": "InferenceService", **makers.BODY}), makers.queue()
    settings, clock = Settings(failures_after=10.0), asyncio.get_running_loop().time
    core = Core(sync=lambda *_: Plan(apply=(apply("StatefulSet"),)))
    services = makers.services(handler, api, queue, core, settings=settings, clock=clock)
    checks = asyncio.create_task(services.first_pods.run())
    await services.reconcile(SERVICE)
    assert queue.due_count == 0
    if exist:
        handler.handle_observed("Pod", pod())
    await asyncio.sleep(30)
    assert queue.due_count == (0 if exist else 1)
    checks.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await checks


async def test_a_service_without_statefulsets_is_reconciled_soon() -> None:
    """A service without StatefulSets is reconciled again soon. Its StatefulSets may wait for nodes, and no event reports
    that they may be created.
    """
    handler, queue = makers.cluster({"kind": "InferenceService", **makers.BODY}), makers.queue()
    settings, core = Settings(child_delay=0.0), Core(sync=lambda *_: Plan(apply=(apply("Service"),)))
    await makers.services(handler, FakeApi(), queue, core, settings=settings).reconcile(SERVICE)
    assert queue.due_count == 1


async def test_nothing_is_kept_about_a_service_that_was_checked() -> None:
    """The operator keeps nothing about a service that it has checked, because services with new names may come and go for
    as long as the operator runs.
    """
    checks = FirstPods(makers.cluster().cache, Memories(), lambda _: None, 0.0)
    task = asyncio.create_task(checks.run())
    checks.expect(SERVICE, ServiceMemory())
    await asyncio.sleep(0.05)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert not checks._due._schedule._started
