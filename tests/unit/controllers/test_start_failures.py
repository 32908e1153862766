"""Tests that failures of nodes to start pods are read from Events, only for pods that wait, and with increasing
intervals.
"""

from datetime import timedelta
from typing import Any

from ome_operator.cache.resources import BENCHMARK
from ome_operator.controllers import events
from ome_operator.controllers.benchmarkjob import BenchmarkJobReconciler
from ome_operator.controllers.inferenceservice import starting
from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.controllers.inferenceservice.memory import LONGEST, ServiceMemory
from ome_operator.core.benchmarkjob.job import Images
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.reasons import ReasonedMessage
from ome_operator.kube.errors import TooMany
from tests.support import yamls
from tests.support.conditions import plain
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers
from tests.unit.core.observed.test_starts import NO_DIRECTORY
from tests.unit.core.rollout.makers import pod

AFTER = 10.0
WHY = ReasonedMessage("FailedMount", NO_DIRECTORY)


def event(uid: str, reason: str = "FailedMount", message: str = NO_DIRECTORY, minutes: float = 1.0) -> dict[str, Any]:
    """Return an Event about a pod, from this number of minutes ago."""
    at = (makers.NOW - timedelta(minutes=minutes)).isoformat()
    about = {"kind": "Pod", "name": "p", "uid": uid}
    return {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": at}


def waiting(*uids: str) -> list[Pod]:
    return [pod(uid, ready=False)._replace(reason="ContainerCreating", uid=uid) for uid in uids]


class Look:
    """Passes over a service, at times that the test sets."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.memory, self.now = api, ServiceMemory(), 0.0
        self.failures = events.start_failures(api, lambda: self.now, makers.wall)

    async def at(self, now: float, pods: list[Pod]) -> Result:
        self.now, result = now, Result()
        await starting.read_events(self.failures, "ns", pods, self.memory, result, now=now, after=AFTER)
        return result


async def test_events_are_read_after_a_pod_has_waited_for_a_while() -> None:
    look = Look(FakeApi({"list_objects Event": [event("a")]}))
    result = await look.at(0.0, waiting("a"))
    assert (look.api.calls, result.requeue_after, result.status_changed) == ([], AFTER, False)
    result = await look.at(AFTER, waiting("a"))
    assert result.status_changed and look.memory.starting.reasons == {"a": WHY}
    (call,) = look.api.calls
    assert call.selector.startswith("involvedObject.kind=Pod,reason!=Scheduled")
    assert not (await look.at(AFTER + 1, waiting("a"))).status_changed and len(look.api.calls) == 1


async def test_events_are_read_with_growing_delay_and_again_for_a_new_pod() -> None:
    look = Look(FakeApi({"list_objects Event": []}))
    now, gaps = AFTER, list[float]()
    await look.at(0.0, waiting("a"))
    for _ in range(12):
        result = await look.at(now, waiting("a"))
        assert result.requeue_after is not None and not result.status_changed
        gaps.append(result.requeue_after)
        now += result.requeue_after
    assert gaps == sorted(gaps) and gaps[-1] == LONGEST
    assert (await look.at(now - 1, waiting("a", "b"))).requeue_after == AFTER


async def test_start_failure_is_dropped_when_the_pod_stops_waiting() -> None:
    look = Look(FakeApi({"list_objects Event": [event("a")]}))
    await look.at(0.0, waiting("a"))
    await look.at(AFTER, waiting("a"))
    running = [seen._replace(reason="Starting") for seen in waiting("a")]
    assert (await look.at(AFTER + 1, running)).requeue_after is None
    assert look.memory.starting.reasons == {}


async def test_failed_event_read_is_repeated_later() -> None:
    look = Look(FakeApi({"list_objects Event": TooMany("later", 429, 1.0)}))
    await look.at(0.0, waiting("a"))
    result = await look.at(AFTER, waiting("a"))
    assert not result.status_changed and result.requeue_after and result.error is None


async def test_benchmark_status_reports_a_volume_that_cannot_be_mounted() -> None:
    """The status of a BenchmarkJob reports that the directory for its results does not exist on the node."""
    body = yamls.benchmark("team", "speed")
    body = {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "7"}}
    name = "benchmark-speed"
    owners = [{"kind": BENCHMARK, "name": "speed", "uid": "u", "controller": True}]
    metadata = {"name": name, "namespace": "team", "uid": "job-1", "resourceVersion": "5", "ownerReferences": owners}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
    creating = [{"name": "report", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}]
    status = {"phase": "Pending", "containerStatuses": creating}
    there = {"metadata": {"name": "p", "uid": "p-1"}, "spec": {"nodeName": "n"}, "status": status}
    answers = {f"apply {BENCHMARK}/status": makers.storing(body), "list_objects Event": [event("p-1")]}
    api = FakeApi({**answers, "list_objects Pod": [there]})
    cluster: Any = makers.cluster(body, made)
    passes = BenchmarkJobReconciler(cluster, api, makers.queue(), 600.0, makers.wall, Images("sglang:1", "tools:1"))
    await passes.reconcile(Ref(BENCHMARK, "team", "speed"))
    (told,) = plain(api.bodies("apply")[-1]["status"])
    assert (told["reason"], told["message"]) == ("FailedMount", NO_DIRECTORY)
