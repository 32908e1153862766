"""Passes once more: what each sees, decides and says, and what is other than it was then."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.recorder.decision import Decision, decision, differences, failed, plain
from ome_operator.recorder.passes import Pass
from ome_operator.recorder.recording import Replayed

LINES = 40
"""Lines of what a pass saw, or what is other."""
LONGEST = 100
"""Characters of a value in them."""


class ReplayedPass(NamedTuple):
    """A pass that was made again."""

    number: int
    when: str
    saw: tuple[str, ...]
    """What was other than in the pass before; of the first pass, what there was."""
    steps: tuple[str, ...]
    """What is to be done."""
    why: tuple[str, ...]
    """The conditions that changed, with their sentences; of the first pass, all."""
    again: float | None
    error: str
    other: tuple[str, ...]
    """What is not as it was decided then."""


def replayed(passes: Iterable[Replayed], redacted: bool) -> Iterator[ReplayedPass]:
    """Each pass again. `redacted`: digests may be other for that alone, so an object that was as applied then is so now."""
    before: Mapping[str, Any] = {}
    for number, old in enumerate(passes, 1):
        decided = again(old.made, redacted)
        now = plain(decided)
        yield ReplayedPass(
            number,
            old.made.now.isoformat() + (f" ({old.made.times} times)" if old.made.times > 1 else ""),
            tuple(_first(old.saw) if number == 1 else _changes(old.before, old.saw)),
            decided.steps,
            tuple(_reasons(before, decided.status)),
            decided.again,
            decided.error,
            tuple(differences(old.then, now)[:LINES]),
        )
        before = decided.status


def again(made: Pass, redacted: bool = False) -> Decision:
    """What `sync` decides about a kept pass."""
    try:
        plan = sync(made.service, made.deps, made.observed, made.now)
        if redacted:
            seen = as_applied(plan, made.observed, made.decided.steps)
            plan = plan if seen is made.observed else sync(made.service, made.deps, seen, made.now)
        return decision(plan)
    except Exception as error:  # whatever a file may say: that `sync` raises is an answer
        return failed(error)


def as_applied(plan: Plan, observed: Observed, steps: Collection[str] = ()) -> Observed:
    """What exists, where each object that the plan changes and nobody has edited counts as it is wanted.

    Not those of which a change is among `steps`. For a process that does not know all that manifests are made of.
    """
    children = dict(observed.children)
    for apply in plan.apply:
        key = apply.kind, str(apply.manifest["metadata"]["name"])
        found = children.get(key)
        meant = any(step.startswith(f"change {' '.join(key)}") for step in steps)
        if apply.uid and found is not None and observed.intact(found) and not meant:
            wanted = apply.manifest["metadata"]["annotations"][keys.HASH]
            children[key] = found._replace(hash=wanted, owned=wanted)
    return observed if children == observed.children else replace(observed, children=children)


def _first(saw: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, table in saw.items():
        if name in ("service", "settings", "told"):
            continue
        names = sorted(table)
        if names:
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            yield f"{len(names)} {name}: {', '.join(names[:8])}{more}"


def _changes(before: Mapping[str, Mapping[str, Any]], saw: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = [
        f"{name} {key}: {_change(before.get(name, {}).get(key), value)}"
        for name, table in saw.items()
        for key, value in table.items()
        if (name, key) != ("service", "status")  # that is what the operator has written itself
    ]
    return found[:LINES] + ([f"and {len(found) - LINES} more"] if len(found) > LINES else [])


def _change(old: Any, new: Any) -> str:
    """A changed fact, in a line."""
    if new is None:
        return "is gone"
    if not isinstance(new, dict):
        return _short(new)
    if not isinstance(old, dict):
        return "is new"
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name) and name != "version"]
    return ", ".join(f"{name} {_short(old.get(name))} → {_short(new.get(name))}" for name in names) or "is as it was"


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _reasons(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    known = {_said(condition) for condition in before.get("conditions") or ()}
    for condition in after.get("conditions") or ():
        if _said(condition) not in known:
            type_, status, reason, message = _said(condition)
            yield f"{type_} {status}: {reason}" + (f": {message}" if message else "")


def _said(condition: Mapping[str, Any]) -> tuple[str, str, str, str]:
    told = condition.get
    return str(told("type")), str(told("status")), str(told("reason")), str(told("message") or "")
