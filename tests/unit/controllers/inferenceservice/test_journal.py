"""Tests that the operator's log states what it did to a service, and contains no warning that no user can act on."""

import logging

import pytest

from ome_operator.controllers.inferenceservice import journal
from ome_operator.core.observed.objects import Refusal
from ome_operator.core.reconcile.plan import Apply, Delete, Plan
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers
from tests.unit.controllers.inferenceservice.test_reconciler import SERVICE, applies, passes


def condition(kind: str, status: str, reason: str, message: str = "why") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_log_describes_writes_by_kind_of_workload() -> None:
    did = journal.Deeds({("made", "StatefulSet"): 8, ("made", "Service"): 3, ("deleted", "Pod"): 1})
    assert journal.describe_writes(did) == "made 8 StatefulSets, deleted 1 Pod"
    assert journal.describe_writes(journal.Deeds({("made", "Service"): 3})) == ""


def test_condition_changes_list_changed_statuses_and_reasons() -> None:
    before = [condition("Ready", "False", "Starting", "1/2"), condition("EngineReady", "False", "Starting")]
    counts = [condition("Ready", "False", "Starting", "2/2"), condition("EngineReady", "True", "Ready")]
    assert journal.condition_changes(before, counts) == []
    after = [condition("Ready", "True", "Serving", "http://x serves"), condition("RolledOut", "True", "Complete")]
    assert journal.condition_changes(before, after) == [
        "Ready=True Serving: http://x serves",
        "RolledOut=True Complete: why",
    ]


async def test_reconciliation_logs_each_change_once(caplog: pytest.LogCaptureFixture) -> None:
    """A reconciliation logs each change once. The next one, which finds all changes done, logs nothing."""
    caplog.set_level(logging.INFO)
    said = {"conditions": [condition("Ready", "True", "Serving", "http://x serves")]}
    plan = Plan(apply=applies("StatefulSet", "Deployment"), status=said)
    made, _ = passes(FakeApi(), plan, lambda: 100.0)
    await made.reconcile(SERVICE)
    told = [line for line in caplog.messages if line.startswith("ns/svc: ")]
    assert told == ["ns/svc: made 1 StatefulSet, made 1 Deployment", "ns/svc: Ready=True Serving: http://x serves"]


async def test_log_counts_only_created_and_deleted_objects() -> None:
    (there,) = applies("StatefulSet")
    plan = Plan(
        apply=(Apply(there.manifest, "uid-of-StatefulSet"),),
        delete=(Delete("Deployment", "old", "uid-of-Deployment"),),
        status={},
    )
    running = makers.execution()
    await makers.executor(FakeApi({"delete": {"metadata": {}}}), makers.cluster()).execute_effects(plan, running)
    assert journal.describe_writes(running.result.write_counts) == "deleted 1 Deployment"


@pytest.mark.parametrize(
    ("message", "level"),
    [
        ("quota exceeded", logging.WARNING),
        ("unable to create new content in namespace ns because it is being terminated", logging.DEBUG),
    ],
)
def test_refused_writes_in_a_terminating_namespace_cause_no_warning(
    message: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """While a namespace is deleted, refused writes cause no warning in the log. The service is deleted with the namespace,
    and until then each of its objects is refused.
    """
    caplog.set_level(logging.DEBUG)
    makers.execution().record_refusal(("Service", "svc"), Refusal("Forbidden", message), "hash")
    assert [record.levelno for record in caplog.records] == [level]
