"""Status of a BenchmarkJob: from its Job, and from what the last container of its pod left as its termination message."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import ValidationError

from ome_operator.api import BenchmarkJob
from ome_operator.api.benchmark import BenchmarkReport
from ome_operator.core.benchmarkjob.job import REPORT, RUN
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child
from ome_operator.core.reasons import ADVICE, COMPLETE, Reason, Why
from ome_operator.core.resolve.ignored_fields import ignored
from ome_operator.core.status import conditions as cond

COMPLETED, FAILED, RUNNING, PENDING = "Completed", "Failed", "Running", "Pending"


class PodProgress(NamedTuple):
    """How far the pod is."""

    running: bool = False
    """The benchmark runs, or has run."""
    reason: str = ""
    message: str = ""
    report: BenchmarkReport | None = None


def begun(status: Mapping[str, Any]) -> bool:
    """Whether the one Job of this object was made: it is never made again."""
    return bool(status.get("startedGeneration")) or over(status)


def over(status: Mapping[str, Any]) -> bool:
    """Whether nothing can come any more."""
    return status.get("state") in (COMPLETED, FAILED)


def step(pods: Iterable[Mapping[str, Any]]) -> PodProgress:
    """How far a Job's newest pod is, from its body."""
    body = max(pods, key=lambda one: str((one.get("metadata") or {}).get("creationTimestamp")), default=None)
    if body is None:
        return PodProgress()
    status = body.get("status") or {}
    states = {
        one.get("name"): one.get("state") or {}
        for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    }
    ran = states.get(RUN, {})
    reason, message = from_api.why_not_ready(body, {one.get("type"): one for one in status.get("conditions") or ()})
    said = (states.get(REPORT, {}).get("terminated") or {}).get("message") or ""
    return PodProgress("running" in ran or "terminated" in ran, reason, message, _report(said))


def _report(said: str) -> BenchmarkReport | None:
    """The summary; None where the container died before it wrote one, and its log stands there instead."""
    try:
        return BenchmarkReport.model_validate_json(said, by_alias=True, by_name=False)
    except ValidationError:
        return None


def benchmark_status(
    job: BenchmarkJob, made: Child | None, pods: Iterable[Mapping[str, Any]], why: Why, now: datetime
) -> dict[str, Any]:
    """The whole status. `made`: the Job; `pods`: bodies of its pods; `why`: why one is missing."""
    before = job.status
    if over(before):
        shared = {name: before[name] for name in _LASTING if before.get(name) is not None}
        ended = [one for one in before.get("conditions") or () if one.get("type") == COMPLETE]
        return _whole(job, shared, ended, now)
    if made is None and begun(before):
        said = "its Job was deleted before it had ended: apply the BenchmarkJob again under a new name, or delete it first"
        return _ended(job, {"startedGeneration": before.get("startedGeneration")}, FAILED, Reason.JOB_DELETED, said, now)
    if made is None:
        reason, said = why if why.reason else (Reason.CREATING, "its Job is about to be made")
        return _status(job, {"state": PENDING}, False, reason, said, now)
    return _of_job(job, made, step(pods), why, now)


_LASTING = ("state", "startTime", "completionTime", "failureMessage", "details", "startedGeneration", "report")


def _of_job(job: BenchmarkJob, made: Child, far: PodProgress, why: Why, now: datetime) -> dict[str, Any]:
    content = made.content or {}
    status = content.get("status") or {}
    shared: dict[str, Any] = {"startedGeneration": content.get("generation") or job.generation}
    if started := status.get("startTime"):
        shared["startTime"] = started
    done = {one.get("type"): one for one in status.get("conditions") or () if one.get("status") == "True"}
    last = done.get("Complete") or done.get("Failed")
    if last is None:
        waits = why if why.reason else (far.reason or Reason.CREATING, far.message or "its pod starts")
        reason, said = (Reason.RUNNING, "requests are being sent") if far.running else waits
        return _status(job, {**shared, "state": RUNNING if far.running else PENDING}, False, reason, said, now)
    shared["completionTime"] = status.get("completionTime") or last.get("lastTransitionTime")
    report = far.report
    if report is not None:
        shared["report"] = report.dump()
    if "Complete" in done and (report is None or not report.failed):
        said = _summary(report) if report else "its pod is gone, so the summary is: look into the output location"
        return _ended(job, shared, COMPLETED, Reason.COMPLETED, said, now)
    if report is not None:
        return _ended(
            job, shared, FAILED, Reason.REQUESTS_FAILED, f"{_summary(report)}; the first error: {report.error}", now
        )
    said = far.message or last.get("message") or ""
    return _ended(job, shared, FAILED, far.reason or last.get("reason") or Reason.FAILED, said, now)


def _summary(report: BenchmarkReport) -> str:
    counts = f"{report.requests} requests answered, {report.failed or 0} failed"
    cut = f", {report.unfinished} not finished in time" if report.unfinished else ""
    return f"{counts}{cut}; results: {report.output or 'nowhere'}"


def _ended(
    job: BenchmarkJob, shared: Mapping[str, Any], state: str, reason: str, said: str, now: datetime
) -> dict[str, Any]:
    words = {"details": said} if state == COMPLETED else {"failureMessage": said}
    return _status(job, {**shared, "state": state, **words}, state == COMPLETED, reason, said, now)


def _status(
    job: BenchmarkJob, shared: Mapping[str, Any], ended_well: bool, reason: str, said: str, now: datetime
) -> dict[str, Any]:
    one = cond.Condition(COMPLETE, ended_well, reason, said)
    return _whole(job, shared, cond.stamp([one], job.status.get("conditions") or (), job.generation, now), now)


def _whole(job: BenchmarkJob, shared: Mapping[str, Any], conditions: list[dict[str, Any]], now: datetime) -> dict[str, Any]:
    """With a word on an edit that came too late, and on what has no effect."""
    ran = shared.get("startedGeneration")
    known = cond.advice(ignored(job))
    if ran and ran != job.generation:
        said = "spec was edited after the job had started, and a job runs once: delete it and apply it again"
        known = [
            cond.Condition(ADVICE, True, Reason.EDITED_AFTER_START, "; ".join((said, *(told.message for told in known))))
        ]
    conditions = [*conditions, *cond.stamp(known, job.status.get("conditions") or (), job.generation, now)]
    return {**shared, "observedGeneration": job.generation, "conditions": conditions}


def unreadable(status: Mapping[str, Any], generation: int, why: Why, now: datetime) -> dict[str, Any]:
    """Of a BenchmarkJob that cannot be read or handled, for this reason; what ran before the edit stays."""
    shared = {name: status[name] for name in _LASTING if status.get(name) is not None} or {"state": PENDING}
    stored = status.get("conditions") or ()
    if over(status):
        return {**shared, "observedGeneration": generation, "conditions": [*stored]}
    one = cond.Condition(COMPLETE, False, *why)
    return {**shared, "observedGeneration": generation, "conditions": cond.stamp([one], stored, generation, now)}
