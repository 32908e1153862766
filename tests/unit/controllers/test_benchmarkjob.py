"""When the Job of a BenchmarkJob is made, where one of its name is there already."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import names
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import BENCHMARK
from ome_operator.controllers.benchmarkjob import BenchmarkJobReconciler
from ome_operator.core.benchmarkjob.job import Images
from ome_operator.core.observed.objects import Ref
from ome_operator.kube.errors import Conflict
from ome_operator.machinery.workqueue import WorkQueue
from tests.support import yamls

NOW = datetime(2026, 1, 1, tzinfo=UTC)

NAME = names.benchmark("speed")
REF = Ref(BENCHMARK, "team", "speed")


def job(uid: str, owner: dict[str, Any] | None) -> dict[str, Any]:
    """A Job of the wanted name."""
    metadata = {"name": NAME, "namespace": "team", "uid": uid, "resourceVersion": "5"}
    owners = {"ownerReferences": [{**owner, "controller": True}]} if owner else {}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**metadata, **owners}, "spec": {}}


def owner(uid: str, kind: str = BENCHMARK, name: str = "speed") -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": uid}


class Api:
    """An API server with one Job, and with pods by their labels."""

    def __init__(self, job: dict[str, Any] | None) -> None:
        self.job, self.status = job, dict[str, Any]()
        self.pods: list[dict[str, Any]] = []

    async def apply(self, body: dict[str, Any], uid: str = "", subresource: str = "") -> Any:
        if subresource:
            self.status = body["status"]
            stored = {**yamls.benchmark("team", "speed"), "status": body["status"]}
            return SimpleNamespace(body={**stored, "metadata": {**stored["metadata"], "uid": uid, "resourceVersion": "9"}})
        if self.job is not None:
            raise Conflict("the object has been modified", 409)
        self.job = {**body, "metadata": {**body["metadata"], "uid": "job-2", "resourceVersion": "8"}}
        return SimpleNamespace(body=self.job)

    async def list_objects(self, kind: str, *_: object, label_selector: str = "", **__: object) -> list[dict[str, Any]]:
        if kind == "Job":
            return [self.job] if self.job is not None else []
        key, _, value = label_selector.partition("=")
        return [one for one in self.pods if one["metadata"]["labels"].get(key) == value]


class World:
    """Passes over a BenchmarkJob that was made anew, while `there` has the name of its Job."""

    def __init__(self, there: dict[str, Any] | None) -> None:
        self.dirty: list[Ref] = []
        self.api, self.cluster = Api(there), EventHandler(lambda ref, _: self.dirty.append(ref), lambda _: (), lambda _: ())
        if there is not None:
            self.cluster.seen("Job", there)
        body = yamls.benchmark("team", "speed")
        self.cluster.seen(BENCHMARK, {**body, "metadata": {**body["metadata"], "uid": "second", "resourceVersion": "7"}})
        queue: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=9.0, jitter=lambda: 0.5)
        passes: Any = BenchmarkJobReconciler
        self.passes = passes(self.cluster, self.api, queue, 600.0, lambda: NOW, Images("", ""))

    async def says(self) -> tuple[str, str]:
        """Reason and sentence after a pass."""
        await self.passes.reconcile(REF)
        (one,) = self.api.status["conditions"]
        return one["reason"], one["message"]


async def test_a_benchmark_made_anew_goes_on_when_the_job_of_the_former_one_is_gone() -> None:
    world = World(job("job-1", owner("first")))
    assert await world.says() == ("Waiting", f"Job {NAME} of the former speed is still being deleted")
    world.dirty.clear()
    world.api.job = None
    world.cluster.gone("Job", "job-1")
    assert world.dirty == [REF], "its name is free"
    assert (await world.says())[0] == "Creating"


@pytest.mark.parametrize("theirs", [None, owner("x", "CronJob"), owner("x", name="another")])
async def test_a_job_of_somebody_else_has_to_be_taken_away_by_a_person(theirs: dict[str, Any] | None) -> None:
    reason, message = await World(job("job-1", theirs)).says()
    assert reason == "NameTaken" and "delete it" in message


async def test_pods_of_the_former_job_are_not_its_own() -> None:
    world = World(None)
    labels = {"batch.kubernetes.io/job-name": NAME, "batch.kubernetes.io/controller-uid": "job-1"}
    ran = {"name": "run", "state": {"terminated": {"exitCode": 0}}}
    world.api.pods = [{"metadata": {"name": "p", "labels": labels}, "status": {"initContainerStatuses": [ran]}}]
    assert (await world.says())[0] == "Creating"
