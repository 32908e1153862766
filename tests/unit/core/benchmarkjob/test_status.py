"""Tests of the status of a BenchmarkJob, given its Job."""

import json
from datetime import datetime
from typing import Any

import pytest

from ome_operator.core.benchmarkjob.status import _report, benchmark_status, has_job, is_final, unreadable_status
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child
from ome_operator.core.reasons import NOTHING, ReasonedMessage
from tests.support.conditions import plain
from tests.unit.core.benchmarkjob import jobs

NOW = datetime(2026, 1, 1)
STARTED, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
GOOD = {"scenario": "D(1,1)", "concurrency": 4, "requests": 10, "failed": 0, "output": "/out", "ttft": "12.0"}


def made(*conditions: str, generation: int = jobs.GENERATION) -> Child:
    """Return a Job whose conditions of these types are True."""
    shared = {"status": "True", "lastTransitionTime": ENDED, "message": "why"}
    status = {"startTime": STARTED, "conditions": [{"type": one, **shared} for one in conditions]}
    metadata = {"name": "benchmark-speed", "uid": "j", "annotations": {"ome.io/generation": str(generation)}}
    return from_api.child("Job", {"metadata": metadata, "status": status})


def pod(report: dict[str, Any] | str | None = None, run: dict[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    """Return the pod of the Job. `report` is the termination message of the last container, and `run` the state of the
    benchmark's container.
    """
    said = report if isinstance(report, str) else json.dumps(report)
    ended = [] if report is None else [{"name": "report", "state": {"terminated": {"exitCode": code, "message": said}}}]
    first = [] if run is None else [{"name": "run", "state": run}]
    phase = "Pending" if report is None else "Failed" if code else "Succeeded"
    return {
        "metadata": {"name": "p", "creationTimestamp": STARTED},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "initContainerStatuses": first, "containerStatuses": ended},
    }


def said(job: Any, child: Child | None = None, *pods: dict[str, Any], why: ReasonedMessage = NOTHING) -> dict[str, Any]:
    """Return the status of a BenchmarkJob, given its Job and the pods of that Job."""
    return benchmark_status(job, child, pods, why, NOW)


def complete(status: dict[str, Any]) -> tuple[str, str]:
    """Return the status and the reason of the condition Complete."""
    return next((one["status"], one["reason"]) for one in status["conditions"] if one["type"] == "Complete")


def test_status_is_pending_with_reason_while_the_service_is_not_ready() -> None:
    found = said(jobs.job(), why=ReasonedMessage("ServiceNotReady", "InferenceService team/svc is not Ready"))
    assert (found["state"], complete(found)) == ("Pending", ("False", "ServiceNotReady"))
    assert not has_job(found)


@pytest.mark.parametrize(
    ("pods", "state", "reason"),
    [
        ((), "Pending", "Creating"),
        ((pod(run={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),), "Pending", "ImagePullBackOff"),
        ((pod(run={"running": {}}),), "Running", "Running"),
    ],
)
def test_benchmark_status_before_job_ends(pods: tuple[dict[str, Any], ...], state: str, reason: str) -> None:
    found = said(jobs.job(), made(), *pods)
    assert (found["state"], complete(found), found["startTime"]) == (state, ("False", reason), STARTED)
    assert has_job(found) and not is_final(found)


def test_status_reports_refused_creation_of_pods() -> None:
    found = said(jobs.job(), made(), why=ReasonedMessage("PodsRefused", "violates PodSecurity"))
    assert (found["state"], complete(found)) == ("Pending", ("False", "PodsRefused"))


def test_benchmark_status_of_completed_job() -> None:
    found = said(jobs.job(), made("Complete"), pod(GOOD))
    assert (found["state"], complete(found), found["completionTime"]) == ("Completed", ("True", "Completed"), ENDED)
    assert found["report"]["ttft"] == "12.0"
    assert found["details"] == "10 requests answered, 0 failed; results: /out"


def test_failed_requests_set_state_failed() -> None:
    bad = {**GOOD, "failed": 2, "error": "Bad Gateway"}
    found = said(jobs.job(), made("Failed"), pod(bad, code=1))
    assert (found["state"], complete(found)) == ("Failed", ("False", "RequestsFailed"))
    assert found["failureMessage"].endswith("2 failed; results: /out; the first error: Bad Gateway")
    assert said(jobs.job(), made("Complete"), pod(bad))["state"] == "Failed", "whatever the exit code is"


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ((pod(run={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}) | {"x": 1},), "code 137 (OOMKilled)"),
        ((pod("spec.outputLocation: /ome/output: Permission denied", code=1),), "Permission denied"),
        ((), "why"),
    ],
)
def test_a_job_that_could_not_report(pods: tuple[dict[str, Any], ...], words: str) -> None:
    found = said(jobs.job(), made("Failed"), *pods)
    assert found["state"] == "Failed"
    assert words in found["failureMessage"]
    assert "report" not in found


def test_final_status_is_kept_after_deletion_of_the_job() -> None:
    before = said(jobs.job(), made("Complete"), pod(GOOD))
    assert said(jobs.job(before)) == before
    assert said(jobs.job(before), made("Complete")) == before, "without reading pods"


def test_deleted_job_is_not_created_again() -> None:
    before = said(jobs.job(), made(), pod(run={"running": {}}))
    found = said(jobs.job(before))
    assert (found["state"], complete(found)) == ("Failed", ("False", "JobDeleted"))


@pytest.mark.parametrize("ended", [(), ("Complete",)])
def test_spec_edit_after_job_start_is_reported_as_advice(ended: tuple[str, ...]) -> None:
    pods = (pod(GOOD),) if ended else (pod(run={"running": {}}),)
    found = said(jobs.job(), made(*ended, generation=2), *pods)
    advice = [one for one in found["conditions"] if one["type"] == "Advice"]
    assert [one["reason"] for one in advice] == ["EditedAfterStart"]
    assert said(jobs.job(found), made(*ended, generation=2), *pods) == found
    assert len(plain(said(jobs.job(), made(*ended), *pods))) == 1


def test_an_object_that_cannot_be_read() -> None:
    found = unreadable_status({}, 4, ReasonedMessage("InvalidSpec", "spec.task is missing: set it"), NOW)
    assert (found["state"], complete(found)) == ("Pending", ("False", "InvalidSpec"))
    ended = said(jobs.job(), made("Complete"), pod(GOOD))
    after = unreadable_status(ended, 4, ReasonedMessage("InvalidSpec", "spec.task is missing: set it"), NOW)
    assert (after["state"], complete(after), after["report"]) == ("Completed", ("True", "Completed"), ended["report"])


@pytest.mark.parametrize("number", [2**63, 10**400, -(2**63)])
def test_report_with_number_outside_api_limits_is_ignored(number: int) -> None:
    """A report that contains a number which the API server refuses does not count. A status with such a number would be
    refused again and again.
    """
    row = {"scenario": "D(1,1)", "concurrency": 1, "requests": 1}
    for text in ({**row, "requests": number}, {**row, "results": [{**row, "failed": number}]}):
        assert _report(json.dumps(text)) is None
    assert _report(json.dumps({**row, "results": [row]})) is not None
