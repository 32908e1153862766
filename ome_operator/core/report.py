"""Gather what the status of a service is made of."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys, names
from ome_operator.api import InferenceService
from ome_operator.core.desired import Desired
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.plan import NEEDED, Delete, Plan
from ome_operator.core.problem import Problem
from ome_operator.core.recovery.recover import Recovery
from ome_operator.core.render import services
from ome_operator.core.resolve.inputs import Resolved, runtime_refs
from ome_operator.core.resolve.pinned import tokens
from ome_operator.core.rollout import progress_deadline
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import ReplicaCounts
from ome_operator.core.rollout.progress_deadline import Clock
from ome_operator.core.rollout.slices import Slice
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.status import conditions as cond
from ome_operator.core.status import rollout
from ome_operator.core.status.service import CONDITION, Report


def report(
    service: InferenceService,
    resolved: Resolved,
    choice: Intent,
    decision: RolloutStep,
    numbers: ReplicaCounts,
    want: Desired,
    plan: Plan,
    clock: Clock,
    observed: Observed,
    present: Mapping[str, Slice],
    recovery: Recovery,
    deps: Deps,
    now: datetime,
) -> Report:
    """Everything that `status.service.status` needs."""
    named = runtime_refs(service)
    known = named[0].name if named else str(service.status.get("runtime") or "")  # a chosen one that is gone stays named
    deletes = (*plan.delete, *recovery.delete, *(one for group in recovery.recycle for one in group.delete))
    return Report(
        generation=service.generation,
        before=service.status,
        now=now,
        progress=want.progress,
        problems=(*choice.problems, *_refused(plan, observed), *_undeletable(deletes, observed)),
        advice=(*want.advice, *observed.warnings),
        model=_model(resolved, choice),
        runtime=resolved.runtime.name if resolved.runtime else known,
        url=_url(service, choice, want),
        revision=choice.target,
        serving=tuple(present) if present else (choice.target,) if choice.target else (),
        rollout=_rollout(service, choice, decision, numbers, want, clock),
        hold=rollout.hold(choice.target, decision, _held(service.status), now),
        updated={role: one.have for role, one in numbers.built.get(choice.target, {}).items()},
        bounded=rollout.bounded(choice.target, numbers),
        clock=clock.stored,
        drift=resolved.drift,
        tokens=tokens(service, done=choice.record.current),
        rejected=_rejected(service, choice, want, clock, now),
        pods=observed.pods,
        component_urls=_urls(choice, want),
        groups=recovery.groups,
        recovered=recovery.condition,
    )


def _url(service: InferenceService, choice: Intent, want: Desired) -> str:
    """The URL; while it cannot be known (the runtime is gone) or nothing changes it, the one that we told before."""
    if not want.complete and (before := service.status.get("url")):
        return str(before)
    return services.url(choice.owner, want.ports[want.front]) if want.ports else ""


def _model(resolved: Resolved, choice: Intent) -> cond.Condition | None:
    """ModelReady from the nodes that hold it; None when there is no model to speak of."""
    if resolved.model is None or choice.held is None:
        return None
    here, name = choice.held, resolved.model.name
    if here.everywhere:
        return cond.Condition(cond.MODEL, True, "Claim", f"model {name} comes with its claim")
    said = f"model {name} on {here.have} nodes, {here.need} needed"
    if here.enough:
        return cond.Condition(cond.MODEL, True, "Ready", said)
    return cond.Condition(cond.MODEL, False, "WaitingForNodes", f"{said}: pods wait until more nodes hold it")


def _rollout(
    service: InferenceService, choice: Intent, decision: RolloutStep, numbers: ReplicaCounts, want: Desired, clock: Clock
) -> cond.Condition | None:
    """RolledOut: what the user asks for is complete and alone."""
    if not choice.target:
        return None
    whole = bool(want.progress) and all(one.complete for one in want.progress)
    if (rejection := choice.aim.rejection) is not None:
        waits = f": {decision.message}" if decision.message else ""
        comes = "serves" if whole and not waits else f"comes back{waits}"
        said = f"{rejection.get('message')}: it was rejected, and revision {choice.target} {comes}"
        remedy = f"Edit what is wrong, or try it again: `ome retry {service.name} -n {service.namespace}`"
        return cond.Condition(cond.ROLLED_OUT, False, cond.ROLLED_BACK, f"{said}. {remedy}")
    if clock.left == 0:
        said = f"{_failure(service, choice, want)}. {_way_out(service, choice, clock)}"
        return cond.Condition(cond.ROLLED_OUT, False, cond.EXCEEDED, said)
    if decision.reason:
        return cond.Condition(cond.ROLLED_OUT, False, decision.reason, rollout.words(choice.target, decision, numbers))
    if whole:
        pinned = "; spec.rollout.revision pins it, so edits wait" if choice.aim.pin else ""
        return cond.Condition(cond.ROLLED_OUT, True, "Complete", f"revision {choice.target} is complete and alone{pinned}")
    return cond.Condition(cond.ROLLED_OUT, False, "Progressing", f"revision {choice.target} comes up")


def _held(before: Mapping[str, Any]) -> Mapping[str, Any]:
    """The hold that the status tells; every component has the same."""
    return next((one["rolloutHold"] for one in (before.get("components") or {}).values() if "rolloutHold" in one), {})


def _way_out(service: InferenceService, choice: Intent, clock: Clock) -> str:
    """What to do about a slice that failed, or what happens by itself."""
    if clock.back:
        return f"Revision {choice.aim.back} comes back"
    undo = f", or go back to {choice.aim.back}: `ome undo {service.name} -n {service.namespace}`" if choice.aim.back else ""
    return f"Mend what that says{undo}"


def _failure(service: InferenceService, choice: Intent, want: Desired) -> str:
    """Why the new slice counts as failed."""
    lacks = "; ".join(one.message for one in want.progress if not one.complete) or "its pods are not all ready"
    limit = f"{progress_deadline.allowed(service)} (spec.rollout.readyTimeout)"
    return f"revision {choice.target} has not come farther for {limit}: {lacks}"


def _rejected(
    service: InferenceService, choice: Intent, want: Desired, clock: Clock, now: datetime
) -> tuple[Mapping[str, Any], ...]:
    """The rejections that count, with a new one when the slice failed and the user wants the one before back.

    It is stored first; the pass that reads it back acts on it.
    """
    if clock.left != 0 or not clock.back:
        return choice.aim.rejected
    return (*choice.aim.rejected, choice.aim.reject(cond.EXCEEDED, _failure(service, choice, want), now))


def _refused(plan: Plan, observed: Observed) -> tuple[Problem, ...]:
    """What the API server refused, under the condition of the component that it belongs to.

    Only what is still to be written: a write can be carried out without our hearing of it, and be refused when repeated.
    """
    out = []
    applied = [one.manifest for one in (*plan.first, *plan.apply)]
    posted = [*(one.manifest for one in plan.create), *(one.manifest for one in plan.ensure_secret)]
    labels = {(one["kind"], one["metadata"]["name"]): one["metadata"]["labels"] for one in (*applied, *posted)}
    for key, refusal in sorted(observed.refusals.items()):
        if key not in labels or refusal.uid:
            continue
        component = labels[key].get(keys.COMPONENT, "")
        condition = cond.READY if key[0] in NEEDED else CONDITION.get(component, cond.READY)
        out.append(Problem(condition, refusal.reason, f"{key[0]} {key[1]}: {refusal.message}"))
    return tuple(out)


def _undeletable(deletes: Iterable[Delete], observed: Observed) -> Iterator[Problem]:
    """What the API server does not let go: the service is not alone with what its user asks for, whatever serves."""
    for one in deletes:
        refusal = observed.refusals.get((one.kind, one.name))
        if refusal is not None and refusal.uid == one.uid:
            yield Problem(cond.ROLLED_OUT, refusal.reason, f"{one.kind} {one.name} cannot be deleted: {refusal.message}")


def _urls(choice: Intent, want: Desired) -> dict[str, str]:
    owner = choice.owner
    return {
        component: f"http://{names.component(owner.name, component)}.{owner.namespace}.{services.DOMAIN}:{port}"
        for component, port in want.ports.items()
    }
