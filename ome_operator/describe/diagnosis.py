"""Why a service is not ready: what its conditions, pods and events say, alike things together, each with a next step."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.reasons import ANOTHER, CONDITION, ORDER, READY, Reason, record_of
from ome_operator.describe.text import count
from ome_operator.describe.tree import MISSING, WHEN_TRUE, GroupView, Rank, RoleView, Tree

EVENTS = 8
"""Newest events that are told."""


@dataclass(frozen=True)
class Seen:
    """An event about something of the service."""

    when: datetime
    type: str
    """Normal or Warning."""
    reason: str
    about: str
    """Kind and name."""
    message: str
    count: int


@dataclass(frozen=True)
class Symptom:
    """A condition that is not as it should be."""

    condition: str
    reason: str
    message: str
    since: str
    """RFC 3339, "" when it is not known."""
    next: str
    """What to do, "" when the message says it."""


@dataclass(frozen=True)
class Stuck:
    """Pods of a role that are not ready for the same reason."""

    role: str
    reason: str
    message: str
    pods: tuple[str, ...]
    """Names; "" for those that do not exist."""
    lacks: tuple[str, ...]
    """What speaks against the nodes, the most frequent first: the scheduler's words."""
    next: str


@dataclass(frozen=True)
class Trouble:
    """All of it."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    findings: tuple[Symptom, ...]
    pods: tuple[Stuck, ...]
    events: tuple[Seen, ...]
    pin: str = ""
    """The revision that it is pinned to; "" without a pin."""


def trouble(tree: Tree, conditions: Sequence[Mapping[str, Any]], events: Iterable[Seen]) -> Trouble:
    """What keeps a service from being ready; `events` are those about it and its objects.

    What happened before a service became ready is over: of a service that is ready, only later events are told.
    """
    pods = tuple(_stuck(tree))
    told = [stuck.message for stuck in pods if stuck.message]
    since = _ready_since(conditions) if tree.ready else None
    late = (event for event in events if since is None or event.when > since)
    return Trouble(
        namespace=tree.namespace,
        name=tree.name,
        ready=tree.ready,
        reason=tree.reason,
        message=tree.message,
        findings=tuple(_findings(tree, conditions)),
        pods=pods,
        events=tuple(_news(event for event in late if not any(words in event.message for words in told))),
        pin=tree.pin,
    )


def _ready_since(conditions: Iterable[Mapping[str, Any]]) -> datetime | None:
    """When the condition Ready changed last; None when it does not say."""
    said = next((found.get("lastTransitionTime") for found in conditions if found.get("type") == READY), None)
    try:
        when = datetime.fromisoformat(str(said or ""))
    except ValueError:
        return None
    return when if when.tzinfo is not None else None


def _findings(tree: Tree, conditions: Iterable[Mapping[str, Any]]) -> Iterable[Symptom]:
    """In the order in which a person reads them; Ready only repeats the others."""
    found = {one.get("type"): one for one in conditions}
    shown = {(CONDITION[role.component], rank.reason) for role, _, rank in _unready(tree)}
    for name in dict.fromkeys((ANOTHER, *ORDER)):
        one = found.get(name) or {}
        bad = "True" if name in WHEN_TRUE else "False"
        reason = one.get("reason") or ""
        # What the pods say is told with the pods; that a revision comes up says nothing beside it.
        if name == READY or one.get("status") != bad or (name, reason) in shown or reason == Reason.PROGRESSING:
            continue
        yield Symptom(name, reason, one.get("message") or "", one.get("lastTransitionTime") or "", step(reason, tree))


def _stuck(tree: Tree) -> Iterable[Stuck]:
    alike: dict[tuple[str, str, str], list[Rank]] = {}
    groups: dict[tuple[str, str, str], set[int]] = {}
    for role, group, rank in _unready(tree):
        key = role.role, rank.reason, rank.message
        alike.setdefault(key, []).append(rank)
        groups.setdefault(key, set()).add(group.group)
    for key, ranks in alike.items():
        name, reason, message = key
        which = f"--role {name}" + (f" --group {min(groups[key])}" if name != keys.ROUTER else "")
        pods = tuple(rank.pod for rank in ranks)
        yield Stuck(name, reason, message, pods, tuple(lacks(message)), step(reason, tree, which, name))


def _unready(tree: Tree) -> Iterator[tuple[RoleView, GroupView, Rank]]:
    for _, role, group in tree.groups():
        yield from ((role, group, rank) for rank in group.ranks if not rank.ready)


def lacks(message: str) -> list[str]:
    """What speaks against how many nodes, from the scheduler's sentence, the most frequent first."""
    head, found, rest = message.partition(" nodes are available: ")
    if not found or not re.fullmatch(r"\d+/\d+", head):
        return []
    # A taint is shown as {key: value, …}: commas inside braces separate nothing.
    parts = [part.strip(" .") for part in re.split(r",(?![^{]*\})\s*(?=\d+ )", rest)]
    matches = (re.fullmatch(r"(\d+) (?:node\(s\) )?(.+)", part, re.DOTALL) for part in parts)
    known = [(int(match[1]), match[2]) for match in matches if match]
    return [f"{count(number, 'node')}: {why}" for number, why in sorted(known, key=lambda one: -one[0])]


def _news(events: Iterable[Seen]) -> list[Seen]:
    """Newest first, the same words about several objects once."""
    found: dict[tuple[str, str], Seen] = {}
    for one in sorted(events, key=lambda one: one.when):
        if one.type != "Warning":
            continue
        key = one.reason, one.message
        before = found.pop(key, None)
        found[key] = replace(one, count=one.count + before.count) if before else one
    return list(reversed(found.values()))[:EVENTS]


def step(reason: str, tree: Tree, which: str = "", role: str = "") -> str:
    """Return what to do about a reason, with the names filled in; "" where the message of the condition contains it.

    `which`: options of `ome logs` that select the pods. `role`: that of the pods, "" for a condition.
    """
    return _remedy(reason, router=role == keys.ROUTER).format(
        service=f"{tree.name} -n {tree.namespace}",
        columns="".join(f" -L {label}" for label in tree.labels),
        holders=f" -l {','.join(f'{label}=Ready' for label in tree.labels)}" if tree.labels else "",
        which=f" {which}" if which else "",
    )


def _remedy(reason: str, *, router: bool) -> str:
    """Return the remedy with the placeholders of `core/reasons/record.py:ReasonRecord.remedy`."""
    record = record_of(reason)
    if not record.printed:
        return _OTHERS.get(reason, "")
    return record.router_remedy if router and record.router_remedy else record.remedy


_OTHERS: Mapping[str, str] = {
    "Error": Reason.CRASH_LOOP_BACK_OFF.remedy,
    "OOMKilled": "the container needs more memory: raise resources.limits.memory of its runner",
    MISSING: "its StatefulSet creates it; if it stays missing, the events have the cause",
}
"""What to do about words that no record has: those with which containers end, and that of a pod that does not exist."""
