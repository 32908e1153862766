"""Replay recorded passes. For each pass, return the inputs, the decision, the conditions, and the differences from the
recorded decision.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.recorder.decision import Decision, decision, decision_json, differences, failed_decision
from ome_operator.recorder.passes import Pass
from ome_operator.recorder.recording import ReplayedRecording

LINES = 40
"""Maximum number of lines that describe the inputs or the differences of a pass."""
LONGEST = 100
"""Maximum number of characters of a value in a line."""


class ReplayedPass(NamedTuple):
    """The result of replaying one pass."""

    number: int
    when: str
    saw: tuple[str, ...]
    """Inputs that differ from the previous pass. For the first pass, all inputs."""
    steps: tuple[str, ...]
    """Steps of the plan."""
    why: tuple[str, ...]
    """Conditions that changed, with their messages. For the first pass, all conditions."""
    again: float | None
    error: str
    other: tuple[str, ...]
    """Differences between the replayed and the recorded decision."""


def replay(passes: Iterable[ReplayedRecording], redacted: bool) -> Iterator[ReplayedPass]:
    """Replay recorded passes one after the other, and yield the result of each.

    If `redacted` is true, the recording contains placeholders, so that digests differ from the digests of the recorded
    objects. An object that was up to date in the recording is then treated as up to date.
    """
    before: Mapping[str, Any] = {}
    for number, old in enumerate(passes, 1):
        decided = decide_again(old.replayed_pass, redacted)
        now = decision_json(decided)
        yield ReplayedPass(
            number,
            old.replayed_pass.now.isoformat()
            + (f" ({old.replayed_pass.times} times)" if old.replayed_pass.times > 1 else ""),
            tuple(_first(old.saw) if number == 1 else _changes(old.before, old.saw)),
            decided.steps,
            tuple(_reasons(before, decided.status)),
            decided.again,
            decided.error,
            tuple(differences(old.recorded_decision, now)[:LINES]),
        )
        before = decided.status


def decide_again(recorded: Pass, redacted: bool = False) -> Decision:
    """Return the decision of `sync` for a recorded pass. `redacted` is true if the recording contains placeholders."""
    try:
        plan = sync(recorded.service, recorded.deps, recorded.observed, recorded.now)
        if redacted:
            observed = as_applied(plan, recorded.observed, recorded.decided.steps)
            plan = plan if observed is recorded.observed else sync(recorded.service, recorded.deps, observed, recorded.now)
        return decision(plan)
    except Exception as error:  # a file may contain anything, so an exception of `sync` is returned as a result
        return failed_decision(error)


def as_applied(plan: Plan, observed: Observed, steps: Collection[str] = ()) -> Observed:
    """Return the observed state in which objects are treated as up to date, if the plan changes them and no user has
    edited them.

    Objects whose change is among the recorded `steps` are excluded. The function is used when the process cannot reproduce
    the complete contents of manifests.
    """
    children = dict(observed.children)
    for apply in plan.apply:
        key = apply.kind, str(apply.manifest["metadata"]["name"])
        live = children.get(key)
        is_recorded = any(step.startswith(f"change {' '.join(key)}") for step in steps)
        if apply.uid and live is not None and observed.is_intact(live) and not is_recorded:
            desired_hash = apply.manifest["metadata"]["annotations"][keys.HASH]
            children[key] = live._replace(hash=desired_hash, owned=desired_hash)
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
    lines = [
        f"{name} {key}: {_change(before.get(name, {}).get(key), value)}"
        for name, table in saw.items()
        for key, value in table.items()
        if (name, key) != ("service", "status")  # the operator itself writes the status
    ]
    return lines[:LINES] + ([f"and {len(lines) - LINES} more"] if len(lines) > LINES else [])


def _change(old: Any, new: Any) -> str:
    """Return a changed fact as one line."""
    if new is None:
        return "was deleted"
    if not isinstance(new, dict):
        return _short(new)
    if not isinstance(old, dict):
        return "was added"
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name) and name != "version"]
    return ", ".join(f"{name} {_short(old.get(name))} → {_short(new.get(name))}" for name in names) or "is unchanged"


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _reasons(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    known = {_fields(condition) for condition in before.get("conditions") or ()}
    for condition in after.get("conditions") or ():
        if _fields(condition) not in known:
            type_, status, reason, message = _fields(condition)
            yield f"{type_} {status}: {reason}" + (f": {message}" if message else "")


def _fields(condition: Mapping[str, Any]) -> tuple[str, str, str, str]:
    field = condition.get
    return str(field("type")), str(field("status")), str(field("reason")), str(field("message") or "")
