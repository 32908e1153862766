"""Find the groups and routers that have to leave their nodes, and why."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.core.observed.move_requests import is_cordoned, node_request
from ome_operator.core.observed.objects import Node, Pod, Taint

NODE_STATES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of the taints with which Kubernetes describes the state of a node. These taints announce no removal. The
recovery of failed groups handles nodes that do not report, and the operator handles cordoned nodes separately."""
REQUESTS = 2000
"""Maximum number of entries of the annotation of a service that are read: one for each group that a service may have."""


class LeavingCause(NamedTuple):
    """Why a group or a router leaves its node."""

    node: str
    text: str
    """The cause as human-readable text."""
    is_requested: bool = False
    """Whether a person asked for the move. Such a move begins at once, because a request does not disappear by itself."""
    now: bool = False
    """Whether the group leaves without a replacement."""
    of_group: bool = False
    """Whether the request names the group and not a node. The replacement is then placed on none of the group's nodes."""

    @property
    def precedence(self) -> tuple[bool, bool]:
        """The precedence of the cause: of several causes for the same pod, the cause with the greatest value applies. A
        request for a move without a replacement precedes any other request, and a request precedes a taint or a cordon.
        """
        return self.now, self.is_requested


NO_PRECEDENCE = (False, False)
"""The lowest value of `LeavingCause.precedence`, and the value for a group without a cause."""


def group_requests(text: str, now: datetime) -> Mapping[tuple[str, str], datetime]:
    """Parse the annotation of a service: entries such as "decoder/2 2026-11-28T03:00:00Z", separated by commas. Return the
    time of the request by component and number of the group.
    """
    found = {}
    for entry in text.split(",", REQUESTS)[:REQUESTS]:
        group, _, time = entry.strip().partition(" ")
        component, _, number = group.partition("/")
        at = quantity.moment(time, now)
        if at is not None and (index := quantity.whole_number(number)) is not None:
            found[component, str(index)] = at
    return found


def until_requests(texts: Iterable[str], now: datetime) -> float | None:
    """Return the seconds until the first of the requests whose time is in the future takes effect; None if no request takes
    effect within a day. `texts` are annotations of nodes and services. The time of a request is in the future if the clock
    of this operator is behind the clock with which the request was written.
    """
    latest = now + timedelta(days=1)
    words = (word for text in texts for entry in text.split(",", REQUESTS)[:REQUESTS] for word in entry.split())
    times = (quantity.moment(word, latest) for word in words)
    return min(((at - now).total_seconds() for at in times if at is not None and at > now), default=None)


def of_node(node: Node, tolerates: Callable[[Taint], bool], *, on_cordon: bool) -> LeavingCause | None:
    """Return the taint or cordon that forces pods to leave a node; None if the pods may stay. `tolerates` returns whether
    the pods tolerate a taint. `on_cordon` states whether the pods leave a cordoned node.
    """
    for taint in node.taints:
        if not taint.key.startswith(NODE_STATES) and not tolerates(taint):
            return LeavingCause(node.name, f"taint {taint.key}")
    if on_cordon and is_cordoned(node):
        return LeavingCause(node.name, "cordoned")
    return None


def causes(
    pods: Iterable[Pod],
    member: Callable[[Pod], str],
    nodes: Mapping[str, Node],
    tolerates: Callable[[Taint], bool],
    requests: Mapping[str, datetime],
    now: datetime,
    *,
    on_cordon: bool,
) -> Mapping[str, LeavingCause]:
    """Return why members of a role (groups, or routers' pods) have to leave their nodes, by the name of the member. If
    `on_cordon` is true, the members also leave cordoned nodes. `member` returns the name of the member to which a pod
    belongs. `requests` are the times at which people asked for the move of a member. A request takes precedence over a
    taint.
    """
    found: dict[str, LeavingCause] = {}
    for pod in sorted(pods, key=lambda pod: (pod.rank, pod.name)):
        node = nodes.get(pod.node)
        if pod.deleting or node is None:
            continue
        name, created = member(pod), quantity.moment(pod.times.created, now)
        asked = node_request(node.move, now) if node.move else None
        cause = of_node(node, tolerates, on_cordon=on_cordon)
        if asked is not None and created is not None and created < asked.at:
            cause = LeavingCause(node.name, "ome move", is_requested=True, now=asked.now)
        elif pod.rank == 0 and created is not None and name in requests and created < requests[name]:
            cause = LeavingCause(node.name, "ome move", is_requested=True, of_group=True)
        before = found.get(name)
        if cause is not None and (before is None or cause.precedence > before.precedence):
            found[name] = cause
    return found


def to_exclude(
    pods: Iterable[Pod], member: Callable[[Pod], str], found: Mapping[str, LeavingCause], nodes: Mapping[str, Node]
) -> frozenset[str]:
    """Return the nodes on which no replacement is placed, because a person asked for moves away from them. These nodes have
    to be excluded, because they may still accept pods. A node that has only a taint or a cordon is not excluded, because
    it keeps pods away by itself.

    A cordoned node that groups leave without replacements is not excluded either. If no other node is free, the new group
    has to wait until this node is back. A group that was created with an exclusion would never use the node again.
    """
    asked = {name: cause for name, cause in found.items() if cause.is_requested}
    back = {cause.node for cause in asked.values() if cause.now and is_cordoned(nodes[cause.node])}
    mine = ((pod, asked[member(pod)]) for pod in pods if member(pod) in asked and pod.node and not pod.deleting)
    leaves = {pod.node for pod, cause in mine if cause.of_group or pod.node == cause.node}
    return frozenset(leaves - back)
