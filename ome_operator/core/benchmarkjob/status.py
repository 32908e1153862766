"""Build the status of a BenchmarkJob from its Job and from the termination message of the pod's last container."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import ValidationError

from ome_operator.api import BenchmarkJob
from ome_operator.api.benchmark import BenchmarkReport
from ome_operator.core.benchmarkjob.job import REPORT, RUN
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child
from ome_operator.core.reasons import ADVICE, COMPLETE, Reason, ReasonedMessage
from ome_operator.core.resolve.ignored_fields import ignored_field_messages
from ome_operator.core.status import conditions as cond
from ome_operator.util.wording import count

LARGEST = 2**63
"""Limit for integers in the status: they have to be below this number, because the API server rejects larger integers.
The numbers of requests come from a pod of the tenant, so they may be arbitrarily large."""
COMPLETED, FAILED, RUNNING, PENDING = "Completed", "Failed", "Running", "Pending"


class PodProgress(NamedTuple):
    """The state of the benchmark's pod."""

    running: bool = False
    """Whether the container that runs the benchmark is running, or has ended."""
    reason: str = ""
    message: str = ""
    report: BenchmarkReport | None = None


def has_job(status: Mapping[str, Any]) -> bool:
    """Return whether the Job of this BenchmarkJob was created. A Job is never created again."""
    return bool(status.get("startedGeneration")) or is_final(status)


def is_final(status: Mapping[str, Any]) -> bool:
    """Return whether a status is final: the benchmark is complete or has failed."""
    return status.get("state") in (COMPLETED, FAILED)


def pod_progress(pods: Iterable[Mapping[str, Any]]) -> PodProgress:
    """Return the state of a Job's newest pod, given the pods as JSON."""
    body = max(pods, key=lambda item: str((item.get("metadata") or {}).get("creationTimestamp")), default=None)
    if body is None:
        return PodProgress()
    status = body.get("status") or {}
    states = {
        item.get("name"): item.get("state") or {}
        for item in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    }
    run_state = states.get(RUN, {})
    reason, message = from_api.why_not_ready(body, {item.get("type"): item for item in status.get("conditions") or ()})
    termination_message = (states.get(REPORT, {}).get("terminated") or {}).get("message") or ""
    return PodProgress("running" in run_state or "terminated" in run_state, reason, message, _report(termination_message))


def _report(text: str) -> BenchmarkReport | None:
    """Return the summary of the results, parsed from the termination message of a container. Return None if the message
    contains log lines, because the container ended before it wrote a summary, or if a number in the summary is too large for
    the API server.
    """
    try:
        found = BenchmarkReport.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError:
        return None
    rows = (found, *(found.results or ()))
    numbers = (number for row in rows for number in (row.concurrency, row.requests, row.failed, row.unfinished))
    return found if all(abs(number or 0) < LARGEST for number in numbers) else None


def benchmark_status(
    job: BenchmarkJob, child: Child | None, pods: Iterable[Mapping[str, Any]], why: ReasonedMessage, now: datetime
) -> dict[str, Any]:
    """Return the complete status of a BenchmarkJob. `child` is its Job; `pods` are the pods of this Job as JSON. If `child`
    is None, `why` is the reason why there is no Job.
    """
    before = job.status
    if is_final(before):
        shared = {name: before[name] for name in _LASTING if before.get(name) is not None}
        ended = [condition for condition in before.get("conditions") or () if condition.get("type") == COMPLETE]
        return _whole(job, shared, ended, now)
    if child is None and has_job(before):
        message = (
            "the Job of this BenchmarkJob was deleted before it ended: delete the BenchmarkJob and apply it again, "
            "or apply it under a new name"
        )
        return _ended(job, {"startedGeneration": before.get("startedGeneration")}, FAILED, Reason.JOB_DELETED, message, now)
    if child is None:
        reason, message = why if why.reason else (Reason.CREATING, "the Job of this BenchmarkJob is about to be created")
        return _status(job, {"state": PENDING}, False, reason, message, now)
    return _of_job(job, child, pod_progress(pods), why, now)


_LASTING = ("state", "startTime", "completionTime", "failureMessage", "details", "startedGeneration", "report")


def _of_job(job: BenchmarkJob, child: Child, progress: PodProgress, why: ReasonedMessage, now: datetime) -> dict[str, Any]:
    content = child.content or {}
    status = content.get("status") or {}
    shared: dict[str, Any] = {"startedGeneration": content.get("generation") or job.generation}
    if started := status.get("startTime"):
        shared["startTime"] = started
    done = {
        condition.get("type"): condition for condition in status.get("conditions") or () if condition.get("status") == "True"
    }
    last = done.get("Complete") or done.get("Failed")
    if last is None:
        waits = (
            why
            if why.reason
            else (progress.reason or Reason.CREATING, progress.message or ("the pod of the Job is starting"))
        )
        reason, message = (Reason.RUNNING, "requests are being sent") if progress.running else waits
        return _status(job, {**shared, "state": RUNNING if progress.running else PENDING}, False, reason, message, now)
    shared["completionTime"] = status.get("completionTime") or last.get("lastTransitionTime")
    report = progress.report
    if report is not None:
        shared["report"] = report.dump()
    if "Complete" in done and (report is None or not report.failed):
        message = (
            _summary(report)
            if report
            else (
                "the pod of the Job was deleted, so the summary of the results is lost: read the results in the output "
                "location of the BenchmarkJob"
            )
        )
        return _ended(job, shared, COMPLETED, Reason.COMPLETED, message, now)
    if report is not None:
        return _ended(
            job, shared, FAILED, Reason.REQUESTS_FAILED, f"{_summary(report)}; the first error: {report.error}", now
        )
    message = progress.message or last.get("message") or ""
    return _ended(job, shared, FAILED, progress.reason or last.get("reason") or Reason.FAILED, message, now)


def _summary(report: BenchmarkReport) -> str:
    counts = f"{count(report.requests, 'request')} answered, {report.failed or 0} failed"
    cut = f", {report.unfinished} not finished in time" if report.unfinished else ""
    return f"{counts}{cut}; results: {report.output or 'nowhere'}"


def _ended(
    job: BenchmarkJob, shared: Mapping[str, Any], state: str, reason: str, message: str, now: datetime
) -> dict[str, Any]:
    texts = {"details": message} if state == COMPLETED else {"failureMessage": message}
    return _status(job, {**shared, "state": state, **texts}, state == COMPLETED, reason, message, now)


def _status(
    job: BenchmarkJob, shared: Mapping[str, Any], ended_well: bool, reason: str, message: str, now: datetime
) -> dict[str, Any]:
    condition = cond.Condition(COMPLETE, ended_well, reason, message)
    return _whole(
        job, shared, cond.format_conditions([condition], job.status.get("conditions") or (), job.generation, now), now
    )


def _whole(job: BenchmarkJob, shared: Mapping[str, Any], conditions: list[dict[str, Any]], now: datetime) -> dict[str, Any]:
    """Return the complete status of a BenchmarkJob: the fields in `shared`, and `conditions` with a summary and with advice
    about an edit after the start and about fields without effect.
    """
    started = shared.get("startedGeneration")
    advice = cond.advice(ignored_field_messages(job))
    if started and started != job.generation:
        message = (
            "spec was edited after the Job had started, but a BenchmarkJob runs only once, so the edit has no effect: "
            "delete the BenchmarkJob and apply it again"
        )
        advice = [
            cond.Condition(
                ADVICE, True, Reason.EDITED_AFTER_START, "; ".join((message, *(condition.message for condition in advice)))
            )
        ]
    before = job.status.get("conditions") or ()
    conditions = cond.with_summary(
        [*conditions, *cond.format_conditions(advice, before, job.generation, now)],
        before,
        job.generation,
        now,
        ended=is_final(shared),
    )
    return {**shared, "observedGeneration": job.generation, "conditions": conditions}


def unreadable_status(status: Mapping[str, Any], generation: int, why: ReasonedMessage, now: datetime) -> dict[str, Any]:
    """Return the status of a BenchmarkJob whose spec is invalid, or for which the operator raised an error. `why` is the
    reason. Results of a benchmark that ran before the spec was edited stay in the status. `generation` is the generation of
    the BenchmarkJob.
    """
    shared = {name: status[name] for name in _LASTING if status.get(name) is not None} or {"state": PENDING}
    stored = status.get("conditions") or ()
    if is_final(status):
        kept = cond.with_summary(stored, stored, generation, now, ended=True)
        return {**shared, "observedGeneration": generation, "conditions": kept}
    condition = cond.Condition(COMPLETE, False, *why)
    return {
        **shared,
        "observedGeneration": generation,
        "conditions": cond.format_conditions([condition], stored, generation, now),
    }
