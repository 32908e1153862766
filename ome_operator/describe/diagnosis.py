"""Explains why a service is not ready. It groups the problems in the service's conditions, pods and events, and adds the
next step to each.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ome_operator import keys, quantity
from ome_operator.core.demand.facts import COMPONENT_OF
from ome_operator.core.placement.messages import HELD
from ome_operator.core.reasons import ANOTHER, CONDITION, ORDER, READY, SCALED, Reason, ReasonRecord, State, record_of
from ome_operator.core.reasons.pods import FREE_GPUS, LABEL_NODES
from ome_operator.describe.tree import WHEN_TRUE, GroupView, Rank, RoleView, SliceView, Tree
from ome_operator.describe.words import OUTDATED, WORDS
from ome_operator.util.wording import count

EVENTS = 8
"""Maximum number of events that are shown. The newest events are shown."""


@dataclass(frozen=True)
class SeenEvent:
    """An event about a service or about an object of the service."""

    when: datetime
    type: str
    """Type of the event: Normal or Warning."""
    reason: str
    about: str
    """Kind and name of the object that the event is about."""
    message: str
    count: int


@dataclass(frozen=True)
class Symptom:
    """A condition that indicates a problem."""

    condition: str
    reason: str
    message: str
    since: str
    """Time since which the condition has its status, in RFC 3339; "" if unknown. The reason may be newer than this time."""
    next: str
    """The next step of the user; "" if the message already contains it."""


@dataclass(frozen=True)
class StuckPods:
    """Pods of a role that are not ready for the same reason."""

    role: str
    reason: str
    message: str
    pods: tuple[str, ...]
    """Names of the pods. A pod that does not exist has the name ""."""
    lacks: tuple[str, ...]
    """The reasons why the scheduler rejected nodes, in the scheduler's words, the most frequent reason first. They are
    followed by the services that occupy the nodes."""
    next: str


@dataclass(frozen=True)
class ServiceTrouble:
    """All problems that keep a service from being ready, from its conditions, pods and events."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    findings: tuple[Symptom, ...]
    pods: tuple[StuckPods, ...]
    events: tuple[SeenEvent, ...]
    missing: str = ""
    """The reason why desired groups are missing; "" if all groups are ready."""
    pin: str = ""
    """The revision to which the service is pinned; "" if it is not pinned."""
    late: str = ""
    """A sentence which states that no operator has renewed its Lease in time; "" if an operator has renewed it, or if this
    is unknown.
    """
    next: str = ""
    """What to do if the reason of the service is `Outdated` and `late` is "". Otherwise "", because `findings`, `pods` or
    `late` then contain the next step."""
    back: str = ""
    """How to return to the last complete revision; "" unless pods of a newer revision need a person's action."""


def find_trouble(
    tree: Tree,
    conditions: Sequence[Mapping[str, Any]],
    events: Iterable[SeenEvent],
    groups: Iterable[Mapping[str, Any]] = (),
    back: str = "",
) -> ServiceTrouble:
    """Return the problems that keep a service from being ready. `events` are the events about the service and its objects.
    `groups` are the records of its groups, in the form of `status.groups`. `back` is the revision to which an undo would
    return; "" if there is no such revision.

    For a service whose groups are all ready, only events after they became ready are returned, because earlier problems are
    over.
    """
    pods = tuple(_stuck(tree, conditions))
    messages = [stuck.message for stuck in pods if stuck.message]
    since = _complete_since(conditions, groups) if tree.ready and tree.missing is None else None
    late = (event for event in events if since is None or event.when > since)
    return ServiceTrouble(
        namespace=tree.namespace,
        name=tree.name,
        ready=tree.ready,
        reason=tree.reason,
        message=tree.message,
        findings=tuple(_findings(tree, conditions)),
        pods=pods,
        events=tuple(_news(event for event in late if not any(words in event.message for words in messages))),
        missing=tree.missing.reason if tree.missing is not None else "",
        pin=tree.pin,
        late=tree.late,
        next=step(OUTDATED, tree) if tree.reason == OUTDATED and not tree.late else "",
        back=_undo(tree, back),
    )


def _undo(tree: Tree, back: str) -> str:
    """Return how to go back to a complete revision; "" unless pods of the wanted revision need a person's action."""
    bad = (part for part, _, _, rank in _unready(tree) if not rank.draining and _broken(rank))
    if not back or tree.pin or all(part.revision != tree.revision for part in bad):
        return ""
    return f"revision {back} was complete before; to go back to this revision: ome undo {tree.name} -n {tree.namespace}"


def _broken(rank: Rank) -> bool:
    """Return whether a rank has a problem that requires a person's action and that pods of an older revision may not
    have.
    """
    if rank.reason in WORDS:
        return WORDS[rank.reason].state is State.BROKEN
    record = record_of(rank.reason)
    return record.state is State.BROKEN and not record.passing and rank.reason != Reason.NODE_LOST


def _complete_since(conditions: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the latest of the times at which the condition Ready changed, the condition Scaled changed, and a group became
    ready; None if there is no such time. The groups are needed because the conditions may stay the same while a group is
    replaced.
    """
    transitions = [found.get("lastTransitionTime") for found in conditions if found.get("type") in (READY, SCALED)]
    times = [quantity.parse_instant(text) for text in (*transitions, *(group.get("readySince") for group in groups))]
    return max((when for when in times if when is not None), default=None)


def _findings(tree: Tree, conditions: Iterable[Mapping[str, Any]]) -> Iterable[Symptom]:
    """Yield the problems that conditions report, in reading order. The conditions Ready and Scaled are left out,
    because they repeat other conditions.
    """
    found = {item.get("type"): item for item in conditions}
    shown = {(CONDITION[role.component], rank.reason) for _, role, _, rank in _unready(tree)}
    for name in dict.fromkeys((ANOTHER, *ORDER)):
        item = found.get(name) or {}
        bad = "True" if name in WHEN_TRUE else "False"
        reason = item.get("reason") or ""
        # Reasons of pods are shown with the pods, and the reason Progressing adds nothing.
        if name in (READY, SCALED) or item.get("status") != bad or (name, reason) in shown or reason == Reason.PROGRESSING:
            continue
        yield Symptom(
            name,
            reason,
            item.get("message") or "",
            item.get("lastTransitionTime") or "",
            next_step(reason, item.get("message") or "", tree),
        )


def _stuck(tree: Tree, conditions: Sequence[Mapping[str, Any]]) -> Iterable[StuckPods]:
    alike: dict[tuple[str, str, str, tuple[str, ...]], list[Rank]] = {}
    groups: dict[tuple[str, str, str, tuple[str, ...]], set[int]] = {}
    components: dict[str, str] = {}
    slices: dict[tuple[str, ...], SliceView] = {}
    for part, role, group, rank in _unready(tree):
        components[role.role], slices[part.labels] = role.component, part
        key = role.role, rank.reason, rank.message, part.labels
        alike.setdefault(key, []).append(rank)
        groups.setdefault(key, set()).add(group.group)
    for key, ranks in alike.items():
        name, reason, message, labels = key
        which = f"--role {name}" + (f" --group {min(groups[key])}" if name != keys.ROUTER else "")
        pods = tuple(rank.pod for rank in ranks)
        why = (*scheduler_reasons(message), *(_held(conditions, components[name]) if reason == Reason.UNSCHEDULABLE else ()))
        yield StuckPods(name, reason, message, pods, why, next_step(reason, message, tree, which, name, slices[labels]))


def _held(conditions: Iterable[Mapping[str, Any]], component: str) -> Iterator[str]:
    """Yield who occupies the nodes that the pods of a component need, from the message of the component's condition."""
    for found in conditions:
        if found.get("type") == CONDITION[component]:
            parts = (found.get("message") or "").split("; ")
            yield from (part for part in parts if HELD in part)


def _unready(tree: Tree) -> Iterator[tuple[SliceView, RoleView, GroupView, Rank]]:
    for part, role, group in tree.groups():
        yield from ((part, role, group, rank) for rank in group.ranks if not rank.ready)


def scheduler_reasons(message: str) -> list[str]:
    """Return the reasons in a message of the scheduler, each with its number of nodes. The most frequent reason is first."""
    head, found, rest = message.partition(" nodes are available: ")
    if not found or not re.fullmatch(r"\d+/\d+", head):
        return []
    matches = (
        re.fullmatch(r"(\d+) (?:node\(s\) )?(?:were |had )?(.+)", part.strip(" ."), re.DOTALL) for part in _parts(rest)
    )
    known = [(int(match[1]), match[2]) for match in matches if match]
    return [f"{count(number, 'node')}: {why}" for number, why in sorted(known, key=lambda item: -item[0])]


def _parts(reasons: str) -> Iterator[str]:
    """Yield the reasons in a message of the scheduler. A taint is printed as {key: value, …}: commas inside braces do not
    separate reasons.
    """
    inside, start = False, 0
    for found in re.finditer(r"[{}]|,\s*+(?=\d++ )", reasons):
        if found[0] in "{}":
            inside = found[0] == "{"
        elif not inside:
            yield reasons[start : found.start()]
            start = found.end()
    yield reasons[start:]


def _news(events: Iterable[SeenEvent]) -> list[SeenEvent]:
    """Return the newest events of the type Warning, at most `EVENTS`."""
    return merge_events(item for item in events if item.type == "Warning")[:EVENTS]


def merge_events(events: Iterable[SeenEvent]) -> list[SeenEvent]:
    """Return the events, newest first. Events with the same message about several objects are merged into the newest of
    them. Routine events of pods (`ROUTINE`, such as Pulled) are merged if they have the same reason, whatever their
    messages.
    """
    found: dict[tuple[str, str, str], SeenEvent] = {}
    for item in sorted(events, key=lambda item: item.when):
        routine = item.type == "Normal" and item.reason in ROUTINE
        key = item.type, item.reason, "" if routine else item.message
        before = found.pop(key, None)
        found[key] = replace(item, count=item.count + before.count) if before else item
    return list(reversed(found.values()))


ROUTINE = frozenset(
    {"Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "SuccessfulCreate", "SuccessfulDelete"}
)
"""Reasons of Kubernetes' normal events that repeat for each pod of a group, so that they would hide the other events."""


def next_step(reason: str, message: str, tree: Tree, which: str = "", role: str = "", part: SliceView | None = None) -> str:
    """Return the next step for a reason, adapted to the cause that `message` states. The other parameters are those of
    `step`.

    The step of `step` for pods without a node is to free GPUs. But `message` may show another cause: a PersistentVolumeClaim
    that is missing or not bound, a taint, too little of another resource, or a label that no node has.
    """
    if "persistentvolumeclaim" in message.lower():
        return f"create the claim that the message names, or wait until it is bound: kubectl get pvc -n {tree.namespace}"
    known = step(reason, tree, which, role, part)
    first = FREE_GPUS if known.startswith(FREE_GPUS) else ""
    advice = first + _tolerating(message, role) + known.removeprefix(first)
    scarce = dict.fromkeys(_INSUFFICIENT.findall(message))
    if not scarce and scheduler_reasons(message):
        return advice.replace(FREE_GPUS, "")
    if scarce and not any("/" in name for name in scarce):  # names of GPUs have a domain
        return advice.replace(FREE_GPUS, f"free {' and '.join(scarce)} on nodes, ")
    return advice


def _tolerating(message: str, role: str) -> str:
    """Return the part of a next step that names the toleration of a taint in the message; "" if the message names no taint
    that pods of services should tolerate. If `role` is "", the role is taken from the message.
    """
    taints = dict.fromkeys(item for found in _TAINT.findall(message) for item in found if item)
    mine = [name for name in taints if not name.startswith(_NOT_OURS)]
    if not mine:
        return ""
    found = _NEEDS.search(message)
    role = role or (found[1] if found else keys.ENGINE)
    component = COMPONENT_OF.get(role, role)
    return f"add a toleration of {' and '.join(mine)} to spec.{component}.tolerations (if the pods may use such nodes), "


_TAINT = re.compile(r"untolerated taint(?:\(s\))? \{([^:}]+)|without the taint ([^\s:=]+)")
_NEEDS = re.compile(r"\b(prefill|decode|engine|router) needs ")
_NOT_OURS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/")
"""Prefixes of taints that describe the state of a node, or that keep all services away from nodes of the control plane."""
_INSUFFICIENT = re.compile(r"Insufficient ([a-z][\w./-]*\w)")


def step(reason: str, tree: Tree, which: str = "", role: str = "", part: SliceView | None = None) -> str:
    """Return the next step for a reason, with the names of the service's objects filled in; "" if the message of the
    condition already contains the step.

    `which` contains the options of `ome logs` that select the pods. `role` is the role of the pods, or "" for a condition,
    and `part` the slice (revision) of the pods. The step names the labels that `part` requires of nodes. If `part` is None,
    it names the labels that the desired revision requires.
    """
    part = part or next((each for each in tree.slices if each.revision == tree.revision), None)
    labels, fetched = (part.labels, part.fetched) if part is not None else (tree.labels, False)
    message = _remedy(reason, router=role == keys.ROUTER).format(
        service=f"{tree.name} -n {tree.namespace}",
        columns="".join(f" -L {label}" for label in labels),
        holders=f" -l {','.join(f'{label}=Ready' for label in labels)}" if labels else "",
        which=f" {which}" if which else "",
    )
    return message.replace(LABEL_NODES, "wait for the model agents, which label nodes, or ") if fetched else message


def _remedy(reason: str, *, router: bool) -> str:
    """Return the remedy for a reason, with the placeholders of `core/reasons/record.py:ReasonRecord.remedy`. `router` states
    whether the pod with this reason is a router.
    """
    record = WORDS.get(reason) or record_of(reason)
    if isinstance(record, ReasonRecord) and not record.printed:
        return ""
    return record.router_remedy if router and record.router_remedy else record.remedy
