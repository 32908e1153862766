"""Tests of when the Job of a BenchmarkJob is created if another Job of this name exists."""

from typing import Any

import pytest

from ome_operator import names
from ome_operator.cache.resources import BENCHMARK
from ome_operator.controllers.benchmarkjob import PODS, BenchmarkJobReconciler
from ome_operator.core.benchmarkjob.job import Images
from ome_operator.core.observed.objects import Ref
from ome_operator.kube.errors import Conflict
from tests.support import yamls
from tests.support.conditions import plain
from tests.support.fake_api import Call, FakeApi
from tests.unit.controllers import makers

NAME = names.benchmark("speed")
REF = Ref(BENCHMARK, "team", "speed")


def job(uid: str, owner: dict[str, Any] | None) -> dict[str, Any]:
    """Return a Job that has the name of the Job that the operator would create for the BenchmarkJob. `owner` is its owner
    reference; None if it has no owner.
    """
    metadata = {"name": NAME, "namespace": "team", "uid": uid, "resourceVersion": "5"}
    owners = {"ownerReferences": [{**owner, "controller": True}]} if owner else {}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**metadata, **owners}, "spec": {}}


def owner(uid: str, kind: str = BENCHMARK, name: str = "speed") -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": uid}


class World:
    """Reconciliations of a BenchmarkJob that was deleted and created again with the same name. `there` is an existing Job
    that has the name of the Job to create.
    """

    def __init__(self, there: dict[str, Any] | None) -> None:
        body = yamls.benchmark("team", "speed")
        body = {**body, "metadata": {**body["metadata"], "uid": "second", "resourceVersion": "7"}}
        self.api = FakeApi({f"apply {BENCHMARK}/status": makers.storing(body), "list_objects": []})
        self.dirty = list[Ref]()
        self.cluster = makers.cluster(body, *[there] if there else [], dirty=self.dirty)
        if there is not None:
            self.api.answers |= {"apply Job": Conflict("the object has been modified", 409), "list_objects Job": [there]}
        passes: Any = BenchmarkJobReconciler
        self.passes = passes(self.cluster, self.api, makers.queue(), 600.0, makers.wall, Images("sglang:1", "tools:1"))

    def free(self) -> None:
        """Delete the existing Job."""
        del self.api.answers["apply Job"]
        self.cluster.handle_deleted("Job", "job-1")

    async def says(self) -> tuple[str, str]:
        """Reconcile the BenchmarkJob, and return the reason and the message of its condition."""
        await self.passes.reconcile(REF)
        (one,) = plain(self.api.bodies("apply")[-1]["status"])
        return one["reason"], one["message"]


async def test_recreated_benchmark_starts_after_the_old_job_is_deleted() -> None:
    world = World(job("job-1", owner("first")))
    assert await world.says() == ("Waiting", f"Job {NAME} of the deleted BenchmarkJob speed is still being deleted")
    world.dirty.clear()
    world.free()
    assert world.dirty == [REF], "its name is free"
    assert (await world.says())[0] == "Creating"


@pytest.mark.parametrize("theirs", [None, owner("x", "CronJob"), owner("x", name="another")])
async def test_job_name_taken_by_another_owner_needs_manual_deletion(theirs: dict[str, Any] | None) -> None:
    reason, message = await World(job("job-1", theirs)).says()
    assert reason == "NameTaken" and "delete the Job" in message


async def test_pods_of_the_former_job_are_ignored() -> None:
    labels = {"batch.kubernetes.io/job-name": NAME, "batch.kubernetes.io/controller-uid": "job-1"}
    ran = {"name": "run", "state": {"terminated": {"exitCode": 0}}}
    pod = {"metadata": {"name": "p", "labels": labels}, "status": {"initContainerStatuses": [ran]}}

    def pods(call: Call) -> list[dict[str, Any]]:
        key, _, value = call.selector.partition("=")
        return [pod] if labels.get(key) == value else []

    world = World(None)
    world.api.answers["list_objects Pod"] = pods
    assert (await world.says())[0] == "Creating"


async def test_number_of_pods_read_for_a_job_is_limited() -> None:
    """Only a few pods of a BenchmarkJob are read. A tenant can give the Job's label to as many large pods as its quota
    permits, and the pods are read every 15 seconds.
    """
    world, limits = World(None), list[int]()
    listed = world.api.list_objects

    async def counted(kind: str, namespace: str = "", **options: Any) -> Any:
        if kind == "Pod":
            limits.append(options.get("limit", 0))
        return await listed(kind, namespace, **options)

    world.api.list_objects = counted  # type: ignore[method-assign]
    await world.passes.reconcile(REF)
    assert limits == [PODS]
