"""Tests of the condition Ready for every reason, and of all code that reads the condition."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.reasons import CONDITION, ORDER, READY, REASONS, ROLLED_OUT, SCALED, ReasonRecord
from ome_operator.core.reasons.catalog import CatalogReasons
from ome_operator.core.status.conditions import Condition
from ome_operator.core.status.progress import RoleProgress, RoleProgressSpec
from ome_operator.core.status.service import Report, status
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.status.test_service import BASE, DONE, OUT, far

ROOT = Path(__file__).parents[4]
STANDS_IN_READY = {
    "InvalidSpec": "only if nothing serves; otherwise in RolledOut (refuse_spec)",
    "InternalError": "only if nothing serves; otherwise in RolledOut (refuse_spec)",
    "FormerShape": "the operator cannot determine whether StatefulSets of that form serve",
    "ScaledToZero": "a role has no groups",
    "Creating": "no revision has a ready group of each role yet",
    "NameTaken": "the Service or a permission of the router does not exist, because another object has its name",
    "Waiting": "the same, and the other object belongs to a former service of this name",
    "Invalid": "the Service or a permission of the router does not exist; if it exists, in RolledOut",
    "Forbidden": "as Invalid",
    "Conflict": "as Invalid",
    "ServerError": "as Invalid",
    "Observed": "the Service does not exist, and is not created while the service is observed",
    "BaseModelNotFound": "of FineTunedWeights and objects of sglang.ai",
    "NoRuntimeFits": "of objects of sglang.ai",
    "InvalidPod": "of runtimes",
    "NodesUnknown": "of models",
    "NotSeen": "no operator has processed the object yet; the default of the CRD",
    "Progressing": "of RoleScales",
}
"""For each reason that lists Ready among its conditions: why a service with this reason in Ready does not serve. Any other
reason appears in Ready only because Ready repeats another condition while nothing serves.
"""
OF_OTHER_KINDS = {each.word for each in vars(CatalogReasons).values() if isinstance(each, ReasonRecord) and READY in each.of}
"""Reasons of Ready of models, runtimes and accelerator classes."""


def test_every_reason_specific_to_ready_has_an_explanation() -> None:
    own = {word for word, record in REASONS.items() if READY in record.of and not record.is_good}
    assert own == STANDS_IN_READY.keys() | OF_OTHER_KINDS and all(STANDS_IN_READY.values())


CARRIED = [
    pytest.param(record, type_, id=f"{record.word}-{type_}")
    for record in REASONS.values()
    for type_ in record.of
    if type_ in ORDER and type_ != READY and not record.is_good
]


def report(record: ReasonRecord, type_: str, **more: Any) -> Report:
    """Return the report about a service with one engine of two groups and a router. One condition is False with this
    reason.
    """
    found = Condition(type_, False, record, "why")
    where: dict[str, Any] = {"rollout": OUT}
    if type_ == ROLLED_OUT:
        where["rollout"] = found
    elif type_ in CONDITION.values():
        component = next(name for name, condition in CONDITION.items() if condition == type_)
        where["progress"] = tuple(
            _short(one, record) if one.role.component == component else one for one in _roles(component)
        )
    elif type_ == "ModelReady":
        where["model"] = found
    return BASE.__class__(**{**vars(BASE), **where, **more})


def _roles(component: str) -> tuple[RoleProgress, ...]:
    return (*DONE, *([far(keys.DECODER, 1)] if component == keys.DECODER else []))


def _short(one: RoleProgress, record: ReasonRecord) -> RoleProgress:
    spec: RoleProgressSpec = one.role._replace(groups=2)
    return one._replace(role=spec, ready_groups=1, ready_pods=1, reason=record, message="why", missing=1)


@pytest.mark.parametrize(("record", "type_"), CARRIED)
def test_reason_of_another_condition_does_not_make_a_serving_service_unready(record: ReasonRecord, type_: str) -> None:
    told = {each["type"]: each for each in status(report(record, type_, serves=True))["conditions"]}
    assert (told[READY]["status"], told[READY]["reason"]) == ("True", "Serving")
    if type_ in CONDITION.values():
        assert (told[SCALED]["status"], told[SCALED]["reason"]) == ("False", record)
    down = {each["type"]: each for each in status(report(record, type_, serves=False))["conditions"]}
    assert down[READY]["status"] == "False"


def test_service_with_one_group_per_role_becomes_ready_and_scaled_together() -> None:
    """A service with one group of each role is Ready and Scaled in the same reconciliation, so the condition Scaled causes
    no additional write of the status while the service starts.
    """
    world = World(Shape(decoders=1).service(), Shape(decoders=1).deps(), 1)
    told = []
    world.watcher = lambda plan: told.append({each["type"]: each["status"] for each in plan.status["conditions"]})
    world.settle()
    assert {(each["Ready"], each.get("Scaled")) for each in told} == {("False", "False"), ("True", "True")}


# --- everything that reads the condition Ready ---------------------------------------------------------------------------

READERS = {
    "ome_operator/controllers/inferenceservice/foreign_objects.py": "looks for objects of others while a service is Ready",
    "ome_operator/api/kinds.py": "columns: Ready and its reason; Scaled and Rollout have columns of their own",
    "ome_operator/cli/ui/views.py": "since when: of Scaled while a Ready service lacks groups",
    "ome_operator/controllers/inferenceservice/journal.py": "logs each change of Ready, Scaled and RolledOut",
    "ome_operator/controllers/inferenceservice/reconciler.py": "holds back Ready True until the Service is stored",
    "ome_operator/controllers/placement/gangs.py": "names services that serve among the holders of a node",
    "ome_operator/core/benchmarkjob/target.py": "waits for Ready and Scaled",
    "ome_operator/core/freeze/plan_filter.py": "sets it: observed, and no Service leads to the pods",
    "ome_operator/core/reconcile/desired.py": "sets that of RoleScales",
    "ome_operator/core/reconcile/report.py": "sets it: the Service or a permission does not exist",
    "ome_operator/core/reconcile/sync.py": "sets it: FormerShape, InvalidSpec, InternalError",
    "ome_operator/core/service_metrics.py": "ome_service_ready; ome_service_complete also needs Scaled",
    "ome_operator/core/sglang/status.py": "copies all conditions of the InferenceService",
    "ome_operator/core/status/conditions.py": "its reason comes first in Stalled and Reconciling",
    "ome_operator/core/status/service.py": "sets it",
    "ome_operator/core/status/virtual.py": "sets it: served elsewhere",
    "ome_operator/core/waves/shared_edits.py": "a service is complete since Ready and Scaled are True, and RolledOut is",
    "ome_operator/describe/argo_cd.py": "examples of a status",
    "ome_operator/describe/cluster.py": "since when a service waits: of Scaled, if it exists",
    "ome_operator/describe/diagnosis.py": "which events are over: those before Ready and Scaled became True",
    "ome_operator/describe/outcome.py": "problems of a forecast, in which nothing serves",
    "ome_operator/describe/readiness.py": "a Ready service whose pods contradict it, while no operator works",
    "ome_local/demo/view.py": "the demo waits for Ready and Scaled",
    "bench/alone.py": "steady state: Scaled",
    "bench/life.py": "waits for Ready of services whose pods all become ready",
    "bench/watching.py": "a service counts as up with Ready and Scaled",
}  # fmt: skip
"""File -> what it reads of the condition Ready of a service."""
OTHERS = {
    "bench/badnodes.py", "bench/crowd.py", "bench/fleet.py", "bench/informers.py", "bench/labelled.py", "bench/pods.py",
    "bench/starting.py",
    "ome_local/cli.py",
    "ome_local/demo/plan.py", "ome_operator/api/model.py", "ome_operator/api/nodemodels.py",
    "ome_operator/core/catalog/status.py", "ome_operator/core/observed/failures.py",
    "ome_operator/core/observed/from_api.py", "ome_operator/core/observed/nodes.py",
    "ome_operator/core/reasons/__init__.py", "ome_operator/core/reasons/catalog.py",
    "ome_operator/core/reasons/conditions.py", "ome_operator/core/reasons/good.py", "ome_operator/core/reasons/inputs.py",
    "ome_operator/core/reasons/pods.py", "ome_operator/core/reasons/record.py", "ome_operator/core/reasons/rollouts.py",
    "ome_operator/core/recovery/record.py",
    "ome_operator/describe/unknown_weights.py", "ome_operator/keys.py", "ome_operator/registry/pods.py",
}  # fmt: skip
"""Files in which the word "Ready" does not mean the condition of a service. It is the condition of a pod, node, model,
group or ScaledObject, or stands in a text of the demo or of a reason.
"""


def found() -> Iterator[str]:
    """Yield the files of the source tree that name the condition: by the constant of core/reasons, or as a string."""
    for folder in ("ome_operator", "ome_local", "bench", "release", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            imported = any(
                isinstance(node, ast.ImportFrom)
                and (node.module or "").startswith("ome_operator.core.reasons")
                and any(name.name == "READY" for name in node.names)
                for node in ast.walk(tree)
            )
            said = any(isinstance(node, ast.Constant) and node.value == "Ready" for node in ast.walk(tree))
            if imported or said:
                yield str(path.relative_to(ROOT))


def test_every_code_place_that_reads_ready_is_listed() -> None:
    assert {*found()} == READERS.keys() | OTHERS
    assert all(READERS.values())


def test_documented_wait_commands_use_existing_conditions() -> None:
    """Examples in pages wait for a condition that exists. `kubectl wait isvc` waits for Scaled where all groups
    are meant.
    """
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    waits = re.findall(r"kubectl wait isvc\S* [^`]*?--for=condition=(\w+)", "".join(page.read_text() for page in pages))
    assert waits and {*waits} <= {READY, SCALED}
