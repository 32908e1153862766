"""The decision of a pass in a form that people read and tests compare: steps, status and events, without the contents of
manifests.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reasons import RECONCILING, STALLED
from ome_operator.core.reconcile.plan import Apply, Delete, Guard, NodeLost, Plan

_MISSING = object()


class Decision(NamedTuple):
    """The plan of a pass, or the exception with which the pass ended."""

    steps: tuple[str, ...] = ()
    """The steps of the plan, in order."""
    status: Mapping[str, Any] = {}
    events: tuple[str, ...] = ()
    again: float | None = None
    """Seconds until the next pass if nothing changes; None if no pass is planned."""
    nodes: bool = False
    """Whether the decision depends on which nodes exist."""
    error: str = ""
    """Text of the exception that `sync` raised; "" if `sync` returned a plan. If there is an exception, the other fields
    are empty."""


def decision(plan: Plan) -> Decision:
    """Return the parts of a plan that a recording stores."""
    events = tuple(f"{event.type} {event.reason}: {event.message}" for event in plan.events)
    return Decision(tuple(_steps(plan)), plan.status, events, plan.requeue_after, plan.nodes)


def failed_decision(error: Exception) -> Decision:
    """Return the decision of a pass that ended with an exception."""
    return Decision(error=f"{type(error).__name__}: {error}")


def _steps(plan: Plan) -> Iterator[str]:
    yield from (f"try revision {check.revision} in a dry run" for check in plan.check)
    for secret in plan.ensure_secret:
        yield f"make {_object_name(secret.manifest)}"
    for apply in (*plan.first, *plan.apply):
        yield _apply_text(apply)
    yield from (f"create {_object_name(create.manifest)}" for create in plan.create)
    yield from (f"tell the status of {_object_name(told.manifest)}" for told in plan.apply_status)
    for patch in plan.patch:
        marks = ((patch.body.get("metadata") or {}).get("annotations") or {}).get(keys.DRAINING)
        yield f"{'drain' if marks else 'patch'} {patch.kind} {patch.name}"
    yield from map(_delete_text, plan.delete)
    for recycle in plan.recycle:
        yield from (f"recycle: {_delete_text(delete)}" for delete in recycle.delete)


def _object_name(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _apply_text(apply: Apply) -> str:
    message = f"{'change' if apply.uid else 'create'} {_object_name(apply.manifest)}"
    replicas = (apply.manifest.get("spec") or {}).get("replicas")
    return message + (f" with {replicas} replicas" if replicas is not None else "") + _condition_text(apply.guard)


def _delete_text(delete: Delete) -> str:
    grace = "" if delete.grace is None else f" within {delete.grace} s"
    return f"delete {delete.kind} {delete.name}{grace}{_condition_text(delete.guard)}"


def _condition_text(guard: Guard | NodeLost | None) -> str:
    if isinstance(guard, NodeLost):
        return f" if node {guard.node} is lost"
    return f" if no pod matches {guard.selector}" if guard is not None else ""


def decision_json(decided: Decision) -> dict[str, Any]:
    """Return a decision as JSON, without empty fields."""
    found = decided._asdict() | {"steps": list(decided.steps), "events": list(decided.events)}
    return {name: value for name, value in found.items() if value not in ((), [], {}, None, False, "")}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between two decisions in JSON; [] if they are equal. The conditions Stalled and Reconciling
    are not compared, because they are derived from the other conditions, and are missing in older recordings.
    """
    nothing: dict[str, Any] = {"steps": [], "events": []}
    return list(_differ("", {**nothing, **_without_summary(then)}, {**nothing, **_without_summary(_renamed(now, then))}))


def _without_summary(decided: Mapping[str, Any]) -> Mapping[str, Any]:
    status = decided.get("status")
    if not isinstance(status, Mapping) or not isinstance(status.get("conditions"), list | tuple):
        return decided
    kept = [one for one in status["conditions"] if not _is_summary(one)]
    return {**decided, "status": {**status, "conditions": kept}}


def _is_summary(condition: Any) -> bool:
    return isinstance(condition, Mapping) and condition.get("type") in (RECONCILING, STALLED)


def _renamed(now: Mapping[str, Any], then: Mapping[str, Any]) -> Any:
    """Return the decision `now` with new revisions renamed as in `then`. A revision's name contains a digest, which also
    covers values that were redacted, so the names differ in a replay.
    """
    mine, other = _new(now), _new(then)
    if len(mine) != 1 or len(other) != 1:
        return now
    return _replaced(now, *mine, *other)


def _new(decided: Mapping[str, Any]) -> set[str]:
    """Return the names of the revisions that a decision creates or starts to roll out."""
    found = re.compile(r"(?:try revision (\S+) |create ControllerRevision \S+-([0-9a-f]{8,10})$)")
    return {match[1] or match[2] for step in decided.get("steps") or () if (match := found.match(step))}


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _replaced(inner, old, new) for key, inner in value.items()}
    return [_replaced(inner, old, new) for inner in value] if isinstance(value, list | tuple) else value


def _differ(location: str, then: Any, now: Any) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*then, *now)):
            yield from _differ(f"{location}.{key}" if location else key, then.get(key, _MISSING), now.get(key, _MISSING))
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple):
        if location in ("steps", "events"):
            yield from (f"{location}: no longer {step}" for step in then if step not in now)
            yield from (f"{location}: now {step}" for step in now if step not in then)
            if list(then) != list(now) and sorted(then) == sorted(now):
                yield f"{location}: the order differs"
            return
        for number in range(max(len(then), len(now))):
            yield from _differ(
                f"{location}[{number}]", *(side[number] if number < len(side) else _MISSING for side in (then, now))
            )
    elif then != now:
        yield f"{location}: {_value_text(then)} in the recording, {_value_text(now)} now"


def _value_text(value: Any) -> str:
    return "nothing" if value is _MISSING else repr(value)
