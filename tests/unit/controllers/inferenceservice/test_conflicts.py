"""A 409 says that something came between, and never that an object is gone: what is forgotten wrongly is lost for good.

API servers answer so where a name belongs to another UID by now; quotas, webhooks and proxies do about objects that stay.
A 5xx says that the API server, or a webhook, cannot do it now.
"""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.base import Core
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.inferenceservice.execution import Execution, Result
from ome_operator.controllers.inferenceservice.executor import Executor
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.observed.objects import Ref, Refusal
from ome_operator.core.plan import Apply, Delete, Plan
from ome_operator.kube.errors import Conflict, Forbidden, KubeError, NotFound, ServerError
from ome_operator.machinery.workqueue import WorkQueue
from tests.support import yamls

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Api:
    """An API server that refuses every write, and on which an object of this UID has the name."""

    def __init__(self, uid: str) -> None:
        self._uid = uid

    async def delete(self, *_: object) -> Any:
        raise Conflict("the object has been modified", 409)

    async def apply(self, *_: object, **__: object) -> Any:
        raise Conflict("the object has been modified", 409)

    async def get(self, *_: object) -> Any:
        if not self._uid:
            raise NotFound("gone", 404)
        return {"metadata": {"uid": self._uid}}


@pytest.mark.parametrize(("has_the_name", "known"), [("u", {"u"}), ("another", set()), ("", set())])
async def test_what_could_not_be_deleted_is_gone_only_where_it_is_not_there(has_the_name: str, known: set[str]) -> None:
    cluster = EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}
    metadata = {"name": "svc-1", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": labels}
    cluster.seen("StatefulSet", {"metadata": metadata})
    service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="s")
    run, api = Execution(service, ServiceMemory(), set(), Result(), lambda: 0.0), Api(has_the_name)
    plan = Plan(delete=(Delete("StatefulSet", "svc-1", "u"),))
    await Executor(api, cluster, 1.0).effects(plan, run)  # type: ignore[arg-type]
    assert cluster.uids("StatefulSet") == known
    assert run.result.requeue_after == 1.0, "the next pass tries again"


SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "svc-1", "namespace": "ns"}}
DELETE, CHANGE = Plan(delete=(Delete("StatefulSet", "svc-1", "u"),)), Plan(apply=(Apply(SET, "u"),))


class Stubborn:
    """An API server that answers every write with this error, on which everything stays."""

    def __init__(self, error: KubeError) -> None:
        self.error: KubeError | None = error

    async def delete(self, *_: object) -> Any:
        if self.error is not None:
            raise self.error
        return await self.get()

    async def apply(self, *_: object) -> Any:
        return SimpleNamespace(body=await self.delete(), warnings=())

    async def get(self, *_: object) -> Any:
        return {"metadata": {"name": "svc-1", "namespace": "ns", "uid": "u", "resourceVersion": "9"}}


class Retried:
    """Passes that always want the same, each when the one before asked for it."""

    def __init__(self, error: KubeError, plan: Plan = DELETE) -> None:
        self.api, self.memory, self.now, self._plan = Stubborn(error), ServiceMemory(), 0.0, plan
        cluster = EventHandler(lambda *_: None, lambda _: (), lambda _: ())
        self._executor: Any = Executor(self.api, cluster, 1.0)  # type: ignore[arg-type]
        self._service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="s")

    async def passed(self) -> Result:
        """What came of a pass; the time is that of the next one."""
        run = Execution(self._service, self.memory, set(), Result(), lambda: self.now)
        await self._executor.effects(self._plan, run)
        self.now += run.result.requeue_after or 0.0
        return run.result


@pytest.mark.parametrize(("plan", "uid"), [(DELETE, "u"), (CHANGE, "")])
@pytest.mark.parametrize("error", [Conflict("not now", 409), ServerError("not now", 500)])
async def test_what_is_never_answered_well_is_tried_ever_later_and_told(error: KubeError, plan: Plan, uid: str) -> None:
    retried, times, told = Retried(error, plan), list[float](), list[int]()
    for number in range(7):
        times.append(retried.now)
        if (await retried.passed()).status_changed:
            told.append(number)
    assert times == [0.0, 1.0, 2.0, 3.0, 8.0, 18.0, 38.0]
    assert told == [3], "once, when it is no chance any more"
    assert retried.memory.refusals() == {("StatefulSet", "svc-1"): Refusal(type(error).__name__, "not now", uid)}
    retried.api.error = None
    assert (await retried.passed()).status_changed and retried.memory.refusals() == {}


async def test_a_conflict_that_goes_away_is_not_told() -> None:
    retried = Retried(Conflict("not now", 409))
    assert not (await retried.passed()).status_changed and retried.memory.refusals() == {}
    assert retried.now == 1.0
    retried.api.error = None
    await retried.passed()
    assert retried.memory.refused == {}


async def test_a_deletion_that_is_forbidden_is_told_at_once() -> None:
    retried = Retried(Forbidden("no", 403))
    outcome = await retried.passed()
    assert outcome.status_changed and outcome.error is None and retried.now == 5.0
    assert retried.memory.refusals() == {("StatefulSet", "svc-1"): Refusal("Forbidden", "no", "u")}


async def test_a_status_that_met_a_conflict_is_written_soon() -> None:
    model, cluster = yamls.model(), EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    ref = Ref("ClusterBaseModel", "", model["metadata"]["name"])
    cluster.seen(ref.kind, {**model, "metadata": {**model["metadata"], "uid": "u", "resourceVersion": "1"}})
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=9.0, jitter=lambda: 0.5)
    passes: Any = CatalogReconciler
    await passes(cluster, Api("u"), queue, 60.0, lambda: NOW, Core(model_status=lambda *_: {"state": "Ready"})).reconcile(
        ref
    )
    assert queue.retry(ref) == 2.0, "it has failed once"
