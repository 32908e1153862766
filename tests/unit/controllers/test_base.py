"""What is said of objects of which we keep nothing but a status, where a pass over them fails."""

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.base import Core, StatusReconciler
from ome_operator.controllers.benchmarkjob import BenchmarkJobReconciler
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.sglang import SglangReconciler
from ome_operator.core.benchmarkjob import job
from ome_operator.core.observed.objects import Ref
from ome_operator.core.sglang import convert
from ome_operator.kube.errors import KubeError
from ome_operator.machinery.workqueue import WorkQueue
from tests.support import yamls
from tests.unit.core.benchmarkjob import jobs

BUG = "the operator failed (TypeError: 5 is no map): please report this with its log"
SHORT = {"apiVersion": "sglang.ai/v1", "metadata": {"name": "s", "namespace": "team", "uid": "u"}}
BODIES: dict[str, dict[str, Any]] = {
    "BenchmarkJob": jobs.body(),
    "Serving": {**SHORT, "kind": "Serving", "spec": {"baseModel": "m"}},
    "ClusterBaseModel": yamls.model(),
}


def fails(*_: Any) -> Any:
    raise TypeError("5 is no map")


class Api:
    """An API server that stores statuses."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.stored: list[dict[str, Any]] = []
        self.error: KubeError | None = None

    async def apply(self, body: dict[str, Any], uid: str = "", subresource: str = "") -> Any:
        if self.error is not None:
            raise self.error
        self.stored.append(body["status"])
        metadata = {**self.body["metadata"], "resourceVersion": str(len(self.stored) + 1)}
        return SimpleNamespace(body={**self.body, "metadata": metadata, "status": body["status"]})


def world(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Api, WorkQueue[Ref], StatusReconciler, Ref]:
    """A server, a queue, passes with a bug, and an object of this kind."""
    metadata = {"uid": "u", "resourceVersion": "1", **BODIES[kind]["metadata"]}
    body = {**BODIES[kind], "metadata": metadata}
    api, cluster = Api(body), EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    cluster.seen(kind, body)
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=9.0, jitter=lambda: 0.5)
    for module, function in ((job, "wanted"), (convert, "source")):
        monkeypatch.setattr(module, function, fails)
    client, wall = api, lambda: datetime(2026, 1, 1, tzinfo=UTC)
    passes: dict[str, Any] = {
        "BenchmarkJob": lambda: BenchmarkJobReconciler(cluster, client, queue, 60.0, wall, job.Images("", "")),  # type: ignore[arg-type]
        "Serving": lambda: SglangReconciler(cluster, client, queue, 60.0, wall),  # type: ignore[arg-type]
        "ClusterBaseModel": lambda: CatalogReconciler(cluster, client, queue, 60.0, wall, Core(model_status=fails)),  # type: ignore[arg-type]
    }
    return api, queue, passes[kind](), Ref(kind, metadata.get("namespace", ""), metadata["name"])


@pytest.mark.parametrize("kind", BODIES)
async def test_a_bug_of_ours_is_a_condition_and_one_traceback(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, queue, passes, ref = world(kind, monkeypatch)
    with caplog.at_level(logging.INFO):
        await passes.reconcile(ref)
        await passes.reconcile(ref)
    ((condition,),) = [one["conditions"] for one in api.stored]
    assert (condition["type"] in ("Ready", "Complete"), condition["status"]) == (True, "False")
    assert (condition["reason"], condition["message"]) == ("InternalError", BUG)
    assert [bool(one.exc_info) for one in caplog.records] == [True, False]
    assert queue.retry(ref) == 4.0, "it was tried twice, each time later"


@pytest.mark.parametrize("kind", BODIES)
async def test_a_condition_that_cannot_be_written_fails_nothing_else(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api, queue, passes, ref = world(kind, monkeypatch)
    api.error = KubeError("the server is away", 503)
    await passes.reconcile(ref)
    assert queue.retry(ref) == 2.0
