"""Build the status of an InferenceService: one condition per component, each with a reason and what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import (
    CONDITION,
    DRIFTED,
    MODEL_READY,
    MOVED,
    ORDER,
    READY,
    RECOVERED,
    ROLLED_OUT,
    RUNTIME_READY,
    SCALED,
    Reason,
    record_of,
)
from ome_operator.core.reconcile.plan import Event
from ome_operator.core.resolve import new_scaling
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.loaded_model import loaded_model
from ome_operator.core.status.progress import RoleProgress


@dataclass(frozen=True)
class Report:
    """All values from which the status of a service is built."""

    generation: int
    before: Mapping[str, Any]
    """The status of the service as it is stored."""
    now: datetime
    progress: tuple[RoleProgress, ...] = ()
    problems: tuple[Problem, ...] = ()
    advice: tuple[str, ...] = ()
    advice_reason: str = Reason.NO_EFFECT
    """Reason of the condition Advice: the worst severity among `advice`."""
    model: cond.Condition | None = None
    """Condition that states how many nodes have the model; None if a condition about a problem replaces it."""
    served: str = ""
    """Names of the models of the existing revisions, as the status states them (`loaded_model.model_names`)."""
    runtime: str = ""
    url: str = ""
    revision: str = ""
    serving: tuple[str, ...] = ()
    """Revisions that have pods or workloads, including the target."""
    rollout: cond.Condition | None = None
    reached: tuple[Mapping[str, Any], ...] = ()
    """Edits of shared objects with which the service has become complete, in the form of the status."""
    hold: Mapping[str, Any] = field(default_factory=dict)
    """Reason why the rollout is held, in the form of the status; empty if it is not held."""
    updated: Mapping[str, int] = field(default_factory=dict)
    """Number of existing groups of the target revision, by component."""
    bounded: bool | None = None
    """Whether the existing revisions together serve as much as the bounds require; None if there is only one revision."""
    serves: bool = False
    """Whether requests to the URL are answered now; see `serving.can_serve`."""
    clock: Mapping[str, Any] = field(default_factory=dict)
    """Time since when the new revision has made no progress, in the form of the status; empty if no progress is expected."""
    rejected: tuple[Mapping[str, Any], ...] = ()
    drift: Mapping[str, str | None] = field(default_factory=dict)
    """Maps "runtime" and "model" to a text that states how the stored version differs from the current object; see
    `resolve.inputs.ResolvedService`."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Maps fields of the status to the value of a sync annotation that the operator has acted on."""
    pods: tuple[Pod, ...] = ()
    component_urls: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[dict[str, Any], ...] = ()
    placement: Mapping[str, Any] = field(default_factory=dict)
    """State of the gang that is being placed or waits for nodes, in the form of the status; empty once all groups are
    placed."""
    held: str = ""
    """Which services hold nodes that pods without a node could take; "" if unknown."""
    moves: tuple[dict[str, Any], ...] = ()
    """The groups that leave their nodes, in the form of the status."""
    moved: cond.Condition | None = None
    """Condition that reports the groups that leave their nodes; None if there are none."""
    recovered: cond.Condition | None = None
    """Condition that states whether failed groups have recovered; None if no group ever failed."""
    preflight: cond.Condition | None = None
    """Condition that reports the findings of the preflight checks; None if there are no findings."""
    intact: cond.Condition | None = None
    """Condition that reports foreign workers of routers; None if there were none."""
    transfers: cond.Condition | None = None
    """Condition that reports pairs of leaders whose transfers fail; None if there are none."""
    zero: Mapping[str, Any] = field(default_factory=dict)
    """The field `zero` of the status: the state of a service of which a role has no groups, or had no groups; empty if
    every role always had groups."""
    scaling_ignored: int | None = None
    """The value of `new_scaling.FIELD`; None if it is left out."""
    traffic: Mapping[str, Any] | None = None
    """The metrics of the service, in the form of the status; None if nothing is known about requests."""
    scaling: Mapping[str, Any] | None = None
    """The last decision of the autoscaler of the class Demand, in the form of the status; None if there is none."""
    follows: cond.Condition | None = None
    """Condition that states whether the size follows the demand; None for other autoscalers."""


def status(report: Report) -> dict[str, Any]:
    """Return the complete status; fields without a value are left out."""
    wanted = _conditions(report)
    out: dict[str, Any] = {
        "observedGeneration": report.generation,
        "conditions": cond.format_conditions(wanted, _stored(report.before), report.generation, report.now),
    }
    if report.url:
        out["url"] = report.url
        out["address"] = {"url": report.url}
    if report.served:
        out["model"] = report.served
    if report.runtime:
        out["runtime"] = report.runtime
    if report.revision:
        old = [name for name in report.serving if name != report.revision]
        out["revision"] = "→".join([*old, report.revision])
    out |= report.tokens
    if report.zero:
        out["zero"] = dict(report.zero)
    if report.scaling_ignored is not None:
        out[new_scaling.FIELD] = report.scaling_ignored
    if report.clock:
        out["progress"] = dict(report.clock)
    if report.placement:
        out["placement"] = dict(report.placement)
    if report.moves:
        out["moves"] = list(report.moves)
    if report.rejected:
        out["rejected"] = [dict(rejection) for rejection in report.rejected]
    if report.reached:
        out["reached"] = [dict(edit) for edit in report.reached]
    if report.progress:
        out["components"] = {progress.role.component: _component(progress, report) for progress in report.progress}
    if report.serving and report.progress:
        out["slices"] = [_slice(name, report) for name in report.serving]
    if report.groups:
        out["groups"] = list(report.groups)
    if loaded := loaded_model(report.progress, report.pods, report.groups, bool(report.problems)):
        out["modelStatus"] = loaded
    if report.traffic:
        out["traffic"] = dict(report.traffic)
    if report.scaling:
        out["scaling"] = dict(report.scaling)
    return out


def _stored(before: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the stored conditions. If an older version of the operator stored no condition Scaled, a copy of Ready takes
    its place, because Ready reported missing groups in these versions. The transition time is thus not lost.
    """
    stored = list(before.get("conditions") or ())
    if any(condition.get("type") == SCALED for condition in stored):
        return stored
    return [*stored, *({**condition, "type": SCALED} for condition in stored if condition.get("type") == READY)]


def _component(progress: RoleProgress, report: Report) -> dict[str, Any]:
    groups = progress.role.groups
    out: dict[str, Any] = {"ready": progress.counts, "replicas": groups, "readyReplicas": min(progress.ready_groups, groups)}
    if report.revision:
        out["latestCreatedRevision"] = out["updateRevision"] = report.revision
    if whole := _whole(progress.role.component, report):
        out["latestReadyRevision"] = out["currentRevision"] = whole
    if progress.role.component in report.updated:
        out["updatedReplicas"] = report.updated[progress.role.component]
    if report.hold:
        out["rolloutHold"] = dict(report.hold)
    if url := report.component_urls.get(progress.role.component):
        out["url"] = url
    return out


def _whole(component: str, report: Report) -> str:
    """Return the last revision of a component that was the only serving revision and was complete. The stored value is kept
    until the next revision is complete.
    """
    if report.rollout and report.rollout.status:
        return report.revision
    stored = (report.before.get("components") or {}).get(component) or {}
    return str(stored.get("latestReadyRevision") or "")


def _slice(revision: str, report: Report) -> dict[str, Any]:
    out: dict[str, Any] = {"revision": revision}
    for progress in report.progress:
        pods = [pod for pod in report.pods if pod.revision == revision and pod.component == progress.role.component]
        out[progress.role.title] = f"{sum(pod.ready and not pod.deleting for pod in pods)}/{len(pods)}"
    return out


def _conditions(report: Report) -> list[cond.Condition]:
    by_condition: dict[str, list[Problem]] = {}
    for problem in report.problems:
        by_condition.setdefault(problem.condition, []).append(problem)
    out: dict[str, cond.Condition] = {}
    if report.model:
        out[MODEL_READY] = report.model
    if report.runtime and RUNTIME_READY not in by_condition:
        out[RUNTIME_READY] = cond.Condition(RUNTIME_READY, True, Reason.FOUND, f"runtime {report.runtime}")
    for progress in report.progress:
        name = CONDITION[progress.role.component]
        out[name] = cond.Condition(
            name, progress.is_complete, progress.reason, f"{progress.message}{_held(progress, report)}"
        )
    for name, problems in by_condition.items():
        if name != READY:
            message = "; ".join(dict.fromkeys(problem.message for problem in problems))
            out[name] = cond.Condition(name, False, problems[0].reason, message)
    if report.preflight:
        out[report.preflight.type] = report.preflight
    if report.recovered:
        out[RECOVERED] = report.recovered
    if report.moved:
        out[MOVED] = report.moved
    if report.rollout and ROLLED_OUT not in by_condition:
        out[ROLLED_OUT] = report.rollout
    causes = _causes(report, out)
    ready = _ready(report, causes, by_condition.get(READY, []))
    if report.progress:
        out[SCALED] = _scaled(report, causes)
    out[READY] = ready
    for part, difference in report.drift.items():
        if difference is not None:
            name, reason = DRIFTED[part], Reason.REVISION_MISMATCH if difference else Reason.IN_SYNC
            out[name] = cond.Condition(
                name, bool(difference), reason, difference or f"the {part} equals the version that this service uses"
            )
    for found in filter(None, (report.intact, report.transfers)):
        out[found.type] = found
    if report.follows:
        out[report.follows.type] = report.follows
    out |= {condition.type: condition for condition in cond.advice(report.advice, report.advice_reason)}
    return [out[name] for name in ORDER if name in out]


def _held(progress: RoleProgress, report: Report) -> str:
    """Return who holds the nodes, if the scheduler says that pods of a role find too little free capacity."""
    lacks = progress.reason == Reason.UNSCHEDULABLE and "Insufficient" in progress.message
    return f"; {report.held}" if lacks and report.held else ""


def _ready(report: Report, causes: list[cond.Condition], problems: list[Problem]) -> cond.Condition:
    """Return the condition Ready. It is True while requests to the URL are answered. Missing groups are then reported only
    by the condition Scaled (decisions 12). `causes` explain why groups are missing.
    """
    if problems:
        return cond.Condition(READY, False, problems[0].reason, "; ".join(problem.message for problem in problems))
    empty = " and ".join(progress.role.title for progress in report.progress if not progress.role.groups)
    if report.serves and not empty:
        return cond.Condition(READY, True, Reason.SERVING, f"{report.url} serves")
    # A router that lists no engine is not ready, so its readiness does not explain why a service has no engine.
    waits = CONDITION[keys.ROUTER], Reason.PROGRESSING
    if causes := [cause for cause in causes if not (empty and (cause.type, cause.reason) == waits)]:
        return cond.Condition(READY, False, causes[0].reason, _messages(causes))
    if empty:
        return cond.Condition(READY, False, Reason.SCALED_TO_ZERO, f"{empty} scaled to zero: raise minReplicas")
    return cond.Condition(READY, False, Reason.CREATING, "no revision has a ready router and a ready group of each role yet")


def _scaled(report: Report, causes: list[cond.Condition]) -> cond.Condition:
    """Return the condition Scaled. It is True if every desired group is ready. If two revisions exist, it is True if as many
    groups are ready as the rollout's bounds require. `causes` explain why groups are missing.
    """
    complete = all(progress.is_complete for progress in report.progress) if report.bounded is None else report.bounded
    if complete or not causes:
        within = "as many groups are ready as the rollout requires" if report.bounded else "every desired group is ready"
        return cond.Condition(SCALED, True, Reason.COMPLETE, within)
    return cond.Condition(SCALED, False, causes[0].reason, _messages(causes))


def _messages(conditions: Iterable[cond.Condition]) -> str:
    return "; ".join(dict.fromkeys(condition.message for condition in conditions))


def _causes(report: Report, others: Mapping[str, cond.Condition]) -> list[cond.Condition]:
    """Return the conditions that explain why groups of a service are missing: the conditions of its inputs and components,
    otherwise the condition of its rollout, otherwise all conditions that are False.

    If there are no pods and the requested rollout may not start, the rollout is the cause, because nothing is being created.
    """
    components, rollout = _unready(report, others), others.get(ROLLED_OUT)
    inputs = [others[name] for name in (MODEL_READY, RUNTIME_READY) if name in others and others[name].status is False]
    if (
        components
        and not report.pods
        and rollout is not None
        and not rollout.status
        and not record_of(rollout.reason).passing
    ):
        return [rollout, *(condition for condition in inputs if condition.message not in rollout.message)]
    if (components or not report.progress) and (inputs or components):
        return [*inputs, *components]
    if rollout is not None and rollout.status is False and rollout.reason != Reason.PROGRESSING:
        return [rollout]
    return [condition for condition in others.values() if condition.status is False]


def _unready(report: Report, others: Mapping[str, cond.Condition]) -> list[cond.Condition]:
    """Return the conditions of the components with missing groups. If a new revision has failed, return the condition of
    the rollout instead, because it is more specific.
    """
    rollout = others.get(ROLLED_OUT)
    if rollout is not None and rollout.reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
        return [rollout]
    return [others[CONDITION[progress.role.component]] for progress in report.progress if not progress.is_complete]


_URGENT = ("url", "revision", "runtime", "observedGeneration", "rejected", "placement", "zero", "scaling", "moves")


def is_urgent(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether the status has to be written at once: `before` and `after` differ in the status of a condition, in
    something that requires action, or in the revision that is served, and not only in numbers.
    """
    if any(before.get(name) != after.get(name) for name in _URGENT):
        return True
    old, new = (status.get("conditions") or () for status in (before, after))
    return _flags(old) != _flags(new) or bool(events(old, new))


def _flags(conditions: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the status of each condition by its type. The message is included only for the condition RuntimeReady, because
    this message contains no counts, and shows the effect of edits of runtimes.
    """
    return {
        condition["type"]: (condition["status"], condition["message"] if condition["type"] == RUNTIME_READY else "")
        for condition in conditions
    }


def events(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> tuple[Event, ...]:
    """Return a Warning Event for each condition that became False for a reason that requires action."""
    return tuple(
        Event("Warning", str(condition["reason"]), str(condition["message"]))
        for condition in cond.changed_conditions(before, after)
        if condition["status"] == "False" and _loud(condition)
    )


def _loud(condition: Mapping[str, Any]) -> bool:
    """Return whether a condition that became False has a reason for which a Warning Event is sent."""
    if condition["type"] == ROLLED_OUT:
        return record_of(condition["reason"]).loud
    return condition["type"] not in (SCALED, READY) and not record_of(condition["reason"]).passing
