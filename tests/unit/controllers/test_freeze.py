"""Tests of what reconcilers write during a freeze apart from the plans of services, and that the tests cover every such
write.
"""

import ast
import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import BENCHMARK
from ome_operator.controllers.base import Core
from ome_operator.controllers.benchmarkjob import BenchmarkJobReconciler
from ome_operator.controllers.nodemodels import NodeModelsReconciler
from ome_operator.controllers.sglang import SglangReconciler
from ome_operator.core.benchmarkjob.job import Images
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.reconcile.plan import Delete, Patch, Plan
from tests.support import parts, yamls
from tests.support.conditions import plain
from tests.support.fake_api import Call, FakeApi
from tests.support.parts import change_deps
from tests.unit.controllers import makers

WHEN = "2026-11-24T15:40:00Z by alice"
WRITES = frozenset({"apply", "create", "update", "patch_merge", "delete"})
KNOWN = {
    "agent/loop.py": {"apply", "create"},  # the record of its node; a freeze does not affect agents
    "controllers/bad_nodes.py": {"apply", "delete"},  # the faults of nodes; nothing while everything is frozen
    "controllers/benchmarkjob.py": {"apply"},  # the Job
    "controllers/events.py": {"create"},  # an Event that a Plan contains
    "controllers/former_exposure.py": {"delete"},  # Ingresses and HTTPRoutes of another exposure.kind; waits while frozen
    "controllers/inferenceservice/dry_run.py": {"apply", "create"},  # stores nothing
    "controllers/inferenceservice/executor.py": {"apply", "create", "patch_merge", "delete"},  # the contents of a Plan
    "controllers/nodemodels.py": {"apply"},  # labels of a node
    "controllers/pod_dry_runs.py": {"create"},  # a dry run, which stores nothing
    "controllers/policies.py": {"apply"},  # dry runs, which store nothing
    "controllers/conflicting_operators.py": {"create", "update"},  # Leases that state which class manages a namespace
    "controllers/sglang.py": {"apply"},  # the objects that are made from an object of sglang.ai
    "controllers/status_writer.py": {"apply"},  # a status
    "controllers/weights_gc.py": {"apply"},  # permission to remove weights
    "kube/leader_election.py": {"create", "update"},  # the Lease
}
"""Module -> the methods of the client with which it writes. Any other write has to call `ClusterCache.active_hold` first,
and needs a test here and a row in docs/observe-freeze.md.
"""
MAY = ("adopt", "cli")
"""Packages of commands, which users run with their own rights."""


def test_every_code_place_that_writes_is_listed() -> None:
    found: dict[str, set[str]] = {}
    for file in sorted((parts.ROOT / "ome_operator").rglob("*.py")):
        name = str(file.relative_to(parts.ROOT / "ome_operator"))
        if name.partition("/")[0] not in MAY and (calls := set(written(ast.parse(file.read_text())))):
            found[name] = calls
    assert found == KNOWN


def written(tree: ast.AST) -> Iterable[str]:
    """Yield the methods of a client with which a module writes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            of = node.func.value
            if "client" in (of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")):
                yield node.func.attr


def cluster(*seen: dict[str, Any], **settled: Any) -> EventHandler:
    made = EventHandler(ClusterCache(change_deps(Deps(), **settled)), lambda *_: None, lambda _: (), lambda _: ())
    for body in seen:
        made.handle_observed("Serving" if body["apiVersion"] == "sglang.ai/v1" else body["kind"], body)
    return made


HELD: list[tuple[dict[str, Any], str]] = [
    ({"frozen": WHEN}, "Frozen"),
    ({"observe": True}, "Observed"),
    ({"observe_namespaces": frozenset({"team"})}, "Observed"),
]


@pytest.mark.parametrize(("settled", "reason"), HELD)
async def test_frozen_benchmark_job_starts_no_job(settled: dict[str, Any], reason: str) -> None:
    body = yamls.benchmark("team", "speed")
    body["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    api = FakeApi({f"apply {BENCHMARK}/status": makers.storing(body)})
    passes = BenchmarkJobReconciler(cluster(body, **settled), api, makers.queue(), 600.0, makers.wall, Images("", ""))
    await passes.reconcile(Ref(BENCHMARK, "team", "speed"))
    assert [(call.kind, call.subresource) for call in api.calls] == [(BENCHMARK, "status")]
    (item,) = plain(api.bodies("apply")[0]["status"])
    assert item["reason"] == reason and "would start its Job" in item["message"]


@pytest.mark.parametrize(("settled", "reason"), HELD)
async def test_no_service_is_created_from_a_serving_during_a_freeze(settled: dict[str, Any], reason: str) -> None:
    metadata = {"name": "s", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    body = {
        "apiVersion": "sglang.ai/v1",
        "kind": "Serving",
        "metadata": metadata,
        "spec": {"baseModel": "m", "runtime": "r"},
    }
    api, model = FakeApi({"apply": makers.storing(body)}), yamls.model("m")
    runtime = yamls.runtime("r")
    for known in (model, runtime):
        known["metadata"] |= {"uid": known["kind"], "resourceVersion": "1"}
    await SglangReconciler(cluster(body, model, runtime, **settled), api, makers.queue(), 600.0, makers.wall).reconcile(
        Ref("Serving", "team", "s")
    )
    assert [(call.kind, call.subresource) for call in api.calls] == [("Serving", "status")]
    (item,) = plain(api.bodies("apply")[0]["status"])
    assert item["reason"] == reason and "would create InferenceService s" in item["message"]


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n", "resourceVersion": "1"}}
PLACE = "/mnt/models/.ome/0000000a"
RECORD = {
    "apiVersion": keys.API_VERSION,
    "kind": "NodeModels",
    "metadata": {"name": "n", "uid": "r", "resourceVersion": "1"},
    "spec": {"remove": [{"directory": PLACE, "offer": "then"}]},
    "status": {
        "models": [{"kind": "ClusterBaseModel", "name": "k2", "uri": "hf://a/b", "revision": "1", "state": "Ready"}],
        "unused": [{"directory": PLACE, "offer": "then"}],
    },
}


@pytest.mark.parametrize(
    ("settled", "applied"),
    [({}, ["Node"]), ({"frozen": WHEN}, ["Node", "NodeModels"]), ({"observe": True}, [])],
)
async def test_freeze_withdraws_removal_of_unused_weights(settled: dict[str, Any], applied: list[str]) -> None:
    """During a freeze, labels of nodes are written, because they only state which weights exist. The permission to remove
    unused weights is withdrawn.
    """
    api = FakeApi({"list_objects Pod": []})
    await NodeModelsReconciler(cluster(NODE, RECORD, **settled), api, makers.queue(), 600.0).reconcile(
        Ref("NodeModels", "", "n")
    )
    assert api.kinds("apply") == applied
    assert [body["spec"]["remove"] for body in api.bodies("apply") if body["kind"] == "NodeModels"] == [[]] * (
        len(applied) > 1
    )


SERVICE: dict[str, Any] = {**makers.BODY, "apiVersion": keys.API_VERSION, "kind": "InferenceService"}
MARK = Patch("Pod", "a", "uid-a", {"metadata": {"annotations": {keys.DRAINING: "now"}}})


@pytest.mark.parametrize("how", ["all", "single"])
async def test_running_reconciliation_stops_before_its_next_write_on_freeze(how: str) -> None:
    """A reconciliation that was decided before a freeze began stops before its next write."""
    seen, pressed = cluster(SERVICE), asyncio.Event()

    def press(call: Call) -> dict[str, Any]:
        pressed.set()
        if how == "all":
            seen.freeze(WHEN)
        else:
            notes = {"annotations": {keys.FREEZE: WHEN}, "resourceVersion": "6"}
            seen.handle_observed("InferenceService", {**SERVICE, "metadata": {**SERVICE["metadata"], **notes}})
        return {"metadata": {}}

    plan = Plan(
        status={"conditions": []},
        patch=(MARK,),
        delete=(Delete("Pod", "a", "uid-a"), Delete("StatefulSet", "b", "uid-b")),
    )
    api = FakeApi({"patch_merge": press, "apply": makers.storing(SERVICE)})
    passes = makers.services(seen, api, makers.queue(), Core(sync=lambda *_: plan))
    await passes.reconcile(Ref("InferenceService", "ns", "svc"))
    assert pressed.is_set()
    assert api.kinds("delete") == []


@pytest.mark.parametrize("held", [True, False])
async def test_service_with_invalid_spec_has_the_frozen_condition(held: bool) -> None:
    """A service with an invalid spec has the condition Frozen during a freeze, and not after the thaw."""
    told = [{"type": "Frozen", "status": "True", "reason": "Frozen", "message": "frozen"}]
    body = {**SERVICE, "spec": {"engine": 5}, "status": {"conditions": told}}
    seen = cluster(body, frozen=WHEN if held else "")
    api = FakeApi({"apply": makers.storing(body)})
    passes = makers.services(seen, api, makers.queue(), Core())
    await passes.reconcile(Ref("InferenceService", "ns", "svc"))
    said = {item["type"]: item for item in api.bodies("apply")[-1]["status"]["conditions"]}
    assert said["Ready"]["reason"] == "InvalidSpec" and ("Frozen" in said) is held


def test_all_objects_are_reconciled_when_a_freeze_begins() -> None:
    dirty: list[Ref] = []
    seen = EventHandler(ClusterCache(Deps()), lambda ref, _: dirty.append(ref), lambda _: (), lambda _: ())
    for body in (SERVICE, NODE, RECORD):
        seen.handle_observed(body["kind"], body)
    dirty.clear()
    seen.freeze(WHEN)
    assert set(dirty) == {Ref("InferenceService", "ns", "svc"), Ref("NodeModels", "", "n")}
    assert seen.cache.deps().frozen == WHEN
