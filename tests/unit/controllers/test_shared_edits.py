"""Tests of the manager with an edit of an object that services share."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from ome_operator.controllers import tidying
from ome_operator.controllers.base import CORE
from ome_operator.controllers.manager import Manager
from ome_operator.core.observed.objects import Ref
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from tests.support import yamls
from tests.support.fake_api import FakeApi

RUNTIME = Ref("ClusterServingRuntime", "", "rt")
SERVICES = [Ref("InferenceService", "team", f"s{number}") for number in range(20)]
DELAY = 0.2


class RecordingManager:
    """A manager whose passes record the generation of the runtime that they see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = Settings(catalog_delay=DELAY, router_watch=0.0)
        self.manager = Manager(settings, CORE, FakeApi(), Metrics(), lambda: datetime.now(UTC))
        self.passes = Counter[Ref]()
        self.seen: dict[Ref, int] = {}
        self._version, self._uid = 0, "first"
        monkeypatch.setattr(self.manager._services, "reconcile", self._pass)
        monkeypatch.setattr(self.manager._catalog, "reconcile", self._pass)
        monkeypatch.setattr(self.manager._audit, "run", _ended)
        monkeypatch.setattr(tidying, "tidy", _ended)
        self.edit(1)
        for ref in SERVICES:
            self._see("InferenceService", yamls.service(ref.namespace, ref.name, RUNTIME.name))

    def edit(self, generation: int) -> None:
        """Let the manager see the runtime with this generation."""
        self._see(RUNTIME.kind, yamls.runtime(RUNTIME.name), generation)

    def gone(self) -> None:
        """Delete the runtime."""
        self.manager.handle_deletion(RUNTIME.kind, {"metadata": {"uid": f"{RUNTIME.name}-first", "resourceVersion": "1000"}})
        self._uid = "second"

    def _see(self, kind: str, body: yamls.Manifest, generation: int = 1) -> None:
        self._version += 1
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": f"{name}-{self._uid}", "resourceVersion": str(self._version), "generation": generation}
        self.manager.handle_object(kind, body)

    async def _pass(self, ref: Ref) -> bool:
        runtime = self.manager.cluster.find_resource(RUNTIME)
        self.passes[ref] += 1
        self.seen[ref] = 0 if runtime is None else runtime.generation
        return True


@asynccontextmanager
async def running(told: RecordingManager) -> AsyncIterator[None]:
    """Yield while the manager runs, after the first pass over each key."""
    task = asyncio.create_task(told.manager.run())
    try:
        await until(lambda: {*SERVICES, RUNTIME} <= told.seen.keys())
        yield
    finally:
        await told.manager.stop(1.0)
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def _ended(*_: object) -> None:
    """Return at once, in place of a task that runs forever."""


async def test_each_service_is_reconciled_once_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    told = RecordingManager(monkeypatch)
    async with running(told):
        await asyncio.sleep(2 * DELAY)
        assert {told.passes[ref] for ref in SERVICES} == {1}


async def test_many_quick_edits_of_a_runtime_are_merged_per_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many edits of a runtime follow each other quickly. Each service sees the last of them, and is not reconciled for every
    one. Previously, 8 edits per second of a runtime with 5,000 services caused 40,000 reconciliations per second.
    """
    told = RecordingManager(monkeypatch)
    async with running(told):
        began = time.monotonic()
        for generation in range(2, 102):
            told.edit(generation)
            await asyncio.sleep(0)
        edited_s = time.monotonic() - began
        await until(lambda: {told.seen[ref] for ref in SERVICES} == {101})
        assert max(told.passes.values()) <= 3 + edited_s / DELAY < 50


async def test_deleted_and_recreated_runtime_reconciles_its_services(monkeypatch: pytest.MonkeyPatch) -> None:
    told = RecordingManager(monkeypatch)
    async with running(told):
        told.gone()
        await until(lambda: {told.seen[ref] for ref in SERVICES} == {0})
        told.edit(7)
        await until(lambda: {told.seen[ref] for ref in SERVICES} == {7})
