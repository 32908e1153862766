"""Gather what the status of a service is made of."""

from collections.abc import Mapping
from datetime import datetime

from ome_operator import keys, names
from ome_operator.api import InferenceService
from ome_operator.desired import Desired
from ome_operator.facts import Deps, Observed
from ome_operator.render import services
from ome_operator.resolve.inputs import Resolved, runtime_refs
from ome_operator.resolve.problem import Problem
from ome_operator.rollout.choose import Choice
from ome_operator.rollout.decide import Decision
from ome_operator.rollout.slices import Slice
from ome_operator.status import conditions as cond
from ome_operator.status.service import CONDITION, Report


def report(
    service: InferenceService,
    resolved: Resolved,
    choice: Choice,
    decision: Decision,
    want: Desired,
    observed: Observed,
    present: Mapping[str, Slice],
    deps: Deps,
    now: datetime,
) -> Report:
    """Everything that `status.service.status` needs."""
    named = runtime_refs(service)
    known = named[0].name if named else str(service.status.get("runtime") or "")  # a chosen one that is gone stays named
    refused = _refused(choice, want, observed)
    return Report(
        generation=service.generation,
        before=service.status,
        now=now,
        progress=want.progress,
        problems=(*choice.problems, *refused),
        advice=(*want.advice, *observed.warnings),
        model=_model(resolved, choice),
        runtime=resolved.runtime.name if resolved.runtime else known,
        url=_url(service, choice, want),
        revision=choice.target,
        serving=tuple(present) if present else (choice.target,) if choice.target else (),
        rollout=_rollout(choice, decision, want),
        pods=observed.pods,
        component_urls=_urls(choice, want),
    )


def _url(service: InferenceService, choice: Choice, want: Desired) -> str:
    """The URL; while it cannot be known (the runtime is gone) or nothing changes it, the one that we told before."""
    if not want.complete and (before := service.status.get("url")):
        return str(before)
    return services.url(choice.owner, want.ports[want.front]) if want.ports else ""


def _model(resolved: Resolved, choice: Choice) -> cond.Condition | None:
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


def _rollout(choice: Choice, decision: Decision, want: Desired) -> cond.Condition | None:
    """RolledOut: the target is complete and alone."""
    if not choice.target:
        return None
    if decision.reason:
        return cond.Condition(cond.ROLLED_OUT, False, decision.reason, decision.message)
    if want.progress and all(one.complete for one in want.progress):
        return cond.Condition(cond.ROLLED_OUT, True, "Complete", f"revision {choice.target} is complete and alone")
    return cond.Condition(cond.ROLLED_OUT, False, "Progressing", f"revision {choice.target} comes up")


def _refused(choice: Choice, want: Desired, observed: Observed) -> tuple[Problem, ...]:
    """What the API server refused, under the condition of the component that it belongs to."""
    out = []
    wanted = (*choice.record, *want.manifests, *(one.manifest for one in want.create))
    labels = {(one["kind"], one["metadata"]["name"]): one["metadata"]["labels"] for one in wanted}
    for key, refusal in sorted(observed.refusals.items()):
        if key not in labels:  # it was wanted once
            continue
        component = labels[key].get(keys.COMPONENT, "")
        condition = cond.READY if key[0] == "Service" else CONDITION.get(component, cond.READY)
        out.append(Problem(condition, refusal.reason, f"{key[0]} {key[1]}: {refusal.message}"))
    return tuple(out)


def _urls(choice: Choice, want: Desired) -> dict[str, str]:
    owner = choice.owner
    return {
        component: f"http://{names.component(owner.name, component)}.{owner.namespace}.{services.DOMAIN}:{port}"
        for component, port in want.ports.items()
    }
