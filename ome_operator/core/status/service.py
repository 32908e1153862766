"""Status of an InferenceService: one condition per component, each with a reason and what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator.core.observed.objects import Pod, Strangers
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import (
    CONDITION,
    DRIFTED,
    MODEL_READY,
    ORDER,
    READY,
    RECOVERED,
    ROLLED_OUT,
    ROUTER_INTACT,
    RUNTIME_READY,
    Reason,
    record_of,
)
from ome_operator.core.reconcile.plan import Event
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.conditions import Condition
from ome_operator.core.status.loaded_model import loaded_model
from ome_operator.core.status.progress import RoleProgress


@dataclass(frozen=True)
class Report:
    """Everything that the status of a service is made of."""

    generation: int
    before: Mapping[str, Any]
    """The status stored now."""
    now: datetime
    progress: tuple[RoleProgress, ...] = ()
    problems: tuple[Problem, ...] = ()
    advice: tuple[str, ...] = ()
    model: cond.Condition | None = None
    """How many nodes hold the model; None when a problem says more."""
    runtime: str = ""
    url: str = ""
    revision: str = ""
    serving: tuple[str, ...] = ()
    """Revisions that have pods or workloads, the target included."""
    rollout: cond.Condition | None = None
    reached: tuple[Mapping[str, Any], ...] = ()
    """Edits of shared objects that it became whole with."""
    hold: Mapping[str, Any] = field(default_factory=dict)
    """Why the rollout does not move; empty when it does."""
    updated: Mapping[str, int] = field(default_factory=dict)
    """Component -> groups of the wanted revision that exist."""
    bounded: bool | None = None
    """Whether two slices together serve what the rollout's bounds leave; None without a second one."""
    clock: Mapping[str, Any] = field(default_factory=dict)
    """Since when the new slice has not come farther; empty when it need not."""
    rejected: tuple[Mapping[str, Any], ...] = ()
    drift: Mapping[str, str | None] = field(default_factory=dict)
    """runtime, model -> how what is kept of it differs from what it is by now; see `resolve.inputs.Resolved`."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Fields with the values of annotations that were acted on."""
    pods: tuple[Pod, ...] = ()
    component_urls: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[dict[str, Any], ...] = ()
    placement: Mapping[str, Any] = field(default_factory=dict)
    """Where it stands beside others that wait for the same nodes; empty while it is placed."""
    recovered: cond.Condition | None = None
    """Whether groups that failed came back; None while none ever failed."""
    preflight: cond.Condition | None = None
    """What the checks before engines found; None where they found nothing."""
    intact: cond.Condition | None = None
    """That somebody else's workers were in a router's list; None while none were."""


def status(report: Report) -> dict[str, Any]:
    """The whole status, with only the fields that have something to say."""
    wanted = _conditions(report)
    out: dict[str, Any] = {
        "observedGeneration": report.generation,
        "conditions": cond.stamp(wanted, report.before.get("conditions") or (), report.generation, report.now),
    }
    if report.url:
        out["url"] = report.url
        out["address"] = {"url": report.url}
    if report.runtime:
        out["runtime"] = report.runtime
    if report.revision:
        old = [name for name in report.serving if name != report.revision]
        out["revision"] = "→".join([*old, report.revision])
    out |= report.tokens
    if report.clock:
        out["progress"] = dict(report.clock)
    if report.placement:
        out["placement"] = dict(report.placement)
    if report.rejected:
        out["rejected"] = [dict(one) for one in report.rejected]
    if report.reached:
        out["reached"] = [dict(each) for each in report.reached]
    if report.progress:
        out["components"] = {one.role.component: _component(one, report) for one in report.progress}
    if report.serving and report.progress:
        out["slices"] = [_slice(name, report) for name in report.serving]
    if report.groups:
        out["groups"] = list(report.groups)
    if loaded := loaded_model(report.progress, report.pods, report.groups, bool(report.problems)):
        out["modelStatus"] = loaded
    return out


def _component(one: RoleProgress, report: Report) -> dict[str, Any]:
    groups = one.role.groups
    out: dict[str, Any] = {"ready": one.counts, "replicas": groups, "readyReplicas": min(one.ready_groups, groups)}
    if report.revision:
        out["latestCreatedRevision"] = out["updateRevision"] = report.revision
    if whole := _whole(one.role.component, report):
        out["latestReadyRevision"] = out["currentRevision"] = whole
    if one.role.component in report.updated:
        out["updatedReplicas"] = report.updated[one.role.component]
    if report.hold:
        out["rolloutHold"] = dict(report.hold)
    if url := report.component_urls.get(one.role.component):
        out["url"] = url
    return out


def _whole(component: str, report: Report) -> str:
    """The revision that was complete and alone last; the one before stays until the next is."""
    if report.rollout and report.rollout.status:
        return report.revision
    stored = (report.before.get("components") or {}).get(component) or {}
    return str(stored.get("latestReadyRevision") or "")


def _slice(revision: str, report: Report) -> dict[str, Any]:
    out: dict[str, Any] = {"revision": revision}
    for one in report.progress:
        mine = [pod for pod in report.pods if pod.revision == revision and pod.component == one.role.component]
        out[one.role.title] = f"{sum(pod.ready and not pod.deleting for pod in mine)}/{len(mine)}"
    return out


def _conditions(report: Report) -> list[cond.Condition]:
    told: dict[str, list[Problem]] = {}
    for problem in report.problems:
        told.setdefault(problem.condition, []).append(problem)
    out: dict[str, cond.Condition] = {}
    if report.model:
        out[MODEL_READY] = report.model
    if report.runtime and RUNTIME_READY not in told:
        out[RUNTIME_READY] = cond.Condition(RUNTIME_READY, True, Reason.FOUND, f"runtime {report.runtime}")
    for one in report.progress:
        name = CONDITION[one.role.component]
        out[name] = cond.Condition(name, one.complete, one.reason, one.message)
    for name, problems in told.items():
        if name != READY:
            message = "; ".join(dict.fromkeys(problem.message for problem in problems))
            out[name] = cond.Condition(name, False, problems[0].reason, message)
    if report.preflight:
        out[report.preflight.type] = report.preflight
    if report.recovered:
        out[RECOVERED] = report.recovered
    if report.rollout and ROLLED_OUT not in told:
        out[ROLLED_OUT] = report.rollout
    out[READY] = _ready(report, out, told.get(READY, []))
    for part, said in report.drift.items():
        if said is not None:
            name, reason = DRIFTED[part], Reason.REVISION_MISMATCH if said else Reason.IN_SYNC
            out[name] = cond.Condition(name, bool(said), reason, said or f"the {part} is as this service keeps it")
    if report.intact:
        out[report.intact.type] = report.intact
    out |= {told.type: told for told in cond.advice(report.advice)}
    return [out[name] for name in ORDER if name in out]


def _ready(report: Report, others: Mapping[str, cond.Condition], problems: list[Problem]) -> cond.Condition:
    """Ready: the URL serves every wanted group, over all slices, or what a rollout leaves of them (decisions 12)."""
    if problems:
        return cond.Condition(READY, False, problems[0].reason, "; ".join(one.message for one in problems))
    if _serves(report):
        return cond.Condition(READY, True, Reason.SERVING, f"{report.url} serves")
    causes = _causes(report, others)
    if not causes:
        empty = " and ".join(one.role.title for one in report.progress if not one.role.groups)
        return cond.Condition(READY, False, Reason.SCALED_TO_ZERO, f"{empty} scaled to zero: raise minReplicas")
    return cond.Condition(READY, False, causes[0].reason, "; ".join(dict.fromkeys(one.message for one in causes)))


def _serves(report: Report) -> bool:
    """Whether every wanted group is ready or, beside a second slice, as many as the rollout's bounds leave."""
    if report.bounded is not None:
        return report.bounded
    return bool(report.progress) and all(one.complete and one.role.groups for one in report.progress)


def _causes(report: Report, others: Mapping[str, cond.Condition]) -> list[cond.Condition]:
    """The conditions that say why a service is not ready: its pods before its rollout before whatever is False.

    While it has no pods, and what is asked for may not begin, that is why: nothing is being created.
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
        return [rollout, *(said for said in inputs if said.message not in rollout.message)]
    if (components or not report.progress) and (inputs or components):
        return [*inputs, *components]
    if rollout is not None and rollout.status is False and rollout.reason != Reason.PROGRESSING:
        return [rollout]
    return [one for one in others.values() if one.status is False]


def _unready(report: Report, others: Mapping[str, cond.Condition]) -> list[cond.Condition]:
    """The conditions of components that lack groups; of a new slice that failed the rollout says more than they do."""
    rollout = others.get(ROLLED_OUT)
    if rollout is not None and rollout.reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
        return [rollout]
    return [others[CONDITION[one.role.component]] for one in report.progress if not one.complete]


_URGENT = ("url", "revision", "runtime", "observedGeneration", "rejected", "placement")


def urgent(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether more than counts changed: a flip, something new for a person to do, or another thing served."""
    if any(before.get(name) != after.get(name) for name in _URGENT):
        return True
    old, new = (status.get("conditions") or () for status in (before, after))
    return _flags(old) != _flags(new) or bool(events(old, new))


def _flags(conditions: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """What flips; and what is said of the runtime, which counts nothing: it answers an edit of the catalog."""
    return {one["type"]: (one["status"], one["message"] if one["type"] == RUNTIME_READY else "") for one in conditions}


def events(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> tuple[Event, ...]:
    """A Warning for every condition that became False for a reason that a person has to act on."""
    return tuple(
        Event("Warning", str(one["reason"]), str(one["message"]))
        for one in cond.flips(before, after)
        if one["status"] == "False" and _loud(one)
    )


def _loud(condition: Mapping[str, Any]) -> bool:
    """Return whether an Event has to warn of a condition that became False."""
    if condition["type"] == ROLLED_OUT:
        return record_of(condition["reason"]).loud
    return condition["type"] != READY and not record_of(condition["reason"]).passing


TOLD = timedelta(hours=1)
"""A stranger is told of for so long after it was seen last."""


def strangers_condition(found: Iterable[Strangers], secret: str, now: datetime) -> Condition | None:
    """RouterIntact; None while no stranger was seen lately. `secret`: the Secret with the routers' key, "" for none."""
    seen = [item for item in found if item.found and abs(now.timestamp() - item.at) < TOLD.total_seconds()]
    if not seen:
        return None
    last = datetime.fromtimestamp(max(item.at for item in seen), UTC).strftime("%H:%M:%S UTC")
    remedy = (
        f"somebody else has their key: delete the Secret {secret} and the routers' pods, and see who may read Secrets here"
        if secret
        else "these routers have no key by the operator: forward only /v1/ to them, or keep others away from their port "
        "(docs/security.md, Routers)"
    )
    said = (
        f"{sum(item.found for item in seen)} workers that are no pods of this service were in the list of its routers, the "
        f"last at {last}. They were taken out within seconds, and may have got prompts until then: {remedy}"
    )
    return Condition(ROUTER_INTACT, False, Reason.STRANGER_IN_ROUTER, said)
