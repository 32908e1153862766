"""Compute the inputs of the status of a service."""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator import keys, names
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Observed
from ome_operator.core.observed.slices import has_started, made_by_workload
from ome_operator.core.placement.gangs import GangPlan
from ome_operator.core.podspec.spelling import translate_errors
from ome_operator.core.preflight import status as preflight_status
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import CONDITION, MODEL_READY, READY, ROLLED_OUT, Reason
from ome_operator.core.reconcile import demand
from ome_operator.core.reconcile.advice import cluster_warnings
from ome_operator.core.reconcile.decided import PassDecisions
from ome_operator.core.reconcile.desired import Desired
from ome_operator.core.reconcile.plan import NEEDED, Plan
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery.recover import Recovery
from ome_operator.core.render import router_key, services, telemetry_advice
from ome_operator.core.resolve import new_scaling
from ome_operator.core.resolve.inputs import runtime_refs
from ome_operator.core.resolve.pinned import sync_tokens
from ome_operator.core.rollout import own_lack, progress_deadline, validation
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.progress_deadline import Clock
from ome_operator.core.rollout.step import stored_hold
from ome_operator.core.status import conditions as cond
from ome_operator.core.status import rollout, serving
from ome_operator.core.status.foreign_workers import foreign_workers_condition
from ome_operator.core.status.loaded_model import model_names
from ome_operator.core.status.service import Report
from ome_operator.core.status.transfers import transfers_condition
from ome_operator.core.waves import shared_edits


def report(decided: PassDecisions, work: Plan) -> Report:
    """Return all inputs of `status.service.status`. `work` contains all writes and deletions of the pass."""
    snapshot, intent, want, clock = decided.snapshot, decided.intent, decided.want, decided.clock
    service, resolved = snapshot.service, intent.resolved
    rolled_out = _rollout(decided)
    checked = preflight_status.findings_of_groups(snapshot.pods)
    judged, worst = _judged(snapshot, intent, want)
    warned = cluster_warnings(snapshot, intent, want.manifests, want.progress)
    return Report(
        generation=service.generation,
        before=service.status,
        now=snapshot.now,
        progress=want.progress,
        problems=tuple(_problems(decided, work)),
        advice=(*want.advice, *judged, *_telemetry_advice(snapshot, intent, want), *warned, *_left_out(decided.recovery)),
        advice_reason=Reason.CLUSTER_WARNINGS if warned and worst != Reason.LINT_ERRORS else worst,
        model=_model(intent),
        served=_served(snapshot, intent),
        runtime=resolved.runtime.name if resolved.runtime else _named_runtime(service),
        url=_url(service, intent, want),
        revision=intent.target,
        serving=_serving(snapshot, intent),
        rollout=rolled_out,
        reached=_reached(decided, whole=rolled_out is not None and bool(rolled_out.status)),
        hold=rollout.hold_fields(intent.target, decided.step, stored_hold(service.status), snapshot.now),
        updated={role: groups.existing for role, groups in decided.counts.built.get(intent.target, {}).items()},
        bounded=rollout.meets_bounds(intent.target, decided.counts),
        serves=_serves(snapshot, want),
        clock=clock.status_fields,
        drift=resolved.drift,
        tokens=sync_tokens(service, done=intent.ledger.current),
        rejected=_rejected(decided),
        pods=tuple(filter(made_by_workload, snapshot.observed.pods)),
        component_urls=_urls(intent, want),
        groups=preflight_status.add_findings(decided.recovery.groups, checked),
        preflight=preflight_status.condition(checked),
        placement=decided.placing.status_placement,
        held=decided.placing.held,
        moves=decided.moving.status_moves,
        moved=decided.moving.condition,
        recovered=decided.recovery.condition,
        intact=_intact(snapshot, intent, want),
        transfers=transfers_condition(snapshot.observed.transfers.values(), snapshot.pods),
        traffic=snapshot.observed.traffic,
        zero=decided.zero,
        scaling_ignored=new_scaling.ignored_generation(service, intent.policies),
        scaling=demand.scaling(decided),
        follows=demand.condition(decided),
    )


def _problems(decided: PassDecisions, work: Plan) -> Iterator[Problem]:
    """Yield the problems that keep the service from running as its spec describes."""
    snapshot, intent, want = decided.snapshot, decided.intent, decided.want
    yield from intent.problems
    yield from _refused(work, snapshot, intent)
    yield from _undeletable(work, snapshot.observed)
    yield from _without_capacity(snapshot, intent, want)
    yield from _waiting(decided.placing, want)


def _reached(decided: PassDecisions, *, whole: bool) -> tuple[Any, ...]:
    """Return the edits of shared objects whose rollout to the service has been completed, now or earlier. `whole` states
    whether the rollout is complete now.
    """
    before, arrived = decided.snapshot.service.status.get("reached") or (), decided.pending if whole else ()
    return tuple(shared_edits.reached_edits(before, arrived, decided.intent.epochs, decided.snapshot.now))


def _judged(snapshot: Snapshot, intent: Intent, want: Desired) -> tuple[tuple[str, ...], str]:
    """Return the advice of the rules of `ome lint` about the target revision, and its worst severity as a reason."""
    data = intent.data.get(intent.target)
    return validation.advice(snapshot, intent.owner, intent.resolved, intent.target, data, want.manifests)


def _intact(snapshot: Snapshot, intent: Intent, want: Desired) -> cond.Condition | None:
    """Return the condition about foreign workers, which are registered at the service's routers but are not its pods. The
    registries of these routers report foreign workers; None if there is no report.
    """
    found = [snapshot.observed.strangers[pod.uid] for pod in snapshot.pods if pod.uid in snapshot.observed.strangers]
    if not found:
        return None
    keyed = any(one["kind"] == "Deployment" and router_key.secret(intent.owner, one) for one in want.manifests)
    return foreign_workers_condition(found, names.router_key(intent.owner.name) if keyed else "", snapshot.now)


def _telemetry_advice(snapshot: Snapshot, intent: Intent, want: Desired) -> Iterator[str]:
    """Yield the advice about settings that keep the load of the target revision from being read."""
    stored: Mapping[str, Any] = (intent.data.get(intent.target) or {}).get("workloads") or {}
    engines = {name: role["leader"]["spec"]["template"]["spec"]["containers"][0] for name, role in stored.items()}
    routers = (one for one in want.manifests if one["kind"] == "Deployment")
    router = next((one for one in routers if one["metadata"]["labels"].get(keys.REVISION) == intent.target), None)
    policy = snapshot.deps.policy
    yield from telemetry_advice.advice(
        engines, router, snapshot.service.annotations, hears=bool(policy.registry_image), scrapes=policy.scrapes_engines
    )


def _left_out(recovery: Recovery) -> Iterator[str]:
    """Yield a sentence if `status.groups` has no space for the records of all groups. The sentence states the
    consequence.
    """
    if recovery.left_out:
        groups = len(recovery.groups)
        yield (
            f"status.groups has space for only {groups} of {groups + recovery.left_out} groups, and the operator does not "
            "recycle the other groups when they lose a rank: divide the service into several services"
        )


def _named_runtime(service: InferenceService) -> str:
    """Return the name of the runtime that a service refers to. If the operator chose the runtime and the runtime no
    longer exists, its name is read from the stored status; "" if there is none.
    """
    named = runtime_refs(service)
    return named[0].name if named else str(service.status.get("runtime") or "")


def _serving(snapshot: Snapshot, intent: Intent) -> tuple[str, ...]:
    """Return the revisions of which any object exists. If nothing exists, return the target, or () without a target."""
    if snapshot.slices:
        return tuple(snapshot.slices)
    return (intent.target,) if intent.target else ()


def _served(snapshot: Snapshot, intent: Intent) -> str:
    """Return the names of the models of the revisions that exist, the target last; the model that the spec names if there
    is no revision.
    """
    order = [name for name in _serving(snapshot, intent) if name != intent.target] + [intent.target]
    named = snapshot.service.spec.model.name if snapshot.service.spec.model is not None else ""
    return model_names((intent.data.get(name) or {} for name in order), named or "")


def _url(service: InferenceService, intent: Intent, want: Desired) -> str:
    """Return the URL of the service. While the URL cannot be computed (for example, because the runtime no longer
    exists), return the stored URL.
    """
    if not want.is_complete and (before := service.status.get("url")):
        return str(before)
    return services.url(intent.owner, want.ports[want.front]) if want.ports else ""


def _serves(snapshot: Snapshot, want: Desired) -> bool:
    """Return whether requests to the URL are answered now. If the URL has no Service yet, this pass creates it."""
    address = snapshot.controlled("Service", snapshot.service.name)
    front = address.labels.get(keys.COMPONENT) if address is not None else want.front
    return serving.can_serve(snapshot.slices, snapshot.revisions, routed=front == keys.ROUTER)


def _model(intent: Intent) -> cond.Condition | None:
    """Return the condition ModelReady, from the nodes that hold the model; None if the service has no model or no
    revision.
    """
    model, here = intent.resolved.model, intent.held
    if model is None or here is None:
        return None
    if here.everywhere:
        return cond.Condition(
            MODEL_READY,
            True,
            Reason.CLAIM,
            f"model {model.name} is stored in a PersistentVolumeClaim, so nodes need no copy of it",
        )
    if not here.known:
        message = "this operator reads no nodes (clusterWideKinds is false), so it cannot determine whether any node holds"
        label = " and ".join(f"{part.label}=Ready" for part in here.parts)
        text = f"{message} model {model.name}; its pods wait for a node with the label {label}"
        return cond.Condition(MODEL_READY, None, Reason.NODES_UNKNOWN, text)
    if here.has_enough_nodes:
        return cond.Condition(MODEL_READY, True, Reason.READY, here.sentence)
    message = f"{here.sentence}: pods wait until more nodes hold it; {here.remedy}"
    return cond.Condition(MODEL_READY, False, Reason.WAITING_FOR_NODES, message)


def _rollout(decided: PassDecisions) -> cond.Condition | None:
    """Return the condition RolledOut: whether the target revision is complete and the only revision; None if there is no
    target.
    """
    service, intent, step = decided.snapshot.service, decided.intent, decided.step
    want, clock = decided.want, decided.clock
    if not intent.target:
        return None
    whole = bool(want.progress) and all(one.is_complete for one in want.progress)
    if (rejection := intent.aim.rejection) is not None:
        waits = f": {step.message}" if step.message else ""
        comes = "serves" if whole and not waits else f"is being restored{waits}"
        message = f"{rejection.get('message')}: the revision was rejected, and revision {intent.target} {comes}"
        remedy = (
            "To continue, correct the cause and edit the service, or try the rejected revision again: `ome retry "
            f"{service.name} -n {service.namespace}`"
        )
        return cond.Condition(ROLLED_OUT, False, Reason.ROLLED_BACK, f"{message}. {remedy}")
    if clock.left == 0:
        message = f"{_failure(service, intent, want)}. {_way_out(service, intent, clock)}"
        return cond.Condition(ROLLED_OUT, False, Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    if step.reason:
        return cond.Condition(ROLLED_OUT, False, step.reason, rollout.progress_message(intent.target, step, decided.counts))
    if whole:
        pinned = "; spec.rollout.revision pins the service to it, so edits are not rolled out" if intent.aim.pin else ""
        return cond.Condition(
            ROLLED_OUT,
            True,
            Reason.COMPLETE,
            (f"revision {intent.target} is complete, and no other revision exists{pinned}"),
        )
    return cond.Condition(ROLLED_OUT, False, Reason.PROGRESSING, f"the groups of revision {intent.target} are starting")


def _way_out(service: InferenceService, intent: Intent, clock: Clock) -> str:
    """Return a text that states what a user can do about a failed rollout, or which revision is restored automatically."""
    if clock.back:
        return f"Revision {intent.aim.back} is being restored"
    undo = f", or go back to {intent.aim.back}: `ome undo {service.name} -n {service.namespace}`" if intent.aim.back else ""
    return f"Correct the named cause{undo}"


def _failure(service: InferenceService, intent: Intent, want: Desired) -> str:
    """Return why the rollout of the target revision failed."""
    lacks = "; ".join(one.message for one in want.progress if not one.is_complete) or "not all of its pods are ready"
    limit = f"{progress_deadline.time_limit(service)} (spec.rollout.readyTimeout)"
    return f"revision {intent.target} has made no progress for {limit}: {lacks}"


def _rejected(decided: PassDecisions) -> tuple[Mapping[str, Any], ...]:
    """Return the rejections that still apply. A new rejection is added if the revision failed and the user wants the
    preceding complete revision to be restored.

    The rejection is stored first. The pass that reads the stored rejection acts on it.
    """
    snapshot, intent, clock = decided.snapshot, decided.intent, decided.clock
    if clock.left != 0 or not clock.back:
        return intent.aim.rejected
    failure = _failure(snapshot.service, intent, decided.want)
    lacks = own_lack.waiting_since(snapshot, intent, clock, decided.placing.status_placement)
    return (*intent.aim.rejected, intent.aim.reject(Reason.PROGRESS_DEADLINE_EXCEEDED, failure, snapshot.now, lacks))


def _refused(plan: Plan, snapshot: Snapshot, intent: Intent) -> tuple[Problem, ...]:
    """Return a problem for each write that the API server refused. Problems with objects of a component are reported under
    the condition of the component. Problems with objects of the whole service are reported under RolledOut, because the
    service may serve without the write. If the URL needs the object, and the object does not exist, the problem is
    reported under Ready.

    Refusals of writes that the plan no longer contains are left out: such a write may have succeeded at the first attempt
    without a response, so that only its repetition was refused.
    """
    out = []
    applied = [one.manifest for one in (*plan.first, *plan.apply)]
    posted = [*(one.manifest for one in plan.create), *(one.manifest for one in plan.ensure_secret)]
    labels = {(one["kind"], one["metadata"]["name"]): one["metadata"]["labels"] for one in (*applied, *posted)}
    for key, refusal in sorted(snapshot.observed.refusals.items()):
        if key not in labels or refusal.uid:
            continue
        component = labels[key].get(keys.COMPONENT, "")
        needed = key[0] in NEEDED and keys.REVISION not in labels[key]  # a slice is reachable without its own Service
        if needed:
            condition = ROLLED_OUT if snapshot.controlled(*key) is not None else READY
        else:
            condition = CONDITION.get(component, ROLLED_OUT)
        message = translate_errors(refusal.message, snapshot.service, intent.resolved.runtime)
        if message != refusal.message:
            out.append(Problem(condition, Reason.INVALID_POD, message))
        else:
            out.append(Problem(condition, refusal.reason, f"{key[0]} {key[1]}: {message}"))
    return tuple(out)


def _undeletable(plan: Plan, observed: Observed) -> Iterator[Problem]:
    """Yield a problem, under the condition RolledOut, for each object that the API server refused to delete. While the
    object exists, the target revision cannot become the only revision, even if it serves.
    """
    recycled = (delete for recycle in plan.recycle for delete in recycle.delete)
    for one in (*plan.delete, *recycled):
        refusal = observed.refusals.get((one.kind, one.name))
        if refusal is not None and refusal.uid == one.uid:
            yield Problem(ROLLED_OUT, refusal.reason, f"{one.kind} {one.name} cannot be deleted: {refusal.message}")


def _without_capacity(snapshot: Snapshot, intent: Intent, want: Desired) -> Iterator[Problem]:
    """Yield a problem for each incomplete role whose pods do not fit on the nodes. If another revision runs, nothing is
    yielded, because the rollout reports the reason.
    """
    if any(has_started(found) for name, found in snapshot.slices.items() if name != intent.target):
        return
    lacking = {one.role.component for one in want.progress if not one.is_complete}
    for lack in intent.fit.lacks:
        for component in lack.components:
            if component in lacking:
                yield Problem(CONDITION[component], Reason.DOES_NOT_FIT, lack.sentence)


def _waiting(placing: GangPlan, want: Desired) -> Iterator[Problem]:
    """Yield a problem for each role with groups that wait for nodes."""
    for each in want.progress:
        groups = placing.withheld.get(each.role.component, 0)
        if groups and not each.is_complete:
            why = placing.waits or "admission, because the service has just released nodes or other services come first"
            of = f" ({groups} of {each.role.groups} groups)" if each.role.groups > 1 else ""
            before = f"; at the last attempt, pods could not be created: {placing.refused}" if placing.refused else ""
            message = f"{each.role.title}{of} waits for {why}{before}"
            yield Problem(CONDITION[each.role.component], Reason.WAITING_FOR_ROOM, message)


def _urls(intent: Intent, want: Desired) -> dict[str, str]:
    owner = intent.owner
    return {
        component: f"http://{names.component(owner.name, component)}.{owner.namespace}.{services.DOMAIN}:{port}"
        for component, port in want.ports.items()
    }
