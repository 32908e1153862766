"""Why a service is not ready: what its conditions, pods and events say, alike things together, each with a next step."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.reasons import ANOTHER, CONDITION, ORDER, READY, Reason
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
        if name == READY or one.get("status") != bad or (name, reason) in shown or reason == "Progressing":
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
    """What to do about a reason, where its message does not say it; with the names filled in. `role`: that of the pods."""
    found = (_OF_ROUTERS if role == keys.ROUTER else {}).get(reason) or _STEPS.get(reason, "")
    return found.format(
        service=f"{tree.name} -n {tree.namespace}",
        columns="".join(f" -L {label}" for label in tree.labels),
        holders=f" -l {','.join(f'{label}=Ready' for label in tree.labels)}" if tree.labels else "",
        which=f" {which}" if which else "",
    )


_STEPS: Mapping[str, str] = {
    Reason.UNSCHEDULABLE: "free GPUs, or see what the nodes lack: kubectl get nodes{columns}",
    Reason.PENDING: "the scheduler has not looked at it yet; if that stays so, is kube-scheduler running?",
    Reason.CRASH_LOOP_BACK_OFF: "ome logs {service}{which} --previous",
    "Error": "ome logs {service}{which} --previous",
    "OOMKilled": "the container needs more memory: raise resources.limits.memory of its runner",
    Reason.IMAGE_PULL_BACK_OFF: "check the image's name and tag, and the pull secret of the pods' ServiceAccount",
    Reason.ERR_IMAGE_PULL: "check the image's name and tag, and the pull secret of the pods' ServiceAccount",
    Reason.NOT_READY: "ome logs {service}{which} --since 10m",
    Reason.STARTING: "weights are being loaded: ome logs {service}{which} -f",
    Reason.CONTAINER_CREATING: "no container runs yet: the node pulls the image and mounts volumes, which takes time",
    Reason.FAILED_MOUNT: "mend what the message names, on the pod's node or in the spec; the kubelet tries again",
    Reason.PREFLIGHT_FAILED: (
        "mend what it names; it is asked again within 5 min, at once when the pods are deleted. "
        "To start anyway: kubectl annotate isvc {service} --overwrite ome.io/preflight=Warn, which makes a new revision"
    ),
    Reason.PREFLIGHT_FINDINGS: "the engine started all the same; ome logs {service}{which} -c ome-preflight has more",
    Reason.NODE_LOST: "look at the node: kubectl get nodes",
    Reason.TERMINATING: "wait for its grace period; a pod that stays is on a lost node",
    Reason.PODS_REFUSED: "mend what the API server names: quota, Pod Security, ServiceAccount or webhook",
    MISSING: "its StatefulSet creates it; if that stays so, the events say why",
    Reason.WAITING_FOR_NODES: "kubectl get nodes{holders} shows the nodes that hold it",
    Reason.DOES_NOT_FIT: (
        "add or label such nodes, or ask for less; where they come on demand: "
        "kubectl annotate isvc {service} ome.io/ignore-fit=true"
    ),
    Reason.WAITING_FOR_ROOM: "free what the message names, or wait: it is tried again by itself when it seems to fit",
    Reason.WAITING_FOR_TURN: "ome status runtime, with the name that the message says: how far the waves of its edit are",
    Reason.PAUSED: "remove spec.rollout.paused to go on",
    Reason.INTERNAL_ERROR: "a bug of the operator: report it with its log",
}
"""Reasons of pods and conditions. Most reasons of conditions need none: their messages name the fix."""
_OF_ROUTERS: Mapping[str, str] = {Reason.STARTING: "ome logs {service}{which} -f"}
"""Reasons that mean something else for routers, which load no weights."""
