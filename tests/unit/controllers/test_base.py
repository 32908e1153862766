"""Tests of the status after a failed pass, for kinds of which the operator writes only the status."""

import logging
from typing import Any

import pytest

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
from tests.support.conditions import plain
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers
from tests.unit.core.benchmarkjob import jobs

BUG = "the operator failed (TypeError: 5 is no map): please report this with its log"
SHORT = {"apiVersion": "sglang.ai/v1", "metadata": {"name": "s", "namespace": "team", "uid": "u"}}
BODIES: dict[str, dict[str, Any]] = {
    "BenchmarkJob": jobs.body(),
    "Serving": {**SHORT, "kind": "Serving", "spec": {"baseModel": "m"}},
    "ClusterBaseModel": yamls.model(),
}


def fails(*_: Any, **_more: Any) -> Any:
    raise TypeError("5 is no map")


def world(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeApi, WorkQueue[Ref], StatusReconciler, Ref]:
    """Return an API server that stores statuses, a queue, a reconciler whose passes raise an exception, and the key of an
    object of this kind.
    """
    metadata = {"uid": "u", "resourceVersion": "1", **BODIES[kind]["metadata"]}
    body = {**BODIES[kind], "metadata": metadata}
    for module, function in ((job, "desired_job"), (convert, "source")):
        monkeypatch.setattr(module, function, fails)
    cluster, queue, wall = makers.cluster(body), makers.queue(), makers.wall
    api = FakeApi({"apply": makers.storing(body)})
    passes: dict[str, Any] = {
        "BenchmarkJob": lambda: BenchmarkJobReconciler(cluster, api, queue, 60.0, wall, job.Images("sglang:1", "tools:1")),
        "Serving": lambda: SglangReconciler(cluster, api, queue, 60.0, wall),
        "ClusterBaseModel": lambda: CatalogReconciler(cluster, api, queue, 60.0, wall, Core(model_status=fails)),
    }
    return api, queue, passes[kind](), Ref(kind, metadata.get("namespace", ""), metadata["name"])


@pytest.mark.parametrize("kind", BODIES)
async def test_internal_error_gives_a_condition_and_one_traceback(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, queue, passes, ref = world(kind, monkeypatch)
    with caplog.at_level(logging.INFO):
        assert not await passes.reconcile(ref)
        assert not await passes.reconcile(ref)
    ((condition,),) = [plain(one["status"]) for one in api.bodies("apply")]
    assert (condition["type"] in ("Ready", "Complete"), condition["status"]) == (True, "False")
    assert (condition["reason"], condition["message"]) == ("InternalError", BUG)
    assert [bool(one.exc_info) for one in caplog.records] == [True, False]
    assert queue.retry(ref) == 4.0, "two attempts, with increasing delays"


@pytest.mark.parametrize("kind", BODIES)
async def test_failed_condition_write_is_only_retried(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api, queue, passes, ref = world(kind, monkeypatch)
    api.answers["apply"] = KubeError("the server is away", 503)
    await passes.reconcile(ref)
    assert queue.retry(ref) == 2.0
