"""Tests that the status of a runtime shows the waves of its last edit, and that Events report their changes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.cache.scope import Scope
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.waves import WaveRegistry
from ome_operator.core.observed.objects import Epoch, Ref
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.waves.terms import WaveTerms
from ome_operator.kube.errors import Forbidden
from ome_operator.machinery.workqueue import WorkQueue
from tests.support import yamls
from tests.support.fake_api import FakeApi
from tests.support.parts import change_deps
from tests.unit.controllers import makers

RUNTIME = Ref("ClusterServingRuntime", "", "rt")
SERVICES = [Ref("InferenceService", "team", name) for name in "abc"]


class Rig:
    """A runtime whose edit reaches one service after the other, and its reconciler."""

    def __init__(self, labels: Mapping[str, str] | None = None, **annotations: str) -> None:
        body = yamls.runtime("rt")
        metadata = {"uid": "u", "resourceVersion": "1", "generation": 2, "annotations": annotations, "labels": labels or {}}
        self.body = {**body, "metadata": {**body["metadata"], **metadata}}
        self.handler = makers.cluster(self.body)
        self.cluster = self.handler.cache
        self.queue: WorkQueue[Ref] = makers.queue()
        self.api = FakeApi({"apply": makers.storing(self.body)})
        self.now = makers.NOW
        self.called: list[Ref] = []
        self.waves = WaveRegistry(
            lambda ref: self.cluster.terms(ref, WaveTerms()), lambda: self.now, self.called.append, self.changed
        )
        scope = Scope((), True, "", False)
        self.passes = CatalogReconciler(
            self.handler, self.api, self.queue, 600.0, lambda: self.now, scope=scope, waves=self.waves
        )
        self.asked: list[Ref] = []

    def changed(self, ref: Ref) -> None:
        self.asked.append(ref)

    def tell(self, number: int, state: EditState, begun: bool = False) -> None:
        since = self.now if state == EditState.DONE else None
        stands = {RUNTIME: EditStand(Epoch("u", 2), state, since)}
        self.waves.report(SERVICES[number], stands, asks=state != EditState.DONE, begun=begun)

    async def look(self) -> tuple[dict[str, Any], list[str], float]:
        """Reconcile the runtime. Return the status, the reasons of all Events so far, and the time of the next pass."""
        resource = self.cluster.find_resource(RUNTIME)
        assert resource is not None
        again = await self.passes.reconcile_resource(resource)
        written = self.api.bodies("apply")
        events = [body["reason"] for body in self.api.bodies("create")]
        return dict(written[-1]["status"].get("rollout") or {}) if written else {}, events, again


async def test_wave_is_reported_and_next_one_begins_after_the_bake_time() -> None:
    rig = Rig()
    for number in range(3):
        rig.tell(number, EditState.PENDING)
    assert rig.called == SERVICES[:1] and RUNTIME in rig.asked
    said, events, again = await rig.look()
    assert (said["state"], said["wave"], said["rolling"], events, again) == ("Rolling", 1, 1, ["WaveBegins"], 600.0)
    (event,) = rig.api.bodies("create")
    assert event["metadata"]["namespace"] == "default" and "namespace" not in event["involvedObject"]
    rig.tell(0, EditState.DONE)
    said, events, again = await rig.look()
    assert (said["state"], events, again) == ("Baking", ["WaveBegins", "WaveWhole"], 300.0)
    rig.now += timedelta(seconds=300)
    said, events, again = await rig.look()
    assert (said["wave"], events[-1], again) == (2, "WaveBegins", 600.0)
    assert rig.called == SERVICES[:2], "the pass over the runtime enqueues the next services"


async def test_wave_annotation_of_the_runtime_takes_precedence() -> None:
    rig = Rig(**{"ome.io/rollout-waves": "100%"})
    for number in range(3):
        rig.tell(number, EditState.PENDING)
    assert (await rig.look())[0]["waves"] == 1 and rig.called == SERVICES
    rig = Rig(**{"ome.io/rollout-waves": "300%"})
    for number in range(3):
        rig.tell(number, EditState.PENDING)
    assert (await rig.look())[0]["waves"] == 3 and rig.called == SERVICES[:1], "the default counts"


async def test_incomplete_cache_does_not_change_wave_status() -> None:
    """After a restart, before the operator knows all services, the status of a runtime keeps what the previous process wrote
    about the waves.
    """
    rig = Rig()
    rig.tell(0, EditState.PENDING)
    before, *_ = await rig.look()
    rig.waves = WaveRegistry(lambda _: WaveTerms(), lambda: rig.now, rig.called.append, rig.changed)
    rig.passes._waves = rig.waves
    rig.waves.expect(SERVICES)
    said, events, _ = await rig.look()
    assert said == before and events == ["WaveBegins"]


async def test_waves_proceed_for_objects_of_another_operator() -> None:
    """The waves of an edit proceed although the runtime belongs to another operator: that operator writes the runtime's
    status, but this one admits its own services.
    """
    rig = Rig(labels={"ome.io/operator-class": "blue"})
    for number in range(3):
        rig.tell(number, EditState.PENDING)
    rig.tell(0, EditState.DONE)
    _, _, again = await rig.look()
    assert again == 300.0 and not rig.api.calls
    rig.now += timedelta(seconds=300)
    await rig.look()
    assert rig.called == SERVICES[:2]


async def test_observe_mode_writes_no_events() -> None:
    """An operator in observe mode writes no Event, because it has only the rights of a reader."""
    rig = Rig()
    rig.cluster._index.deps = change_deps(rig.cluster.deps(), observe=True)
    rig.tell(0, EditState.PENDING)
    said, events, _ = await rig.look()
    assert said["wave"] == 1 and events == []


@pytest.mark.parametrize("lost", [False, True])
async def test_failed_event_write_does_not_lose_the_status(lost: bool) -> None:
    rig = Rig()
    if lost:
        rig.api.answers["create"] = Forbidden("no")
    rig.tell(0, EditState.PENDING)
    said, *_ = await rig.look()
    assert said["rolling"] == 1


async def test_bake_time_that_ends_during_a_reconciliation_wakes_the_next_services() -> None:
    """The bake time of a wave may end while a reconciliation runs, because the clock advances between two readings. A
    reconciliation that sees the next wave must also enqueue the services of this wave.
    """
    rig = Rig()
    for number in range(3):
        rig.tell(number, EditState.PENDING)
    rig.tell(0, EditState.DONE)
    moments = iter([timedelta(seconds=299.9), timedelta(seconds=300.1), timedelta(seconds=301)])
    rig.waves._wall = lambda: makers.NOW + next(moments)
    _, _, again = await rig.look()
    assert again < 1
    await rig.look()
    assert rig.called == SERVICES[:2]
