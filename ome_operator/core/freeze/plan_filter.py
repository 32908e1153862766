"""What is left of a Plan while somebody holds a brake, and what is said of the rest (docs/observe-freeze.md).

Every field of a Plan has a rule here for both brakes. A field without a rule is dropped: what is new does nothing under a
brake before somebody has thought about it (decisions 29). `tests/unit/core/freeze/test_plan_filter.py` goes
through all fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.freeze.hold import Brake
from ome_operator.core.reasons import FROZEN as CONDITION
from ome_operator.core.reasons import ORDER, RECOVERED, ROLLED_OUT, Reason, record_of
from ome_operator.core.reconcile.plan import Apply, Delete, EnsureSecret, Patch, Plan
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.pinned import WORDS
from ome_operator.core.rollout.drain import serving_again
from ome_operator.core.rollout.step import stored_hold
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.progress import RoleProgress
from ome_operator.core.status.service import Report
from ome_operator.core.waves.shared_edits import whole_before

MENDED = frozenset({"Service", "ServiceAccount", "Role", "RoleBinding"})
"""Kinds that lead requests to pods, and that no pod is made of: a frozen service keeps them as they were."""
SHOWN = 3
"""Names of a kind that are told."""
MOST = 600
"""Characters of what would be done: who froze the service, and how that ends, must fit into the message, too."""

Rule = Callable[[Any, Snapshot], Any]


# --- what may happen ----------------------------------------------------------------------------------------------------


def _passes(value: Any, _: Snapshot) -> Any:
    return value


def _nothing(_: Any, __: Snapshot) -> tuple[Any, ...]:
    return ()


def _at_no_time(_: float | None, __: Snapshot) -> None:
    """No pass for the passing of time: no wait of a rollout or a recycle runs."""


def _mended(applies: Iterable[Apply], snapshot: Snapshot) -> tuple[Apply, ...]:
    return tuple(item for item in applies if item.kind in MENDED and _as_it_was(item, snapshot))


def _as_it_was(apply: Apply, snapshot: Snapshot) -> bool:
    """Whether an apply wants nothing new: somebody changed what we had applied, or it is missing although pods need it."""
    metadata = apply.manifest["metadata"]
    found = snapshot.observed.children.get((apply.kind, metadata["name"]))
    if found is None:
        component = (metadata.get("labels") or {}).get(keys.COMPONENT, "")
        return any(component in ("", pod.component) for pod in snapshot.pods)
    return apply.uid == found.uid and found.hash == metadata["annotations"][keys.HASH]


def _taken_back(_: Iterable[Patch], snapshot: Snapshot) -> tuple[Patch, ...]:
    """Leaders that were marked to go serve again, whether they were to stay or not: a freeze may be long."""
    return serving_again(snapshot.observed, snapshot.pods)


def _begun(rolls: bool, snapshot: Snapshot) -> bool:
    """A service that has not begun with a shared edit lets others go first; half-way the others wait."""
    return rolls and len(snapshot.slices.keys() | whole_before(snapshot.service.status)) > 1


FROZEN: Mapping[str, Rule] = {
    "check": _passes,
    "look": _passes,
    "first": _nothing,
    "ensure_secret": _nothing,
    "apply": _mended,
    "create": _nothing,
    "apply_status": _passes,
    "patch": _taken_back,
    "delete": _nothing,
    "recycle": _nothing,
    "status": _passes,
    "urgent": _passes,
    "events": _passes,
    "rolls": _begun,
    "stands": _passes,
    "nodes": _passes,
    "claim": _passes,
    "watch_failures": _passes,
    "requeue_after": _at_no_time,
}
"""Field of a Plan -> what of it passes while a service is frozen."""
OBSERVED: Mapping[str, Rule] = {
    **FROZEN,
    "check": _nothing,
    "apply": _nothing,
    "apply_status": _nothing,
    "patch": _nothing,
    "events": _nothing,
}
"""The same while it is observed: the status, and what is no write."""


def allowed(plan: Plan, brake: Brake, snapshot: Snapshot) -> Plan:
    """What of a plan is carried out."""
    rules = OBSERVED if brake.observed else FROZEN
    return Plan(**{name: rules[name](getattr(plan, name), snapshot) for name in _FIELDS if name in rules})


_FIELDS = tuple(item.name for item in fields(Plan))


# --- what would happen --------------------------------------------------------------------------------------------------


def would(plan: Plan, less: Plan) -> tuple[str, ...]:
    """What of a plan is not carried out, in words; `less` is what is."""
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


def _deletions(items: Iterable[Delete], why: str = "") -> Iterator[str]:
    yield from (word + why for word in _many("delete", ((item.kind, item.name) for item in items)))


def _marks(items: Sequence[Patch]) -> Iterator[str]:
    marked = [item for item in items if item.body["metadata"]["annotations"][keys.DRAINING]]
    yield from _many("drain", ((item.kind, item.name) for item in marked))
    yield from _many("take back", ((item.kind, item.name) for item in items if item not in marked))


SAYS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "check": lambda items: (f"try revision {item.revision.partition('.')[0]} in a dry run" for item in items),
    "first": lambda items: (f"store revision {item.manifest['metadata']['labels'][keys.REVISION]}" for item in items),
    "ensure_secret": _secrets,
    "apply": _applies,
    "create": _secrets,
    "apply_status": lambda items: _many(
        "tell", ((item.manifest["kind"], item.manifest["metadata"]["name"]) for item in items)
    ),
    "patch": _marks,
    "delete": _deletions,
    "recycle": lambda items: (word for item in items for word in _deletions(item.delete, " to recycle their group")),
}
"""Field of a Plan with steps -> what is told of those that are not carried out."""


def _many(verb: str, found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Such as "create 2 StatefulSets (a, b)", for each kind."""
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


# --- what is told -------------------------------------------------------------------------------------------------------


def condition(brake: Brake, steps: Iterable[str] | None) -> cond.Condition:
    """The condition Frozen; without `steps` it was not asked what would be done."""
    waits = ", ".join(steps or ())
    if len(waits) > MOST:
        waits = waits[:MOST] + " …"
    asked = [] if steps is None else [f"would {waits}" if waits else "nothing waits"]
    return cond.Condition(CONDITION, True, brake.reason, "; ".join([brake.sentence, *asked, brake.ends]))


def marked(
    status: Mapping[str, Any],
    before: Mapping[str, Any],
    brake: Brake | None,
    steps: Iterable[str] | None,
    generation: int,
    now: datetime,
) -> dict[str, Any]:
    """A status with the condition Frozen, or without it where nothing holds any more. `before` is the status stored now."""
    said = status.get("conditions") or []
    others = [item for item in said if item.get("type") != CONDITION]
    if brake is None:
        return dict(status) if len(others) == len(said) else {**status, "conditions": others}
    told = cond.stamp([condition(brake, steps)], before.get("conditions") or (), generation, now)
    order = {name: number for number, name in enumerate(ORDER)}
    return {**status, "conditions": sorted([*others, *told], key=lambda item: order.get(item.get("type") or "", len(order)))}


def told(report: Report, brake: Brake, snapshot: Snapshot) -> Report:
    """What a status is made of: pods as they are now, and everything that later decisions rest on as it is stored.

    So a thaw finds what a restart of the operator would find. A revision that is not stored is not named: nothing was
    created of it.
    """
    before, stored = report.before, {item.name for item in snapshot.revisions}
    new = report.revision not in stored
    rollout = _rolled_out(report, brake, new)
    return replace(
        report,
        progress=tuple(_far(item, brake, snapshot) for item in report.progress),
        url=str(before.get("url") or ""),
        revision=str(before.get("revision") or "").rpartition("→")[2] if new else report.revision,
        serving=tuple(snapshot.slices),
        updated={} if new else report.updated,
        rollout=rollout,
        hold=_hold(report, brake, snapshot) if rollout is not None and not rollout.status else {},
        rejected=tuple(before.get("rejected") or ()),
        tokens={words.token: before[words.token] for words in WORDS.values() if before.get(words.token)},
        groups=tuple(before.get("groups") or ()),
        placement=before.get("placement") or {},
        recovered=_recovered(report.recovered, brake),
    )


def _far(item: RoleProgress, brake: Brake, snapshot: Snapshot) -> RoleProgress:
    """How far a role is: groups whose workloads do not exist are not being created now."""
    made = all(key in snapshot.observed.children for key in item.role.workloads)
    return item if made or item.reason != Reason.CREATING else item._replace(reason=brake.reason)


def _rolled_out(report: Report, brake: Brake, new: bool) -> cond.Condition | None:
    """RolledOut: what else the revision waits for is said, not how far it would come; `new`: it is not stored yet."""
    item = report.rollout
    if item is None or (item.status and not new):
        return item
    detail = f"revision {report.revision} waits" if item.status or record_of(item.reason).moves else item.message
    return cond.Condition(ROLLED_OUT, False, brake.reason, f"{brake.sentence}; {detail}")


def _recovered(item: cond.Condition | None, brake: Brake) -> cond.Condition | None:
    """Recovered: what failed is not brought back now."""
    if item is None or item.status:
        return item
    return cond.Condition(RECOVERED, False, brake.reason, f"{brake.sentence}; {item.message}")


def _hold(report: Report, brake: Brake, snapshot: Snapshot) -> dict[str, Any]:
    """Why the rollout does not move, as the status of a component has it."""
    known = stored_hold(report.before)
    same = (known.get("gate"), known.get("target")) == (brake.reason, report.revision)
    since = known.get("since") if same else None
    said = {"gate": str(brake.reason), "reason": brake.sentence, "target": report.revision}
    return {**said, "since": since or snapshot.now.isoformat(timespec="seconds")}
