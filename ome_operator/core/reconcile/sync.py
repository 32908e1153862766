"""The pure centre: what a service is, what it may use and what exists, in; everything that has to be done, out.

No I/O, no randomness, no clock of its own: the shell calls `sync` whenever something changed, and carries the plan out. A
second call after the plan was carried out plans nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ome_operator.api import InferenceService, migrate
from ome_operator.core.freeze import plan_filter
from ome_operator.core.freeze.hold import Brake, brake
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.observed.slices import nameless
from ome_operator.core.placement import making_room
from ome_operator.core.placement.gangs import place
from ome_operator.core.reasons import ANOTHER, ORDER, READY, ROLLED_OUT, Reason
from ome_operator.core.reconcile.decided import Decided
from ome_operator.core.reconcile.desired import desired
from ome_operator.core.reconcile.diff import changes
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.report import report
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery.recover import recover
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.rollout import progress_deadline, revisions
from ome_operator.core.rollout.intent import Intent, choose
from ome_operator.core.rollout.replicas import replica_counts
from ome_operator.core.rollout.step import decide, without
from ome_operator.core.status import conditions as cond
from ome_operator.core.status import virtual
from ome_operator.core.status.service import events, status, urgent
from ome_operator.core.waves import shared_edits

ANOTHER_RETRY = 60.0
"""Seconds until we look again whether another operator still writes our service's status."""


def sync(service: InferenceService, deps: Deps, observed: Observed, now: datetime) -> Plan:
    """One pass over one service."""
    if service.deleting:  # owner references remove everything: nothing to do and nothing to say
        return Plan(status=dict(service.status))
    held = brake(deps, service.namespace, service.name, service.annotations)
    snapshot = Snapshot(_in_present_form(service), deps, observed, now)
    plan = _left_alone(snapshot)
    if plan is not None:
        return braked(plan, service.status, held, service.generation, now)
    return _worked_on(snapshot, service, held)


def _left_alone(snapshot: Snapshot) -> Plan | None:
    """The plan for a service of which nothing is touched; None where something may be."""
    service, observed, now = snapshot.service, snapshot.observed, snapshot.now
    if observed.another:
        return _another(service, observed.another, now)
    if virtual.virtual(service):
        return Plan(status=virtual.status(service, bool(observed.children), now))
    if former := _former(snapshot):
        return refuse_spec(dict(service.status), service.generation, Reason.FORMER_SHAPE, former, now)
    return None


def _worked_on(snapshot: Snapshot, as_written: InferenceService, held: Brake | None) -> Plan:
    """The plan for a service; where something holds it, what of the plan is carried out, and the rest in its status."""
    decided = _decide(snapshot, as_written, frozen=held is not None)
    work = _work(decided)
    found = report(decided, work)
    if held is None:
        return _told(decided, work, status(found))
    plan = _told(decided, work, status(plan_filter.told(found, held, snapshot)))
    less = plan_filter.allowed(plan, held, snapshot)
    recycled = (f"recycle {group}" for group in decided.recovery.begun)
    steps = [*_ways(snapshot, decided.intent), *plan_filter.would(plan, less), *recycled]
    done = braked(less, snapshot.service.status, held, snapshot.service.generation, snapshot.now, steps)
    return replace(done, urgent=decided.recovery.urgent or urgent(snapshot.service.status, done.status))


def _decide(snapshot: Snapshot, as_written: InferenceService, *, frozen: bool) -> Decided:
    """All that is decided about a service; `frozen`: no time counts against anything, and nobody carries it out now."""
    service = snapshot.service
    # Which revision does the service go to, what does it wait for, and for how long has it not come farther?
    intent = choose(snapshot, resolve(service, snapshot.deps, snapshot.inputs, as_written=as_written))
    pending = _pending(snapshot, intent, service.status)
    clock = progress_deadline.STOPPED if frozen else progress_deadline.clock(snapshot, intent.aim)
    # How many groups does each slice have now, and how many may it have after this pass?
    counts = replica_counts(snapshot, intent)
    ahead = _ahead(snapshot, intent, pending)
    if not ahead or making_room.waited(service.status):
        intent = making_room.with_room(snapshot, intent, counts.bounds)
    step = decide(service.name, intent.target, snapshot.slices, intent.gate, counts, ahead)
    # Which of the wanted groups wait for nodes?
    placing = place(snapshot, intent, step, held=frozen)
    step = without(step, intent.target, placing.withheld)
    # What should exist, and which groups have failed?
    want = desired(snapshot, intent, step, counts, placing)
    return Decided(
        snapshot=snapshot, intent=intent, pending=tuple(pending), clock=clock, counts=counts, step=step, placing=placing,
        want=want, recovery=recover(snapshot, intent, want.held, frozen=frozen),
    )  # fmt: skip


def _work(decided: Decided) -> Plan:
    """What has to be written and deleted, and when to look again."""
    intent, placing, want, recovery = decided.intent, decided.placing, decided.want, decided.recovery
    written = changes(decided.snapshot, intent, decided.step, want, placing)
    return replace(
        written,
        check=intent.check,
        look=intent.look,
        apply_status=want.scale_status,
        delete=(*written.delete, *recovery.delete),
        recycle=recovery.recycle,
        nodes=intent.fit.asked or placing.claim is not None,
        claim=placing.claim,
        watch_failures=want.missing,
        requeue_after=_earliest(written.requeue_after, decided.clock.again, recovery.again, placing.again),
    )


def _told(decided: Decided, work: Plan, said: dict[str, Any]) -> Plan:
    """The work, the status that goes with it, and what the rest of the process learns from both."""
    snapshot, intent, step, recovery = decided.snapshot, decided.intent, decided.step, decided.recovery
    before = snapshot.service.status
    # By what is said now: no event follows our own write of the status, and others wait for this service's turn to end.
    waits = _pending(snapshot, intent, said)
    failed = intent.aim.rejection is not None or decided.clock.left == 0 or _refused(said)
    return replace(
        work,
        status=said,
        urgent=recovery.urgent or urgent(before, said),
        events=(*recovery.events, *events(before.get("conditions") or (), said["conditions"])),
        rolls=bool(waits) and (step.rolls or step.keep == (intent.target,)),
        stands=shared_edits.stands(
            intent.epochs, waits, failed=failed, current=intent.current, status=said, now=snapshot.now
        ),
    )


def _refused(status: Mapping[str, Any]) -> bool:
    """Whether what was asked for cannot begin until somebody edits it."""
    why = {each["type"]: each["reason"] for each in status["conditions"]}.get(ROLLED_OUT)
    return why in (Reason.DRY_RUN_REFUSED, Reason.CONFIGURATION_REFUSED)


def _ways(snapshot: Snapshot, intent: Intent) -> Iterator[str]:
    """Where a rollout goes, for its plan says the next step only."""
    others = [name for name in snapshot.slices if name != intent.target]
    if others and intent.target:
        yield f"replace revision {', '.join(others)} by {intent.target}"


def braked(
    plan: Plan,
    before: Mapping[str, Any],
    held: Brake | None,
    generation: int,
    now: datetime,
    steps: Iterable[str] | None = None,
) -> Plan:
    """A plan whose status says what holds, and which `steps` are not done for that, where any could be.

    `before` is the status stored now.
    """
    said = plan_filter.marked(plan.status, before, held, steps, generation, now)
    return replace(plan, status=said, events=() if held is not None and held.observed else plan.events)


def _former(snapshot: Snapshot) -> str:
    """Why nothing of this service is touched, "" where it may be: an older operator made what runs in another shape."""
    found = {one.name for one in snapshot.revisions if revisions.former(one) and snapshot.made(one.name)}
    found |= {name for name, present in snapshot.slices.items() if any(map(nameless, present.workloads))}
    if not found:
        return ""
    return (
        f"revision {', '.join(sorted(found))} was made by an older version of this operator, which had one StatefulSet for "
        "all leaders: nothing of this service is changed. Run that version again, or delete the InferenceService, which "
        "ends its pods, and apply it anew"
    )


def _in_present_form(service: InferenceService) -> InferenceService:
    """The service with fields of older versions of the API written as those of today."""
    spec = migrate(service.spec)
    return service if spec is service.spec else replace(service, spec=spec)  # type: ignore[arg-type]


def _ahead(snapshot: Snapshot, intent: Intent, pending: Collection[Ref]) -> str:
    """The wave that this service waits for; "" when nobody has to be waited for."""
    if intent.aim.rejection is not None or not pending:
        return ""  # going back waits for nobody
    return snapshot.observed.ahead({ref: intent.epochs[ref] for ref in pending})


def _pending(snapshot: Snapshot, intent: Intent, status: Mapping[str, Any]) -> dict[Ref, bool]:
    """The objects whose edits are rolled out here and reach other services too; `status` names what is whole."""
    before = snapshot.slices.keys() | shared_edits.whole_before(status)
    found = shared_edits.pending(intent.aim.wish, before, intent.data)
    return {ref: narrow for ref, narrow in found.items() if ref in intent.epochs}


def _earliest(*seconds: float | None) -> float | None:
    return min((wait for wait in seconds if wait is not None), default=None)


def refuse_spec(before: dict[str, object], generation: int, reason: str, why: str, now: datetime) -> Plan:
    """The plan for a service that cannot be read (InvalidSpec) or handled (InternalError): say so and touch nothing."""
    old = before.get("conditions")
    stored = [one for one in old if isinstance(one, dict)] if isinstance(old, list) else []
    wanted = cond.Condition(READY, False, reason, why)
    kept = [one for one in stored if one.get("type") != READY]
    said = [*kept, *cond.stamp([wanted], stored, generation, now)]
    return Plan(status={**before, "observedGeneration": generation, "conditions": said}, events=events(stored, said))


def _another(service: InferenceService, manager: str, now: datetime) -> Plan:
    why = (
        f"{manager} also writes this service's status: two operators would fight over it. Stop one of them "
        "(docs/migrate.md); nothing is changed until five minutes after its last write"
    )
    stored = service.status.get("conditions") or ()
    wanted = [cond.Condition(ANOTHER, True, Reason.FOREIGN_MANAGER, why)]
    said = [one for one in stored if one.get("type") in ORDER] + cond.stamp(wanted, stored, service.generation, now)
    return Plan(status={**service.status, "conditions": said}, urgent=False, requeue_after=ANOTHER_RETRY)
