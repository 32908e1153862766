"""Tests of passes over services of a runtime that was edited: which service begins, and which one is reconciled next."""

from datetime import timedelta
from typing import Any

from ome_operator import keys
from ome_operator.controllers.base import Core
from ome_operator.core.observed.objects import Epoch, Observed, Ref
from ome_operator.core.reconcile.plan import Check, EditStand, EditState, Plan
from ome_operator.machinery.workqueue import WorkQueue
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

RUNTIME, EPOCH = Ref("ClusterServingRuntime", "", "rt"), Epoch("u", 2)
A, B = Ref("InferenceService", "ns", "a"), Ref("InferenceService", "ns", "b")


class Rig:
    """Two services whose plans the test sets."""

    def __init__(self) -> None:
        self.now, self.said = makers.NOW, dict[str, str]()
        self.plans: dict[str, Plan] = {}
        self.api = FakeApi()
        bodies = [{"kind": "InferenceService", **body("a")}, {"kind": "InferenceService", **body("b")}]
        self.cluster = makers.cluster(*bodies)
        self.queue: WorkQueue[Ref] = makers.queue()
        self.woken: list[Ref] = []
        self.queue.add = lambda ref, after=0.0, **_: self.woken.append(ref) if not after else None  # type: ignore[method-assign, misc]
        self.start()

    def start(self) -> None:
        self.passes = makers.services(self.cluster, self.api, self.queue, Core(sync=self.sync), wall=lambda: self.now)
        self.passes.seed()

    def sync(self, service: Any, _: Any, observed: Observed, __: Any) -> Plan:
        self.said[service.name] = observed.ahead({RUNTIME: EPOCH})
        found = self.plans.get(service.name, plan(EditState.PENDING, rolls=True))
        if isinstance(found, Exception):
            raise found
        return found

    async def look(self, ref: Ref) -> str:
        """Reconcile the service, and return the service or wave for which it waits; "" if it may begin."""
        self.woken.clear()
        await self.passes.reconcile(ref)
        return self.said[ref.name]


def body(name: str) -> dict[str, Any]:
    return {**makers.BODY, "metadata": {**makers.BODY["metadata"], "name": name, "uid": f"uid-{name}"}}


def plan(state: EditState, **more: Any) -> Plan:
    since = makers.NOW if state == EditState.DONE else None
    return Plan(stands={RUNTIME: EditStand(EPOCH, state, since)}, status={"conditions": []}, **more)


def replaced(name: str) -> dict[str, Any]:
    """Return the StatefulSets of a service that is in the middle of a rollout. They belong to the complete revision and to
    a new revision.
    """
    labels = {keys.SERVICE: name, keys.MANAGED_BY: keys.MANAGER}
    owner = {"kind": "InferenceService", "name": name, "uid": f"uid-{name}", "controller": True}
    made = [{**labels, keys.REVISION: revision} for revision in ("old", "new")]
    return {
        "items": [
            {"metadata": {"name": each[keys.REVISION], "namespace": "ns", "uid": f"{name}-{each[keys.REVISION]}",
                          "resourceVersion": "7", "labels": each, "ownerReferences": [owner]}, "spec": {"replicas": 1}}
            for each in made
        ]
    }  # fmt: skip


async def test_second_service_begins_after_the_first_has_baked() -> None:
    rig = Rig()
    assert "wave 1 of 2" in await rig.look(A) and A not in rig.woken, "the state of the other service is not known yet"
    assert "wave 2 of 2" in await rig.look(B) and A in rig.woken
    assert await rig.look(A) == ""
    rig.plans["a"] = plan(EditState.DONE)
    await rig.look(A)
    assert B not in rig.woken
    rig.now += timedelta(minutes=5)
    rig.woken.clear()
    rig.passes.waves.rollout_status(RUNTIME, None)
    assert rig.woken == [B] and await rig.look(B) == ""


async def test_started_rollout_continues_after_a_restart() -> None:
    rig = Rig()
    for item in replaced("b")["items"]:
        rig.cluster.handle_observed("StatefulSet", item)
    assert await rig.look(B) == "", "its StatefulSets show that it has begun"
    assert "wave 2 of 2" in await rig.look(A) and A not in rig.woken


async def test_admitted_service_keeps_admission_during_a_dry_run_but_not_if_held() -> None:
    rig = Rig()
    await rig.look(A)
    await rig.look(B)
    rig.plans["a"] = plan(EditState.PENDING, check=(Check("r.1", ()),))
    await rig.look(A)
    assert B not in rig.woken
    rig.plans["a"] = plan(EditState.PENDING)
    await rig.look(A)
    assert B in rig.woken


async def test_service_that_fails_to_reconcile_delays_no_other() -> None:
    rig = Rig()
    await rig.look(A)
    await rig.look(B)
    rig.plans["a"] = ValueError("a bug")  # type: ignore[assignment]
    await rig.look(A)
    assert B in rig.woken


async def test_deleted_service_delays_no_other() -> None:
    rig = Rig()
    await rig.look(B)
    rig.woken.clear()
    rig.cluster.handle_deleted("InferenceService", "uid-a")
    await rig.passes.reconcile(A)
    assert B in rig.woken
