"""A 409 says that something else came between, and never that an object is gone: what is forgotten wrongly is lost for good.

API servers answer so where a name belongs to another UID by now; quotas, webhooks and proxies do about objects that stay.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.catalog import Catalog
from ome_operator.cluster import Cluster
from ome_operator.executor import Executor, Outcome, Run
from ome_operator.facts import Ref
from ome_operator.kube.errors import Conflict, NotFound
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.memory import Memory
from ome_operator.plan import Delete, Plan
from tests.support import yamls


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
    cluster = Cluster(lambda *_: None, lambda _: (), lambda _: ())
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}
    metadata = {"name": "svc-1", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": labels}
    cluster.seen("StatefulSet", {"metadata": metadata})
    service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="s")
    run, api = Run(service, Memory(), set(), Outcome()), Api(has_the_name)
    plan = Plan(delete=(Delete("StatefulSet", "svc-1", "u"),))
    await Executor(api, cluster, lambda: 0.0, 1.0).effects(plan, run)  # type: ignore[arg-type]
    assert cluster.uids("StatefulSet") == known
    assert run.outcome.again == 1.0, "the next pass tries again"


async def test_a_status_that_met_a_conflict_is_written_soon() -> None:
    model, cluster = yamls.model(), Cluster(lambda *_: None, lambda _: (), lambda _: ())
    ref = Ref("ClusterBaseModel", "", model["metadata"]["name"])
    cluster.seen(ref.kind, {**model, "metadata": {**model["metadata"], "uid": "u", "resourceVersion": "1"}})
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=9.0, jitter=lambda: 0.5)
    passes: Any = Catalog
    await passes(cluster, Api("u"), queue, 60.0, lambda _: {"state": "Ready"}, None).handle(ref)
    assert queue.retry(ref) == 2.0, "it has failed once"
