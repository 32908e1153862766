"""Compute the plan of a service in a pure function, from its spec, the objects that it may use, and the objects that
exist.

`sync` performs no I/O, uses no randomness and has no clock of its own. The controllers call it whenever something has
changed, and carry out its plan. If `sync` is called again after the plan was carried out, it plans nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, migrate
from ome_operator.core.freeze import plan_filter
from ome_operator.core.freeze.hold import Hold, active_hold
from ome_operator.core.moves import moving as moves
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.observed.slices import controlled_or_adoptable, has_former_name
from ome_operator.core.placement import making_room, second_copy
from ome_operator.core.placement.gangs import decide_gangs
from ome_operator.core.reasons import ANOTHER, ORDER, READY, ROLLED_OUT, Reason
from ome_operator.core.reconcile import demand
from ome_operator.core.reconcile.decided import PassDecisions
from ome_operator.core.reconcile.desired import Desired, desired_objects
from ome_operator.core.reconcile.diff import changes
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.report import report
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery.recover import recover
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.rollout import image_pulls, own_lack, progress_deadline, revisions, scheduled_zero, zero
from ome_operator.core.rollout.dry_run import with_dry_run
from ome_operator.core.rollout.intent import Intent, choose
from ome_operator.core.rollout.replicas import replica_counts
from ome_operator.core.rollout.step import decide_step, without_withheld
from ome_operator.core.status import conditions as cond
from ome_operator.core.status import serving, virtual
from ome_operator.core.status.service import events, is_urgent, status
from ome_operator.core.waves import shared_edits

ANOTHER_RETRY = 60.0
"""Seconds until the next check of whether another operator still writes the status of our service."""


def sync(service: InferenceService, deps: Deps, observed: Observed, now: datetime) -> Plan:
    """Return the plan of one reconciliation pass over a service."""
    if service.deleting:  # The garbage collector removes all objects of the service, so there is nothing to do or to report.
        return Plan(status=dict(service.status))
    held = active_hold(deps, service.namespace, service.name, service.annotations)
    snapshot = Snapshot(_in_present_form(service), deps, observed, now)
    plan = _left_alone(snapshot)
    if plan is not None:
        return with_hold(plan, service.status, held, service.generation, now)
    return _worked_on(snapshot, service, held)


def _left_alone(snapshot: Snapshot) -> Plan | None:
    """Return the plan for a service that must not be changed; None if it may be changed."""
    service, observed, now = snapshot.service, snapshot.observed, snapshot.now
    if observed.another:
        return _another(service, observed.another, now)
    if virtual.is_virtual(service):
        left = any(controlled_or_adoptable(child, service.uid) for child in observed.children.values())
        return Plan(status=virtual.virtual_status(service, left, now))
    if former := _former(snapshot):
        return refuse_spec(dict(service.status), service.generation, Reason.FORMER_SHAPE, former, now)
    return None


def _worked_on(snapshot: Snapshot, as_written: InferenceService, hold: Hold | None) -> Plan:
    """Return the plan for a service. If the service is held (frozen or observed), the plan contains only the effects that
    may be carried out, and the status lists the other effects.
    """
    decided = _decide(snapshot, as_written, frozen=hold is not None)
    work = _work(decided)
    found = report(decided, work)
    if hold is None:
        return _with_status(decided, work, status(found))
    plan = _with_status(decided, work, status(plan_filter.hold_report(found, hold, snapshot)))
    less = plan_filter.allowed_plan(plan, hold, snapshot)
    recycled = (f"recycle {group}" for group in decided.recovery.recycled_groups)
    steps = [*_ways(snapshot, decided.intent), *plan_filter.suppressed_steps(plan, less), *recycled]
    done = with_hold(less, snapshot.service.status, hold, snapshot.service.generation, snapshot.now, steps)
    return replace(done, urgent=decided.recovery.is_urgent or is_urgent(snapshot.service.status, done.status))


def _decide(snapshot: Snapshot, as_written: InferenceService, *, frozen: bool) -> PassDecisions:
    """Make all decisions about a service. If `frozen` is true, no timeout runs, because nothing is carried out now."""
    service = snapshot.service
    # Which revision is the target, what does it wait for, and how long has it made no progress?
    intent = choose(snapshot, resolve(service, snapshot.deps, snapshot.inputs, as_written=as_written))
    intent = with_dry_run(snapshot, intent)
    pending = _pending(snapshot, intent, service.status)
    clock = progress_deadline.STOPPED if frozen else progress_deadline.clock(snapshot, intent.aim)
    # How many groups does each slice have now, and how many may it have after this pass?
    counts = replica_counts(snapshot, intent)
    ahead = _ahead(snapshot, intent, pending)
    waited = making_room.waited_for_capacity(service.status)
    intent = image_pulls.pulled_first(snapshot, intent, counts, begins=not ahead and not waited)
    if not ahead or waited:
        intent = making_room.with_capacity(snapshot, intent, counts.bounds)
    if not ahead:
        intent = second_copy.add_second_copy_advice(snapshot, intent, counts)
    step = decide_step(service.name, intent.target, snapshot.slices, intent.gate, counts, ahead)
    # Which groups have to leave their nodes, and which roles have one more group for that?
    moving = moves.decide_moves(snapshot, intent, step, frozen=frozen)
    step, intent = moves.add_replacements(step, moving), moves.exclude_nodes(intent, moving)
    # Which of the desired groups wait for nodes?
    placing = decide_gangs(snapshot, intent, step, held=frozen)
    step = without_withheld(step, intent.target, placing.withheld)
    # Which objects should exist, and which groups have failed?
    want = desired_objects(snapshot, intent, step, counts, placing, moving)
    return PassDecisions(
        snapshot=snapshot, intent=intent, pending=tuple(pending), clock=clock, counts=counts, step=step, placing=placing,
        moving=moving, want=want,
        recovery=recover(snapshot, intent, want.held, frozen=frozen), zero=_zero(snapshot, intent, want),
    )  # fmt: skip


def _zero(snapshot: Snapshot, intent: Intent, want: Desired) -> Mapping[str, Any]:
    """Return the field `zero` of the status. It describes a service in which some role has, or once had, no groups."""
    serves = serving.can_serve(snapshot.slices, snapshot.revisions, routed=want.front == keys.ROUTER)
    return zero.state(zero.facts(snapshot, intent.groups, serves=serves))


def _work(decided: PassDecisions) -> Plan:
    """Return the writes and deletions of a pass, and the time until the next pass."""
    intent, placing, want, recovery = decided.intent, decided.placing, decided.want, decided.recovery
    snapshot, written = decided.snapshot, changes(decided.snapshot, intent, decided.step, want, placing)
    moving = decided.moving
    by_schedule = scheduled_zero.writes(snapshot, intent.policies, goes=demand.removes_all_groups(decided))
    return replace(
        written,
        check=intent.check,
        look=intent.capacity_checks,
        apply_status=want.scale_status,
        patch=(*written.patch, *moving.patch),
        delete=(*written.delete, *recovery.delete, *moving.delete),
        scale=zero.wake_patches(snapshot, decided.zero, intent.groups) or by_schedule,
        recycle=recovery.recycle,
        pulls=intent.pulls.active,
        nodes=intent.fit.asked or placing.claim is not None or moving.depends_on_nodes,
        claim=placing.claim,
        demand=demand.task(decided),
        watch_failures=want.missing,
        requeue_after=_earliest(
            written.requeue_after,
            decided.clock.seconds_until_pass,
            recovery.again,
            placing.again,
            intent.fit.again,
            moving.again,
            zero.seconds_until_change(decided.zero, snapshot.now),
            demand.seconds_until_pass(decided),
            intent.pulls.again,
        ),
    )


def _with_status(decided: PassDecisions, work: Plan, new_status: dict[str, Any]) -> Plan:
    """Add to the plan `work` the `new_status`, and the data that other parts of the operator need about the rollout."""
    snapshot, intent, step, recovery = decided.snapshot, decided.intent, decided.step, decided.recovery
    before = snapshot.service.status
    # Computed from the new status, because our own status write triggers no event, and other services wait for this
    # service.
    waits = _pending(snapshot, intent, new_status)
    failed = intent.aim.rejection is not None or decided.clock.left == 0 or _refused(new_status)
    earlier = snapshot.slices.keys() | shared_edits.whole_before(new_status)
    mistaken = _refused(new_status) and shared_edits.edited_itself(intent.aim.wish, earlier, intent.data)
    lacks = own_lack.waiting_since(snapshot, intent, decided.clock, decided.placing.status_placement) if waits else None
    if lacks is None and intent.aim.rejection is not None:
        lacks = own_lack.when_rejected(intent.aim.rejection, snapshot.now)
    return replace(
        work,
        status=new_status,
        urgent=recovery.is_urgent or is_urgent(before, new_status),
        events=(*recovery.events, *events(before.get("conditions") or (), new_status["conditions"])),
        rolls=bool(waits) and (step.rolls or step.keep == (intent.target,)),
        stands=shared_edits.edit_states(
            intent.epochs,
            waits,
            failed=failed,
            current=intent.current,
            status=new_status,
            now=snapshot.now,
            lacks=lacks,
            left_out=mistaken,
        ),
    )


def _refused(status: Mapping[str, Any]) -> bool:
    """Return whether a status reports that the API server or the rules of `ome lint` refused the revision, so that its
    rollout cannot begin until somebody corrects the cause.
    """
    why = {each["type"]: each["reason"] for each in status["conditions"]}.get(ROLLED_OUT)
    return why in (Reason.DRY_RUN_REFUSED, Reason.CONFIGURATION_REFUSED)


def _ways(snapshot: Snapshot, intent: Intent) -> Iterator[str]:
    """Yield a text that describes the complete rollout, for a service that is held. The plan contains only the next step of
    the rollout.
    """
    others = [name for name in snapshot.slices if name != intent.target]
    if others and intent.target:
        yield f"replace revision {', '.join(others)} with {intent.target}"


def with_hold(
    plan: Plan,
    before: Mapping[str, Any],
    hold: Hold | None,
    generation: int,
    now: datetime,
    steps: Iterable[str] | None = None,
) -> Plan:
    """Return the plan with the condition Frozen in its status. The condition lists the `steps` that are not carried out.
    `generation` is the generation of the object.

    `before` is the stored status. If `hold` is None, the status has no condition Frozen.
    """
    new_status = plan_filter.with_frozen_condition(plan.status, before, hold, steps, generation, now)
    return replace(plan, status=new_status, events=() if hold is not None and hold.is_observe_mode else plan.events)


def _former(snapshot: Snapshot) -> str:
    """Return why the service must not be changed: an older version of the operator made its objects in a form that this
    version does not support. Return "" if there is no such object.
    """
    found = {
        one.name for one in snapshot.revisions if revisions.is_former_format(one) and snapshot.has_statefulset(one.name)
    }
    found |= {name for name, present in snapshot.slices.items() if any(map(has_former_name, present.workloads))}
    if not found:
        return ""
    return (
        f"revision {', '.join(sorted(found))} was created by an older version of this operator, which had one StatefulSet "
        "for all leaders, so nothing of this service is changed. Run the older version again, or delete the "
        "InferenceService, which ends its pods, and apply it again"
    )


def _in_present_form(service: InferenceService) -> InferenceService:
    """Return the service with fields of older API versions converted to fields of the present version."""
    spec = migrate(service.spec)
    return service if spec is service.spec else replace(service, spec=spec)  # type: ignore[arg-type]


def _ahead(snapshot: Snapshot, intent: Intent, pending: Collection[Ref]) -> str:
    """Return a text about the wave that the service waits for; "" if it need not wait."""
    if intent.aim.rejection is not None or not pending:
        return ""  # a rollback waits for no wave
    return snapshot.observed.ahead({ref: intent.epochs[ref] for ref in pending})


def _pending(snapshot: Snapshot, intent: Intent, status: Mapping[str, Any]) -> dict[Ref, bool]:
    """Return the shared objects whose edits are being rolled out to this service, each with whether the edit is narrow
    (`EditStand.narrow`). The revisions that were complete last are read from `status`.
    """
    before = snapshot.slices.keys() | shared_edits.whole_before(status)
    found = shared_edits.pending_edits(intent.aim.wish, before, intent.data)
    return {ref: narrow for ref, narrow in found.items() if ref in intent.epochs}


def _earliest(*seconds: float | None) -> float | None:
    return min((wait for wait in seconds if wait is not None), default=None)


def refuse_spec(
    before: dict[str, object], generation: int, reason: str, why: str, now: datetime, *, serves: bool = False
) -> Plan:
    """Return the plan for a service that cannot be read (InvalidSpec) or handled (InternalError). The plan only reports the
    reason: under RolledOut if the pods of the service serve (`serves`), otherwise under Ready. `reason` and `why` are the
    reason and the message of the condition, and `before` is the stored status. `generation` is the generation of the
    service.
    """
    old = before.get("conditions")
    stored = [one for one in old if isinstance(one, dict)] if isinstance(old, list) else []
    wanted = [cond.Condition(READY, False, reason, why)]
    if serves:
        answers = cond.Condition(READY, True, Reason.SERVING, f"{before.get('url') or 'the service'} serves")
        wanted = [cond.Condition(ROLLED_OUT, False, reason, why), answers]
    types = {each.type for each in wanted}
    kept = [one for one in stored if one.get("type") not in types]
    conditions = cond.with_summary(
        [*kept, *cond.format_conditions(wanted, stored, generation, now)], stored, generation, now
    )
    return Plan(
        status={**before, "observedGeneration": generation, "conditions": conditions}, events=events(stored, conditions)
    )


def _another(service: InferenceService, manager: str, now: datetime) -> Plan:
    why = (
        f"another operator ({manager}) also writes the status of this service: stop one of the two operators "
        "(docs/migrate.md). This operator changes nothing until five minutes after the last write of the other "
        "operator"
    )
    stored = service.status.get("conditions") or ()
    wanted = [cond.Condition(ANOTHER, True, Reason.FOREIGN_MANAGER, why)]
    conditions = [one for one in stored if one.get("type") in ORDER] + cond.format_conditions(
        wanted, stored, service.generation, now
    )
    conditions = cond.with_summary(conditions, stored, service.generation, now)
    return Plan(status={**service.status, "conditions": conditions}, urgent=False, requeue_after=ANOTHER_RETRY)
