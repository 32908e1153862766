"""What a pass decided, as people read and tests compare it: steps, status, events. Contents of manifests are left out."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reconcile.plan import Apply, Delete, Guard, NodeLost, Plan

_MISSING = object()


class Decision(NamedTuple):
    """The plan of a pass, or the error that it ended in."""

    steps: tuple[str, ...] = ()
    """What is to be done, in this order."""
    status: Mapping[str, Any] = {}
    events: tuple[str, ...] = ()
    again: float | None = None
    """Seconds until the next pass even if nothing happens."""
    nodes: bool = False
    """Whether it rests on which nodes there are."""
    error: str = ""
    """What `sync` raised; the rest is empty then."""


def decision(plan: Plan) -> Decision:
    """What a plan decides."""
    events = tuple(f"{event.type} {event.reason}: {event.message}" for event in plan.events)
    return Decision(tuple(_steps(plan)), plan.status, events, plan.requeue_after, plan.nodes)


def failed(error: Exception) -> Decision:
    """That there is no plan."""
    return Decision(error=f"{type(error).__name__}: {error}")


def _steps(plan: Plan) -> Iterator[str]:
    yield from (f"try revision {check.revision} in a dry run" for check in plan.check)
    for secret in plan.ensure_secret:
        yield f"make {_called(secret.manifest)}"
    for apply in (*plan.first, *plan.apply):
        yield _applied(apply)
    yield from (f"create {_called(create.manifest)}" for create in plan.create)
    yield from (f"tell the status of {_called(told.manifest)}" for told in plan.apply_status)
    for patch in plan.patch:
        marks = ((patch.body.get("metadata") or {}).get("annotations") or {}).get(keys.DRAINING)
        yield f"{'drain' if marks else 'patch'} {patch.kind} {patch.name}"
    yield from map(_deleted, plan.delete)
    for recycle in plan.recycle:
        yield from (f"recycle: {_deleted(delete)}" for delete in recycle.delete)


def _called(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _applied(apply: Apply) -> str:
    said = f"{'change' if apply.uid else 'create'} {_called(apply.manifest)}"
    replicas = (apply.manifest.get("spec") or {}).get("replicas")
    return said + (f" with {replicas} replicas" if replicas is not None else "") + _if(apply.guard)


def _deleted(delete: Delete) -> str:
    grace = "" if delete.grace is None else f" within {delete.grace} s"
    return f"delete {delete.kind} {delete.name}{grace}{_if(delete.guard)}"


def _if(guard: Guard | NodeLost | None) -> str:
    if isinstance(guard, NodeLost):
        return f" if node {guard.node} is lost"
    return f" if no pod matches {guard.selector}" if guard is not None else ""


def plain(decided: Decision) -> dict[str, Any]:
    """As JSON; what is empty is left out."""
    found = decided._asdict() | {"steps": list(decided.steps), "events": list(decided.events)}
    return {name: value for name, value in found.items() if value not in ((), [], {}, None, False, "")}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two decisions, as JSON, do not have in common; [] where they are the same."""
    nothing: dict[str, Any] = {"steps": [], "events": []}
    return list(_differ("", {**nothing, **then}, {**nothing, **_renamed(now, then)}))


def _renamed(now: Mapping[str, Any], then: Mapping[str, Any]) -> Any:
    """A decision in which a new revision has the name that it had then: a name is a digest, also of what was redacted."""
    mine, other = _new(now), _new(then)
    if len(mine) != 1 or len(other) != 1:
        return now
    return _replaced(now, *mine, *other)


def _new(decided: Mapping[str, Any]) -> set[str]:
    """The revisions that a decision records or tries."""
    found = re.compile(r"(?:try revision (\S+) |create ControllerRevision \S+-([0-9a-f]{8,10})$)")
    return {match[1] or match[2] for step in decided.get("steps") or () if (match := found.match(step))}


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _replaced(inner, old, new) for key, inner in value.items()}
    return [_replaced(inner, old, new) for inner in value] if isinstance(value, list | tuple) else value


def _differ(where: str, then: Any, now: Any) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*then, *now)):
            yield from _differ(f"{where}.{key}" if where else key, then.get(key, _MISSING), now.get(key, _MISSING))
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple):
        if where in ("steps", "events"):
            yield from (f"{where}: no longer {step}" for step in then if step not in now)
            yield from (f"{where}: now {step}" for step in now if step not in then)
            if list(then) != list(now) and sorted(then) == sorted(now):
                yield f"{where}: in another order"
            return
        for number in range(max(len(then), len(now))):
            yield from _differ(
                f"{where}[{number}]", *(side[number] if number < len(side) else _MISSING for side in (then, now))
            )
    elif then != now:
        yield f"{where}: {_shown(then)} then, {_shown(now)} now"


def _shown(value: Any) -> str:
    return "nothing" if value is _MISSING else repr(value)
