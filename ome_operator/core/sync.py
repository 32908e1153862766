"""The pure centre: what a service is, what it may use and what exists, in; everything that has to be done, out.

No I/O, no randomness, no clock of its own: the shell calls `sync` whenever something changed, and carries the plan out. A
second call after the plan was carried out plans nothing.
"""

from dataclasses import replace
from datetime import datetime

from ome_operator.api import InferenceService, migrate
from ome_operator.core.desired import desired
from ome_operator.core.diff import changes
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.plan import Plan
from ome_operator.core.recovery.recover import recover
from ome_operator.core.report import report
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.rollout import progress_deadline, revisions, shared_edits
from ome_operator.core.rollout.intent import choose
from ome_operator.core.rollout.replicas import numbers
from ome_operator.core.rollout.slices import slices
from ome_operator.core.rollout.step import decide
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.service import events, status, urgent

ANOTHER_RETRY = 60.0
"""Seconds until we look again whether another operator still writes our service's status."""


def sync(service: InferenceService, deps: Deps, observed: Observed, now: datetime) -> Plan:
    """One pass over one service."""
    if service.deleting:  # owner references remove everything: nothing to do and nothing to say
        return Plan(status=dict(service.status))
    if observed.another:
        return _another(service, observed.another, now)
    if (present_form := migrate(service.spec)) is not service.spec:
        service = replace(service, spec=present_form)  # type: ignore[arg-type]
    known = revisions.stored(observed.children.values(), service.uid)
    resolved = resolve(service, deps, revisions.inputs(known))
    present = slices(observed, service.uid)
    choice = choose(service, resolved, deps, observed, present, known)
    clock = progress_deadline.clock(service, choice.aim, present, now)
    shared = shared_edits.shared(choice.aim.wish, present.keys() | shared_edits.whole_before(service.status), choice.data)
    ahead = observed.ahead if shared and choice.aim.rejection is None else ""  # going back waits for nobody
    have = numbers(choice, present)
    decision = decide(service.name, choice.target, present, choice.gate, have, ahead)
    want = desired(service, resolved, choice, decision, observed, present, have, now, deps.registry_image)
    plan = changes(service, choice, decision, want, observed, present)
    recovery = recover(service, resolved, choice, want, observed, present, deps.nodes, now)
    gathered = report(service, resolved, choice, decision, have, want, plan, clock, observed, present, recovery, deps, now)
    said = status(gathered)
    # By what is said now: no event follows our own write of the status, and others wait for this service's turn to end.
    still = shared_edits.shared(choice.aim.wish, present.keys() | shared_edits.whole_before(said), choice.data)
    return replace(
        plan,
        check=choice.check,
        apply_status=want.scale_status,
        delete=(*plan.delete, *recovery.delete),
        recycle=recovery.recycle,
        status=said,
        urgent=recovery.urgent or urgent(service.status, said),
        events=(*recovery.events, *events(service.status.get("conditions") or (), said["conditions"])),
        rolls=still and (decision.rolls or decision.keep == (choice.target,)),
        watch_failures=want.missing,
        requeue_after=min(
            (one for one in (plan.requeue_after, clock.again, recovery.again) if one is not None), default=None
        ),
    )


def refuse_spec(before: dict[str, object], generation: int, reason: str, why: str, now: datetime) -> Plan:
    """The plan for a service that cannot be read (InvalidSpec) or handled (InternalError): say so and touch nothing."""
    old = before.get("conditions")
    stored = [one for one in old if isinstance(one, dict)] if isinstance(old, list) else []
    wanted = cond.Condition(cond.READY, False, reason, why)
    kept = [one for one in stored if one.get("type") != cond.READY]
    said = [*kept, *cond.stamp([wanted], stored, generation, now)]
    return Plan(status={**before, "observedGeneration": generation, "conditions": said}, events=events(stored, said))


def _another(service: InferenceService, manager: str, now: datetime) -> Plan:
    why = (
        f"{manager} also writes this service's status: two operators would fight over it. Stop one of them "
        "(docs/migrate.md); nothing is changed until five minutes after its last write"
    )
    stored = service.status.get("conditions") or ()
    wanted = [cond.Condition(cond.ANOTHER, True, "ForeignManager", why)]
    said = [one for one in stored if one.get("type") in cond.ORDER] + cond.stamp(wanted, stored, service.generation, now)
    return Plan(status={**service.status, "conditions": said}, urgent=False, requeue_after=ANOTHER_RETRY)
