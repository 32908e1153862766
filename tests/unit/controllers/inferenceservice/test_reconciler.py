"""Tests of what a pass assumes about other components: the API server, the clock and the cache."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.base import Core
from ome_operator.controllers.status_writer import co_writer
from ome_operator.core.observed.objects import Observed, Ref
from ome_operator.core.reconcile.plan import Apply, CapacityCheck, Check, Plan
from ome_operator.kube.errors import Forbidden, Invalid, KubeError, ServerError, TooMany
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.settings import Settings
from tests.support.fake_api import Call, FakeApi
from tests.unit.controllers import makers

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("later", "known"),
    [
        (timedelta(minutes=4), True),
        (timedelta(minutes=5), False),
        (timedelta(seconds=-2), True),  # the API server's clock is a little ahead of ours
        (timedelta(days=-1), False),  # the operator's clock was set back
    ],
)
def test_foreign_status_writer_is_remembered_for_five_minutes(later: timedelta, known: bool) -> None:
    lately = timedelta(seconds=Settings().foreign_writer_pause)
    assert co_writer([("manager", WRITTEN)], WRITTEN + later, lately) == ("manager" if known else "")


def status(ready: str) -> dict[str, object]:
    return {"conditions": [{"type": "Ready", "status": ready}]}


def refusing(*kinds: str, error: KubeError | None = None) -> FakeApi:
    """Return an API server that refuses to write objects of these kinds with `error`. By default, it answers 429, and asks
    the client to try again after 30 seconds.
    """
    return FakeApi({f"apply {kind}": error or TooMany("later", 429, 30.0) for kind in kinds})


SERVICE = Ref("InferenceService", "ns", "svc")


def passes(api: FakeApi, plan: Plan, clock: Callable[[], float]) -> tuple[Any, WorkQueue[Ref]]:
    """Return the reconciler of a new service and its queue. Every pass has the same plan."""
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=0.5, last=9.0, jitter=lambda: 0.5, clock=clock)
    cluster = makers.cluster({"kind": "InferenceService", **makers.BODY})
    return makers.services(cluster, api, queue, Core(sync=lambda *_: plan), clock=clock), queue


def applies(*kinds: str) -> tuple[Apply, ...]:
    """Return the applies of objects that do not exist yet."""
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}
    metadata = {"name": "svc", "namespace": "ns", "labels": labels, "ownerReferences": [makers.OWNER]}
    return tuple(Apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {}}, "") for kind in kinds)


async def test_due_action_waits_if_its_status_cannot_be_written() -> None:
    """An action that is due at once waits if its status cannot be written. For example, a rollback stays due until a status
    with the rejected revision is stored. If that write fails, the next reconciliation waits for the time that the API server
    states.
    """
    now, api = 0.0, refusing("InferenceService")
    made, queue = passes(api, Plan(status={"rejected": ["r"]}, requeue_after=0.0), lambda: now)
    await made.reconcile(SERVICE)
    assert api.kinds("apply") == ["InferenceService"]
    now = 29.0
    assert queue.due_count == 0
    now = 30.0
    assert queue.due_count == 1


async def test_plan_is_not_executed_before_free_capacity_is_known() -> None:
    """No plan is carried out before the free capacity that it depends on is known. Objects that are removed before would be
    created again and removed again after each answer.
    """
    plans, api = [Plan(look=(CapacityCheck("r.room", ()),), apply=applies("Service")), Plan()], FakeApi()
    cluster = makers.cluster({"kind": "InferenceService", **makers.BODY})
    core = Core(sync=lambda *_: plans.pop(0))
    services = makers.services(cluster, api, makers.queue(), core)
    await services.reconcile(SERVICE)
    assert plans == [] and "Service" not in api.kinds("apply")


@pytest.mark.parametrize(
    "later", [Invalid("no such policy", 422), TooMany("wait", 429, 5.0), ServerError("webhook is down", 500)]
)
async def test_refusal_stays_in_status_while_the_dry_run_is_repeated(later: KubeError) -> None:
    """While a refused dry run is repeated, the status keeps the refusal, because an API server that cannot answer has not
    withdrawn it. Otherwise the status would say "not known yet" in between.
    """
    now, api = 0.0, FakeApi()
    answers = iter([Invalid("no such policy", 422)])
    asked_again = "" if isinstance(later, Invalid) else f" (a repeated dry run gave no result: {later})"

    def refuse(_: Call) -> KubeError:
        nonlocal now
        now += 6.0  # a webhook is slower than the time for which the first refusals count
        return next(answers, later)

    api.answers["apply StatefulSet"] = refuse
    cluster = makers.cluster({"kind": "InferenceService", **makers.BODY})
    check = Check("r.1", tuple(apply.manifest for apply in applies("StatefulSet")))

    def sync(_: Any, __: Any, observed: Observed, ___: Any) -> Plan:
        answer = observed.checks.get(check.revision)
        return Plan(status={"said": answer or "Checking"}, check=() if answer else (check,))

    services = makers.services(cluster, api, makers.queue(), Core(sync=sync), clock=lambda: now)
    for _ in range(12):
        await services.reconcile(SERVICE)
        now += 60.0
    asked = api.kinds("apply").count("StatefulSet")
    said = [body["status"]["said"] for body in api.bodies("apply") if body["kind"] == "InferenceService"]
    assert (
        asked > 3
        and said[0] == "no such policy"
        and {*said[1:]} == ({f"no such policy{asked_again}"} if asked_again else set())
    )


async def test_pod_of_an_unwatched_namespace_counts_as_foreign() -> None:
    cluster, api = makers.cluster(), FakeApi()
    settings = Settings(watch_namespaces=("ns",))
    services = makers.services(cluster, api, makers.queue(), Core(), settings=settings)
    labels = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "svc", keys.COMPONENT: "engine", keys.REVISION: "r"}
    box = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pod = {"name": "svc-engine-r-0-0", "labels": labels}
    metadata = [{**pod, "uid": space, "namespace": space} for space in ("ns", "other")]
    api.answers["list_objects Pod"] = [{"metadata": each, "spec": {"containers": [box]}} for each in metadata]
    foreign = services._gangs._foreign
    await foreign.read_nodes(["n1"])
    assert foreign.requests_on("n1")["nvidia.com/gpu"] == 2


@pytest.mark.parametrize("rests", [True, False])
async def test_new_node_wakes_a_service_whose_plan_depended_on_nodes(rests: bool) -> None:
    """A new node causes another reconciliation of a service whose last plan depended on nodes, until the
    service is deleted.
    """
    dirty: list[Ref] = []
    cluster = makers.cluster({"kind": "InferenceService", **makers.BODY}, dirty=dirty)
    queue, api = makers.queue(), FakeApi()
    core = Core(sync=lambda *_: Plan(nodes=rests))
    services = makers.services(cluster, api, queue, core)
    await services.reconcile(SERVICE)
    dirty.clear()
    cluster.handle_observed("Node", {"metadata": {"name": "n", "uid": "n", "resourceVersion": "7"}})
    assert dirty == [SERVICE] * rests
    cluster.handle_deleted("InferenceService", "u")
    await services.reconcile(SERVICE)
    dirty.clear()
    cluster.handle_deleted("Node", "n")
    assert dirty == []


@pytest.mark.parametrize("kind", ["Service", "Role", "RoleBinding"])
@pytest.mark.parametrize("full", [False, True])
async def test_service_is_not_ready_until_its_network_objects_exist(kind: str, full: bool) -> None:
    """A service is not Ready while an object through which requests reach it could not be created. For example, a router
    without the right to list its workers serves no request.
    """
    api = refusing(*[kind] * full)
    made, _ = passes(api, Plan(apply=applies(kind), status=status("True")), lambda: 0.0)
    await made.reconcile(SERVICE)
    assert api.kinds("apply") == [kind, *["InferenceService"] * (not full)]


@pytest.mark.parametrize("refuses", [TooMany("later", 429, 30.0), Forbidden("no")])
async def test_refused_network_object_is_retried_with_a_delay(refuses: KubeError) -> None:
    """If an object through which requests reach a service is refused, here a RoleBinding, the next reconciliation is delayed
    even if the plan requests it at once with `requeue_after`.
    """
    plan = Plan(apply=applies("RoleBinding"), status=status("True"), requeue_after=0.0)
    api, seen = refusing("RoleBinding", error=refuses), list[Ref]()
    made, queue = passes(api, plan, time.monotonic)

    async def work(ref: Ref) -> None:
        seen.append(ref)
        await made.reconcile(ref)

    queue.add(SERVICE)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(queue.run(work), Settings().guard_delay / 2)
    assert len(seen) <= 2, "the refusal causes only one further pass"
    assert api.kinds("apply") == ["RoleBinding"], "neither the RoleBinding nor a Ready status is sent again"


async def test_refused_autoscaler_does_not_delay_the_status() -> None:
    api = refusing("HorizontalPodAutoscaler", error=Invalid("spec.metrics", 422))
    made, _ = passes(api, Plan(apply=applies("HorizontalPodAutoscaler"), status=status("True")), lambda: 0.0)
    await made.reconcile(SERVICE)
    assert api.kinds("apply")[-1] == "InferenceService"
