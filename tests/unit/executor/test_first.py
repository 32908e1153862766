"""What has to be stored before anything is made of it."""

from types import SimpleNamespace
from typing import Any

from ome_operator import keys
from ome_operator.cluster import Cluster
from ome_operator.executor import Executor, Outcome, Run
from ome_operator.kube.errors import Conflict, NotFound
from ome_operator.memory import Memory
from ome_operator.plan import Apply, Plan


def manifest(kind: str) -> dict[str, Any]:
    metadata = {"name": "svc-1", "namespace": "ns", "labels": {keys.SERVICE: "svc"}, "annotations": {keys.HASH: "h"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata}


class Api:
    """An API server on which somebody deletes revisions."""

    def __init__(self, gone: bool) -> None:
        self.gone, self.applied = gone, list[str]()

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        raise NotFound("gone", 404)

    async def apply(self, body: dict[str, Any], uid: str = "") -> Any:
        if self.gone and uid:
            raise Conflict("another UID", 409)
        self.applied.append(body["kind"])
        stored = {**body, "metadata": {**body["metadata"], "uid": f"{body['kind']}-uid", "resourceVersion": "2"}}
        return SimpleNamespace(body=stored, warnings=())


async def kinds(gone: bool) -> tuple[list[str], Outcome]:
    """What is applied of a revision that was known and a workload of it."""
    api, cluster = Api(gone), Cluster(lambda *_: None, lambda _: (), lambda _: ())
    service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="ns", name="svc"), uid="u")
    run = Run(service, Memory(), set(), Outcome())
    plan = Plan(first=(Apply(manifest("ControllerRevision"), "old"),), apply=(Apply(manifest("StatefulSet"), ""),))
    await Executor(api, cluster, lambda: 0.0, 1.0).effects(plan, run)  # type: ignore[arg-type]
    return api.applied, run.outcome


async def test_a_slice_is_stamped_from_what_is_stored() -> None:
    assert (await kinds(gone=False))[0] == ["ControllerRevision", "StatefulSet"]


async def test_nothing_is_stamped_from_a_revision_that_somebody_deleted_just_now() -> None:
    applied, outcome = await kinds(gone=True)
    assert applied == [] and outcome.again == 1.0, "the next pass stores it first"
