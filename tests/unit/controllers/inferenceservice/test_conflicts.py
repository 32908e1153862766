"""Tests of conflicts: a response 409 says that the object has changed, and never that it is gone. If the operator forgot an
existing object by mistake, it would never learn of the object again.

API servers answer 409 if the name now belongs to another UID. Quotas, webhooks and proxies also answer 409 about objects
that still exist. A 5xx says that the API server or a webhook cannot process the request now.
"""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.base import Core
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.observed.objects import Ref, Refusal
from ome_operator.core.reconcile.plan import Apply, Delete, Plan
from ome_operator.kube.errors import Conflict, Forbidden, KubeError, NotFound, ServerError
from tests.support import yamls
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

MODIFIED = Conflict("the object has been modified", 409)
METADATA = {"name": "svc-1", "namespace": "ns", "labels": {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}}
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": METADATA}
DELETE, CHANGE = Plan(delete=(Delete("StatefulSet", "svc-1", "u"),)), Plan(apply=(Apply(SET, "u"),))
STAYS = {**SET, "metadata": {**METADATA, "uid": "u", "resourceVersion": "9"}}


@pytest.mark.parametrize(("has_the_name", "known"), [("u", {"u"}), ("another", set()), ("", set())])
async def test_failed_deletion_removes_object_from_cache_only_if_it_does_not_exist(
    has_the_name: str, known: set[str]
) -> None:
    there = {"metadata": {"uid": has_the_name}} if has_the_name else NotFound("gone", 404)
    api, execution = FakeApi({"delete": MODIFIED, "get": there}), makers.execution()
    cluster = makers.cluster(STAYS)
    await makers.executor(api, cluster).execute_effects(DELETE, execution)
    assert cluster.cache.uids("StatefulSet") == known
    assert execution.result.requeue_after == 1.0, "the next pass tries again"


class Retried:
    """Reconciliations with the same plan, each at the time for which the previous one asked. The API server refuses all
    writes.
    """

    def __init__(self, error: KubeError, plan: Plan = DELETE) -> None:
        self.api, self.memory, self.now = FakeApi({"delete": error, "apply": error, "get": STAYS}), ServiceMemory(), 0.0
        self._executor, self._plan = makers.executor(self.api, makers.cluster()), plan

    def relent(self) -> None:
        """Let the API server accept writes."""
        self.api.answers |= {"delete": STAYS, "apply": STAYS}

    async def passed(self) -> Result:
        """Run a pass, set the time to the time of the next one, and return the result."""
        execution = makers.execution(self.memory, lambda: self.now)
        await self._executor.execute_effects(self._plan, execution)
        self.now += execution.result.requeue_after or 0.0
        return execution.result


@pytest.mark.parametrize(("plan", "uid"), [(DELETE, "u"), (CHANGE, "")])
@pytest.mark.parametrize("error", [Conflict("not now", 409), ServerError("not now", 500)])
async def test_repeated_write_error_is_retried_with_growing_delay_and_reported(
    error: KubeError, plan: Plan, uid: str
) -> None:
    retried, times, told = Retried(error, plan), list[float](), list[int]()
    for number in range(7):
        times.append(retried.now)
        if (await retried.passed()).status_changed:
            told.append(number)
    assert times == [0.0, 1.0, 2.0, 3.0, 8.0, 18.0, 38.0]
    assert told == [3], "reported once, when it is no coincidence any more"
    assert retried.memory.refusals() == {("StatefulSet", "svc-1"): Refusal(type(error).__name__, "not now", uid)}
    retried.relent()
    assert (await retried.passed()).status_changed and retried.memory.refusals() == {}


async def test_single_conflict_is_not_reported() -> None:
    retried = Retried(Conflict("not now", 409))
    assert not (await retried.passed()).status_changed and retried.memory.refusals() == {}
    assert retried.now == 1.0
    retried.relent()
    await retried.passed()
    assert retried.memory.refused == {}


async def test_forbidden_deletion_is_reported_immediately() -> None:
    retried = Retried(Forbidden("no", 403))
    outcome = await retried.passed()
    assert outcome.status_changed and outcome.error is None and retried.now == 5.0
    assert retried.memory.refusals() == {("StatefulSet", "svc-1"): Refusal("Forbidden", "no", "u")}


async def test_status_write_is_retried_soon_after_a_conflict() -> None:
    model, queue = yamls.model(), makers.queue()
    ref = Ref("ClusterBaseModel", "", model["metadata"]["name"])
    cluster = makers.cluster({**model, "metadata": {**model["metadata"], "uid": "u", "resourceVersion": "1"}})
    passes: Any = CatalogReconciler
    await passes(
        cluster, FakeApi({"apply": MODIFIED}), queue, 60.0, makers.wall, Core(model_status=lambda *_: {"state": "Ready"})
    ).reconcile(ref)
    assert queue.retry(ref) == 2.0, "the queue counts one failure"
