"""Tests that the Jobs that pull images are counted over all services, and that they and their results reach passes."""

from typing import Any

from ome_operator import keys
from ome_operator.controllers.base import Core
from ome_operator.controllers.inferenceservice.image_pulls import PullCounts
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Apply, Plan
from ome_operator.kube.errors import Forbidden
from ome_operator.machinery.workqueue import WorkQueue
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

SERVICE, OTHER, THIRD = (Ref("InferenceService", "ns", name) for name in ("svc", "other", "third"))


def test_each_service_counts_the_pull_jobs_of_all_others() -> None:
    counts = PullCounts()
    counts.report(SERVICE, 2)
    counts.report(OTHER, 3)
    assert (
        counts.active_jobs_of_others(SERVICE),
        counts.active_jobs_of_others(OTHER),
        counts.active_jobs_of_others(THIRD),
    ) == (3, 2, 5)
    counts.report(OTHER, 1)
    assert counts.active_jobs_of_others(SERVICE) == 1
    counts.report(OTHER, 0)
    counts.forget(THIRD)
    assert counts.active_jobs_of_others(SERVICE) == 0 and counts.active_jobs_of_others(THIRD) == 2
    counts.forget(SERVICE)
    assert counts.active_jobs_of_others(THIRD) == 0


def job() -> dict[str, Any]:
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER, keys.REVISION: "abc"}
    metadata = {"name": "svc-pull-abc-1", "namespace": "ns", "labels": labels, "ownerReferences": [makers.OWNER]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}


async def test_reconciliations_see_pull_jobs_of_others_and_results_of_their_own() -> None:
    """From the moment at which a plan contains Jobs that pull images, passes over other services count these Jobs, even
    before any Job is created. The next pass over the service itself sees each Job that the operator has created, and each
    change of the Job's status.
    """
    seen, dirty = dict[str, Observed](), list[Ref]()
    plans = {"svc": Plan(apply=(Apply(job(), ""),), pulls=1), "other": Plan()}

    def sync(service: Any, _: Deps, observed: Observed, __: Any) -> Plan:
        seen[service.name] = observed
        return plans[service.name]

    bodies = [{"kind": "InferenceService", **makers.BODY}]
    bodies.append({**bodies[0], "metadata": {**makers.BODY["metadata"], "name": "other", "uid": "v"}})
    handler, queue = makers.cluster(*bodies, dirty=dirty), WorkQueue[Ref](workers=1, first=0.5, last=9.0, jitter=lambda: 0.5)
    made = makers.services(handler, FakeApi(), queue, Core(sync=sync))
    await made.reconcile(SERVICE)
    await made.reconcile(OTHER)
    assert (seen["svc"].pulls, seen["other"].pulls) == (0, 1)
    stored = {**job(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    (known,) = handler.cache.children["Job"]
    stored["metadata"] = {**stored["metadata"], "uid": known.uid, "resourceVersion": str(known.version + 1)}
    dirty.clear()
    handler.handle_observed("Job", stored)
    assert dirty == [SERVICE]
    plans["svc"] = Plan()
    await made.reconcile(SERVICE)
    await made.reconcile(OTHER)
    child = seen["svc"].children["Job", "svc-pull-abc-1"]
    assert child.content == {"status": stored["status"], "generation": 0} and child.owner == "u"
    assert seen["other"].pulls == 0


async def test_refused_pull_job_is_seen_by_the_next_reconciliation() -> None:
    found = list[Observed]()

    def sync(_: Any, __: Deps, observed: Observed, ___: Any) -> Plan:
        found.append(observed)
        return Plan(apply=(Apply(job(), ""),), pulls=1)

    handler, queue = (
        makers.cluster({"kind": "InferenceService", **makers.BODY}),
        WorkQueue[Ref](workers=1, first=0.5, last=9.0, jitter=lambda: 0.5),
    )
    made = makers.services(handler, FakeApi({"apply Job": Forbidden("no Jobs here", 403)}), queue, Core(sync=sync))
    await made.reconcile(SERVICE)
    await made.reconcile(SERVICE)
    assert found[-1].refusals["Job", "svc-pull-abc-1"].message == "no Jobs here"
