"""Tests of the manager with namespaces that appear and disappear, and with objects of other operator classes."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.controllers import tidying
from ome_operator.controllers.base import CORE
from ome_operator.controllers.manager import Manager, ResyncScope
from ome_operator.core.observed.objects import Epoch, Ref, Refusal
from ome_operator.core.placement.claims import Claim
from ome_operator.core.reconcile.plan import EditStand, EditState, Plan
from ome_operator.kube.errors import KubeError
from ome_operator.machinery import garbage_collection
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from tests.support import yamls
from tests.support.fake_api import FakeApi


def manager(**settings: Any) -> tuple[Manager, FakeApi]:
    api = FakeApi()
    return Manager(Settings(**settings), CORE, api, Metrics(), lambda: datetime.now(UTC), KINDS), api


def service(namespace: str = "a", version: int = 1, **labels: str) -> dict[str, Any]:
    body = yamls.service(namespace, "svc", "rt")
    body["metadata"] |= {"uid": f"of-{namespace}", "resourceVersion": str(version), "generation": 1, "labels": labels}
    return body


REF = Ref("InferenceService", "a", "svc")
BLUE = {"ome.io/operator-class": "blue"}


def test_service_that_changes_class_is_removed_from_the_cache() -> None:
    made, api = manager()
    made.handle_object("InferenceService", service())
    assert made.cluster.find_resource(REF) is not None
    made.handle_object("InferenceService", service(version=2, **BLUE))
    assert made.cluster.find_resource(REF) is None
    made.handle_object("InferenceService", service(version=3))
    assert made.cluster.find_resource(REF) is not None, "the namespace can return"
    assert api.calls == []


async def test_namespace_is_reconciled_only_while_completely_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconciliations of the services of a namespace begin when its objects are completely listed, and end when the
    namespace is gone. With an incomplete list, a reconciliation would delete revisions and create existing pods again.
    """
    made, _ = manager(watch_namespaces=("a", "b"))
    passes: list[Ref] = []

    async def reconcile(ref: Ref) -> bool:
        passes.append(ref)
        return True

    monkeypatch.setattr(made._services, "reconcile", reconcile)
    made.handle_object("InferenceService", service())
    await made._pass(REF)
    assert passes == []
    made.namespace_listed("a")
    await made._pass(REF)
    made.namespace_unwatched("a")
    await made._pass(REF)
    assert passes == [REF]
    assert made.cluster.find_resource(REF) is not None, "the cache keeps its objects until the namespace is listed again"


async def test_internal_error_counts_as_failed_pass_but_api_refusal_does_not() -> None:
    """A reconciliation that fails because of a bug counts as failed in the metrics, and one that the API server refuses does
    not. The alert OmePassesFail counts failed ones. Previously, a reconciliation that reported InternalError in the status
    counted as successful.
    """
    bugs = [True]

    def sync(*_: Any) -> Plan:
        if bugs:
            raise KeyError("a bug")
        return Plan(status={"conditions": []})

    api = FakeApi({"apply": KubeError("the server is away", 503)})
    metrics = Metrics()
    made = Manager(Settings(), replace(CORE, sync=sync), api, metrics, lambda: datetime.now(UTC), KINDS)
    made.handle_object("InferenceService", service())

    async def counted() -> dict[str, float]:
        await made._pass(REF)
        labels = ({"kind": "InferenceService", "result": result} for result in ("ok", "error"))
        return {each["result"]: metrics.registry.get_sample_value("ome_passes_total", each) or 0.0 for each in labels}

    assert await counted() == {"ok": 0.0, "error": 1.0}
    assert await counted() == {"ok": 0.0, "error": 2.0}
    bugs.clear()
    assert await counted() == {"ok": 1.0, "error": 2.0}
    assert "apply" in {verb for verb, *_ in api.calls}, "the write of the status was refused"


def test_audit_covers_only_listed_namespaces() -> None:
    made, _ = manager(watch_namespaces=("a", "b"))
    for namespace in ("a", "b"):
        made.handle_object("InferenceService", service(namespace))
    made.namespace_listed("a")
    assert made._known(ResyncScope("InferenceService", "a")) == {"of-a"}
    assert made._known(ResyncScope("InferenceService", "b")) == set()


def test_service_of_an_absent_namespace_delays_no_other() -> None:
    """A service of a namespace that is gone does not delay other services of its runtime. The service may have been in the
    middle of a rollout for which the other services wait.
    """
    made, _ = manager(watch_namespaces=("a", "b"))
    made.handle_object("InferenceService", service())
    waves, runtime, epoch = made._services.waves, Ref("ClusterServingRuntime", "", "rt"), Epoch("u", 2)
    other, waits = Ref("InferenceService", "b", "svc"), {runtime: EditStand(epoch, EditState.PENDING)}
    waves.report(REF, waits, asks=True, begun=True)
    waves.report(other, waits, asks=True, begun=False)
    assert waves.awaited_wave(other, {runtime: epoch})
    made.namespace_unwatched("a")
    assert waves.awaited_wave(other, {runtime: epoch}) == ""


async def test_shared_edit_begins_only_after_all_watched_services_were_reconciled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No service begins with an edit of a shared object before all known services have been reconciled. Only services of
    completely listed namespaces count. Services of other namespaces are not reconciled yet, and must not delay the rest.
    """
    made, _ = manager(watch_namespaces=("a", "b"))
    monkeypatch.setattr(made._queue, "run", ended)
    monkeypatch.setattr(made._edits, "run", ended)
    monkeypatch.setattr(made._audit, "run", ended)
    monkeypatch.setattr(tidying, "tidy", ended)
    monkeypatch.setattr(made.bad_nodes, "run", ended)
    monkeypatch.setattr(made._demand, "run", ended)
    monkeypatch.setattr(made._services.first_pods, "run", ended)
    monkeypatch.setattr(garbage_collection, "collect_periodically", ended)
    for namespace in ("a", "b"):
        made.handle_object("InferenceService", service(namespace))
    made.namespace_listed("a")
    await made.run()
    assert made._services.waves._unseen == {REF}
    made.namespace_listed("b")
    assert made._services.waves._unseen == {REF, REF._replace(namespace="b")}
    made.namespace_unwatched("b")
    assert made._services.waves._unseen == {REF}


async def ended(*_: object) -> None:
    """Return at once, in place of a task that runs forever."""


def child(version: int = 1) -> dict[str, Any]:
    """Return a StatefulSet of the service."""
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}
    return {"metadata": {"name": "w", "namespace": "a", "uid": "w", "resourceVersion": str(version), "labels": labels}}


def test_deletion_of_a_foreign_child_permits_an_immediate_retry() -> None:
    made, _ = manager()
    made.handle_object("InferenceService", service())
    resource = made.cluster.find_resource(REF)
    assert resource is not None
    memory = made._services._memories.memory_of(resource)
    key = "StatefulSet", "w"
    for _ in range(9):
        memory.store_refusal(key, Refusal("NameTaken", "another has it"), "hash", 0.0)
    made.handle_object("StatefulSet", child())
    assert memory.refused[key].next > 0
    made.handle_deletion("StatefulSet", child(2))
    assert memory.refused[key].next == -math.inf


def test_deleted_pod_wakes_a_service_that_waits_for_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = manager()
    woken: list[str] = []
    monkeypatch.setattr(made._services._gangs, "_wake", lambda ref: woken.append(ref.name))
    made._services._gangs.report_claim(
        Ref("InferenceService", "a", "waits"), Claim("a/waits", (), trying=False), datetime(2026, 1, 1, tzinfo=UTC)
    )
    pod = {**child(), "kind": "Pod", "spec": {"nodeName": "n", "containers": []}, "status": {}}
    made.handle_object("Pod", pod)
    assert woken == []
    made.handle_deletion("Pod", pod)
    assert woken == ["waits"]
