"""Tests of the conditions Stalled and Reconciling, which are derived from the other conditions, for every reason and every
kind.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from ome_operator.core.benchmarkjob.status import unreadable_status
from ome_operator.core.reasons import (
    ANOTHER,
    COMPLETE,
    POD,
    READY,
    REASONS,
    ROLLED_OUT,
    Kstatus,
    Reason,
    ReasonedMessage,
    ReasonRecord,
)
from ome_operator.core.reconcile.sync import refuse_spec
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.conditions import Condition
from tests.support.conditions import summary
from tests.support.every_reason import bodies, body, expected
from tests.support.kstatus import kstatus

EARLY, LATE = datetime(2026, 1, 1), datetime(2026, 1, 2)
ALL = [pytest.param(*each, id=f"{each[0]}-{each[1]}-{number}") for number, each in enumerate(bodies())]


@pytest.mark.parametrize(("record", "type_", "found"), ALL)
def test_kstatus_result_of_every_reason_matches_the_table(record: ReasonRecord, type_: str, found: dict[str, Any]) -> None:
    ready = {one["type"]: one["status"] for one in found["status"]["conditions"]}.get(READY)
    if record == "NodesUnknown" and ready == "False":
        return  # waiting pods are the reason why a service is not Ready, and not this
    assert kstatus(found) == expected(record, type_)


def test_every_reason_and_condition_is_tested() -> None:
    tried = {(str(record), type_) for record, type_, _ in bodies()}
    assert tried == {(word, type_) for word, record in REASONS.items() for type_ in record.of if type_ != POD}


def test_only_reasons_that_need_an_edit_are_stalled() -> None:
    """A reason is Stalled only if nothing but an edit of the object can resolve it. A new reason is InProgress, unless
    its author has decided that Helm and Flux may roll back because of it.
    """
    assert {word for word, record in REASONS.items() if record.kstatus is Kstatus.FAILED} == {
        "InvalidSpec", "ModelNotNamed", "RuntimeNotNamed", "NoEngine", "RevisionNotFound", "RolledBack", "Empty",
        "NoDiscovery", "TrafficNotServed", "FormatNotServed", "PlaceNotServed", "RequestsFailed", "JobDeleted", "Failed",
    }  # fmt: skip


def test_unknown_kubernetes_reason_is_in_progress() -> None:
    assert (
        kstatus(body([Condition("EngineReady", False, "OOMKilled", "m"), Condition(READY, True, "Serving", "")]))
        == "InProgress"
    )


@pytest.mark.parametrize(
    ("conditions", "type_", "message"),
    [
        ([("EngineReady", "Creating", "e"), ("RolledOut", "Checking", "r"), ("Ready", "Creating", "m")], "Reconciling", "m"),
        ([("EngineReady", "NotReady", "e"), ("RolledOut", "WaitingForRoom", "r")], "Reconciling", "r"),
        ([("EngineReady", "Creating", "e"), ("RolledOut", "RolledBack", "r"), ("Ready", "Creating", "m")], "Stalled", "r"),
        ([("Preflight", "PreflightFindings", "p"), ("RouterIntact", "StrangerInRouter", "s")], "", ""),
        ([("Ready", "ScaledToZero", "z")], "", ""),
    ],
)
def test_summary_uses_gravest_condition(conditions: list[tuple[str, str, str]], type_: str, message: str) -> None:
    status = {"conditions": cond.format_conditions([Condition(one, False, *why) for one, *why in conditions], (), 1, EARLY)}
    assert summary(status) == type_
    assert not type_ or status["conditions"][0]["message"] == message


def test_foreign_operator_reason_takes_precedence_in_the_summary() -> None:
    stored = cond.format_conditions([Condition(READY, False, Reason.CREATING, "m")], (), 1, EARLY)
    said = [*stored, *cond.format_conditions([Condition(ANOTHER, True, Reason.FOREIGN_MANAGER, "two")], (), 1, EARLY)]
    found = cond.with_summary(said, stored, 1, LATE)
    assert (found[0]["type"], found[0]["reason"], found[0]["message"]) == ("Reconciling", "ForeignManager", "two")
    assert found[0]["lastTransitionTime"] == "2026-01-01T00:00:00Z", "the object was Reconciling before"


def test_summary_keeps_the_first_time_and_is_removed_when_ready() -> None:
    before: list[dict[str, Any]] = []
    for reason in (Reason.CREATING, Reason.PROGRESSING):
        before = cond.format_conditions([Condition(READY, False, reason, "m")], before, 1, EARLY if not before else LATE)
        assert (before[0]["reason"], before[0]["lastTransitionTime"]) == (reason, "2026-01-01T00:00:00Z")
    assert cond.with_summary(before, before, 1, LATE) == before
    (ready,) = cond.format_conditions([Condition(READY, True, Reason.SERVING, "m")], before, 1, LATE)
    assert ready["type"] == READY


def test_unreadable_object_is_stalled_and_its_stored_summary_is_dropped() -> None:
    stored: Mapping[str, Any] = {
        "conditions": cond.format_conditions([Condition(ROLLED_OUT, False, Reason.CHECKING, "m")], (), 1, EARLY)
    }
    status = refuse_spec(dict(stored), 2, Reason.INVALID_SPEC, "spec.x is wrong", LATE).status
    assert (summary(status), status["conditions"][0]["message"]) == ("Stalled", "spec.x is wrong")
    assert [one["type"] for one in status["conditions"]] == ["Stalled", ROLLED_OUT, READY]


def test_a_bug_of_the_operator_is_not_stalled() -> None:
    assert summary(refuse_spec({}, 1, Reason.INTERNAL_ERROR, "m", EARLY).status) == "Reconciling"


@pytest.mark.parametrize("reason", ["Failed", "OOMKilled", "BackoffLimitExceeded", "Running"])
def test_a_benchmark_job_that_has_failed_is_stalled_for_every_reason(reason: str) -> None:
    """A BenchmarkJob that has failed is Stalled for every reason. The reasons of a BenchmarkJob's pod and Job come from
    Kubernetes, so the table has no records for them.
    """
    stored = cond.format_conditions([Condition(COMPLETE, False, reason, "m")], (), 1, EARLY)
    status = unreadable_status({"state": "Failed", "conditions": stored}, 1, ReasonedMessage("InternalError", "m"), LATE)
    assert summary(status) == "Stalled"
    running = unreadable_status({"state": "Running", "conditions": stored}, 1, ReasonedMessage("InternalError", "m"), LATE)
    assert summary(running) == "Reconciling"
