"""Reduce a Plan to the effects that are carried out while a service is held (frozen or in observe mode), and report the
other effects (docs/observe-freeze.md).

Every field of a Plan has a rule for a freeze and a rule for observe mode. A field without a rule is dropped, so that a new
field has no effect while a service is held until somebody has decided about it (decisions 29).
`tests/unit/core/freeze/test_plan_filter.py` checks all fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.freeze.hold import Hold
from ome_operator.core.observed.slices import controlled_or_adoptable
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import FROZEN as CONDITION
from ome_operator.core.reasons import ORDER, READY, ROLLED_OUT, Reason, record_of
from ome_operator.core.reconcile.plan import Apply, Delete, EnsureSecret, Patch, Plan
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery.record import with_first_starts
from ome_operator.core.resolve.pinned import PART_NAMES
from ome_operator.core.rollout import image_pulls
from ome_operator.core.rollout.drain import serving_again
from ome_operator.core.rollout.step import stored_hold
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.progress import RoleProgress
from ome_operator.core.status.service import Report
from ome_operator.core.waves.shared_edits import whole_before

MENDED = frozenset({"Service", "ServiceAccount", "Role", "RoleBinding"})
"""Kinds of objects that route requests to pods and create no pods. If somebody changes or deletes such an object while
the service is frozen, the operator restores the object."""
SHOWN = 3
"""Number of names of objects of one kind that the list of suppressed steps shows."""
MOST = 600
"""Largest number of characters of the list of suppressed steps. The message must also state who froze the service and how
to end the freeze."""

Rule = Callable[[Any, Snapshot], Any]


# --- what is carried out ------------------------------------------------------------------------------------------------


def _passes(value: Any, _: Snapshot) -> Any:
    return value


def _nothing(_: Any, __: Snapshot) -> tuple[Any, ...]:
    return ()


def _at_no_time(_: float | None, __: Snapshot) -> None:
    """Return None as the time of the next pass: while a service is held, no timeout of a rollout or a recycle runs, so no
    timeout needs another pass.
    """


def _mended(applies: Iterable[Apply], snapshot: Snapshot) -> tuple[Apply, ...]:
    return tuple(item for item in applies if item.kind in MENDED and _as_it_was(item, snapshot))


def _as_it_was(apply: Apply, snapshot: Snapshot) -> bool:
    """Return whether an apply only restores an object as the operator applied it before: somebody else has changed the
    object, or the object is missing although pods need it. Also return True if the object is a Service that sends
    requests to the registries of routers, and the apply makes the Service send requests to the routers again.
    """
    metadata = apply.manifest["metadata"]
    found = snapshot.observed.children.get((apply.kind, metadata["name"]))
    if found is None:
        component = (metadata.get("labels") or {}).get(keys.COMPONENT, "")
        return any(component in ("", pod.component) for pod in snapshot.pods)
    if keys.ANSWERED_BY in found.labels and keys.ANSWERED_BY not in metadata["labels"]:
        # Engines are ready, and requests must not be answered with 503 for as long as the freeze lasts.
        return apply.uid == found.uid
    return apply.uid == found.uid and found.hash == metadata["annotations"][keys.HASH]


def _taken_back(_: Iterable[Patch], snapshot: Snapshot) -> tuple[Patch, ...]:
    """Return patches that make all draining leaders serve again, even leaders that have to be removed, because a freeze
    may last long.
    """
    return serving_again(snapshot.observed, snapshot.pods)


def _begun(rolls: bool, snapshot: Snapshot) -> bool:
    """Return whether the rollout of the edit of a shared object to this service had begun before the freeze. If it had,
    other services wait for this service. If it had not, other services get the edit first.
    """
    return rolls and len(snapshot.slices.keys() | whole_before(snapshot.service.status)) > 1


def _pulling(_: int, snapshot: Snapshot) -> int:
    """Return the number of Jobs of the service that already pull images. The Jobs that the plan would create are not
    counted, because no Job is created while the service is held.
    """
    return image_pulls.active_pulls(snapshot)


FROZEN: Mapping[str, Rule] = {
    "check": _passes,
    "look": _passes,
    "first": _nothing,
    "ensure_secret": _nothing,
    "apply": _mended,
    "create": _nothing,
    "apply_status": _passes,
    "patch": _taken_back,
    "scale": _nothing,
    "delete": _nothing,
    "recycle": _nothing,
    "status": _passes,
    "urgent": _passes,
    "events": _passes,
    "pulls": _pulling,
    "rolls": _begun,
    "stands": _passes,
    "nodes": _passes,
    "claim": _passes,
    "demand": _passes,
    "watch_failures": _passes,
    "requeue_after": _at_no_time,
}
"""Maps each field of a Plan to the rule that returns the part of the field that is carried out while a service is frozen."""
OBSERVED: Mapping[str, Rule] = {
    **FROZEN,
    "check": _nothing,
    "apply": _nothing,
    "apply_status": _nothing,
    "patch": _nothing,
    "events": _nothing,
}
"""Maps each field of a Plan to the rule that returns the part of the field that is carried out in observe mode. Only the
status is written in this mode."""


def allowed_plan(plan: Plan, hold: Hold, snapshot: Snapshot) -> Plan:
    """Return the part of a plan that is carried out while `hold` applies."""
    rules = OBSERVED if hold.is_observe_mode else FROZEN
    return Plan(**{name: rules[name](getattr(plan, name), snapshot) for name in _FIELDS if name in rules})


_FIELDS = tuple(item.name for item in fields(Plan))


# --- what is suppressed -------------------------------------------------------------------------------------------------


def suppressed_steps(plan: Plan, less: Plan) -> tuple[str, ...]:
    """Return a text for each suppressed step of a plan, such as "create Service a". `less` is the part of the plan that is
    carried out.
    """
    return tuple(word for name in _FIELDS if name in SAYS for word in _blocked(name, plan, less))


def _blocked(name: str, plan: Plan, less: Plan) -> Iterator[str]:
    passes = getattr(less, name)
    return SAYS[name]([item for item in getattr(plan, name) if item not in passes])


def _secrets(items: Sequence[EnsureSecret]) -> Iterator[str]:
    yield from _many("create", ((item.manifest["kind"], item.manifest["metadata"]["name"]) for item in items))


def _applies(items: Sequence[Apply]) -> Iterator[str]:
    for verb, found in (("create", False), ("change", True)):
        mine = (item for item in items if bool(item.uid) is found)
        yield from _many(verb, ((item.kind, item.manifest["metadata"]["name"]) for item in mine))


def _deletions(items: Iterable[Delete], reason: str = "") -> Iterator[str]:
    yield from (word + reason for word in _many("delete", ((item.kind, item.name) for item in items)))


def _marks(items: Sequence[Patch]) -> Iterator[str]:
    notes = [(item, item.body["metadata"]["annotations"]) for item in items]
    drained = [(item, changed[keys.DRAINING]) for item, changed in notes if keys.DRAINING in changed]
    yield from _many("drain", ((item.kind, item.name) for item, mark in drained if mark))
    yield from _many("stop draining", ((item.kind, item.name) for item, mark in drained if not mark))
    yield from _many("annotate", ((item.kind, item.name) for item, changed in notes if keys.DRAINING not in changed))


SAYS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "check": lambda items: (f"validate revision {item.revision.partition('.')[0]} in a dry run" for item in items),
    "first": lambda items: (f"store revision {item.manifest['metadata']['labels'][keys.REVISION]}" for item in items),
    "ensure_secret": _secrets,
    "apply": _applies,
    "create": _secrets,
    "apply_status": lambda items: _many(
        "report the status of", ((item.manifest["kind"], item.manifest["metadata"]["name"]) for item in items)
    ),
    "patch": _marks,
    "delete": _deletions,
    "scale": lambda items: _many("scale", ((item.kind, item.name) for item in items)),
    "recycle": lambda items: (word for item in items for word in _deletions(item.delete, " to recycle their group")),
}
"""Maps each field of a Plan that has effects to the function that yields texts about its suppressed steps."""


def _many(verb: str, found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a text for each kind of object, such as "create 2 StatefulSets (a, b)"."""
    named: dict[str, list[str]] = {}
    for kind, name in found:
        named.setdefault(kind, []).append(name)
    for kind, all_names in named.items():
        if len(all_names) == 1:
            yield f"{verb} {kind} {all_names[0]}"
            continue
        plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
        more = ", …" if len(all_names) > SHOWN else ""
        yield f"{verb} {len(all_names)} {plural} ({', '.join(all_names[:SHOWN])}{more})"


# --- what is reported ---------------------------------------------------------------------------------------------------


def condition(hold: Hold, steps: Iterable[str] | None) -> cond.Condition:
    """Return the condition Frozen. `steps` contains the texts of `suppressed_steps` about the suppressed steps; None if
    these were not computed.
    """
    waits = ", ".join(steps or ())
    if len(waits) > MOST:
        waits = waits[:MOST] + " …"
    asked = [] if steps is None else [f"would {waits}" if waits else "no change is pending"]
    return cond.Condition(CONDITION, True, hold.reason, "; ".join([hold.sentence, *asked, hold.ends]))


def with_frozen_condition(
    status: Mapping[str, Any],
    before: Mapping[str, Any],
    hold: Hold | None,
    steps: Iterable[str] | None,
    generation: int,
    now: datetime,
) -> dict[str, Any]:
    """Return the status with the condition Frozen, or without this condition if `hold` is None. `before` is the stored
    status. `generation` is the generation of the object.
    """
    conditions = status.get("conditions") or []
    others = [item for item in conditions if item.get("type") != CONDITION]
    if hold is None:
        return dict(status) if len(others) == len(conditions) else {**status, "conditions": others}
    stamped = cond.format_conditions([condition(hold, steps)], before.get("conditions") or (), generation, now)
    order = {name: number for number, name in enumerate(ORDER)}
    return {
        **status,
        "conditions": sorted([*others, *stamped], key=lambda item: order.get(item.get("type") or "", len(order))),
    }


def hold_report(report: Report, hold: Hold, snapshot: Snapshot) -> Report:
    """Return the report for the status of a held service. It contains the present state of the pods, and the stored values
    of all fields on which later decisions are based. Only evidence that groups have served is added to these stored
    values.

    After the freeze, the operator therefore finds the same state as after a restart. A revision that is not stored is not
    named, because nothing was created for it.
    """
    before, stored = report.before, {item.name for item in snapshot.revisions}
    new = report.revision not in stored
    rollout = _rolled_out(report, hold, new, snapshot)
    unreachable = _unreachable(report, hold, snapshot)
    return replace(
        report,
        problems=(*report.problems, *unreachable),
        progress=tuple(_far(item, hold, snapshot) for item in report.progress),
        url=str(before.get("url") or ""),
        revision=str(before.get("revision") or "").rpartition("→")[2] if new else report.revision,
        serving=tuple(snapshot.slices),
        updated={} if new else report.updated,
        rollout=rollout,
        hold=_hold(report, hold, snapshot) if rollout is not None and not rollout.status else {},
        rejected=tuple(before.get("rejected") or ()),
        tokens={words.token: before[words.token] for words in PART_NAMES.values() if before.get(words.token)},
        groups=with_first_starts(before.get("groups") or (), report.groups),
        placement=_placement(before.get("placement") or {}, report.placement),
        recovered=_held_back(report.recovered, hold),
        moves=tuple(before.get("moves") or ()),
        moved=_held_back(report.moved, hold),
        zero=before.get("zero") or {},
    )


def _placement(stored: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored `status.placement`, which a hold keeps, unless `now`, its value without a hold, states that the
    service has served since its groups were created (`attempts.Record.anew`).
    """
    serves = stored.get("anew") and now.get("revision") == stored.get("revision") and not now.get("anew")
    return {**stored, "anew": False} if serves else dict(stored)


def _unreachable(report: Report, hold: Hold, snapshot: Snapshot) -> tuple[Problem, ...]:
    """Return a problem if pods are ready and the Service that leads to them is missing, because observe mode does not
    create it.
    """
    name = snapshot.service.name
    if not hold.is_observe_mode or not report.serves or snapshot.controlled("Service", name) is not None:
        return ()
    return (
        Problem(
            READY,
            hold.reason,
            f"{hold.sentence}; the Service {name} does not exist, and the operator does not create it now",
        ),
    )


def _far(item: RoleProgress, hold: Hold, snapshot: Snapshot) -> RoleProgress:
    """Return the progress of a role. If workloads of the role are missing, the reason is replaced by the reason of the hold,
    because no workloads are created now.
    """
    found = [snapshot.observed.children.get(key) for key in item.role.workloads]
    made = all(child is not None and controlled_or_adoptable(child, snapshot.service.uid) for child in found)
    return item if made or item.reason != Reason.CREATING else item._replace(reason=hold.reason)


def _rolled_out(report: Report, hold: Hold, new: bool, snapshot: Snapshot) -> cond.Condition | None:
    """Return the condition RolledOut of a held service. Its message states the hold and other causes for which the revision
    waits. If the rollout would only be in progress, the message states that the revision waits or, if no other revision is
    on the cluster, that it is not complete. `new` is true if the revision is not stored yet.
    """
    item = report.rollout
    if item is None or (item.status and not new):
        return item
    detail = item.message
    if item.status or record_of(item.reason).is_in_progress:
        alone = not new and snapshot.slices.keys() == {report.revision}
        detail = f"revision {report.revision} {'is not complete' if alone else 'waits'}"
    return cond.Condition(ROLLED_OUT, False, hold.reason, f"{hold.sentence}; {detail}")


def _held_back(item: cond.Condition | None, hold: Hold) -> cond.Condition | None:
    """Return the condition Recovered or Moved. If groups have failed or have to leave their nodes, its reason is the reason
    of the hold, because they are neither restarted nor moved now. `item` is the condition without the hold; if it is None or
    True, it is returned unchanged.
    """
    if item is None or item.status:
        return item
    return cond.Condition(item.type, False, hold.reason, f"{hold.sentence}; {item.message}")


def _hold(report: Report, hold: Hold, snapshot: Snapshot) -> dict[str, Any]:
    """Return why the rollout does not proceed, as `rolloutHold` of the status of a component."""
    known = stored_hold(report.before)
    same = (known.get("gate"), known.get("target")) == (hold.reason, report.revision)
    since = known.get("since") if same else None
    entry = {"gate": str(hold.reason), "reason": hold.sentence, "target": report.revision}
    return {**entry, "since": since or snapshot.now.isoformat(timespec="seconds")}
