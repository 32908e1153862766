"""Compute for `ome fit` whether pods fit on the nodes of a cluster now, on which nodes, and which other pods would have to
leave.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.admission import has_capacity
from ome_operator.core.placement.claims import subtract_held
from ome_operator.core.placement.fit import Needs, Nodes, find_unplaced
from ome_operator.core.placement.messages import without_capacity
from ome_operator.core.placement.need import Need, node_accepts
from ome_operator.core.placement.packing import most_pods
from ome_operator.util.wording import count

NOTHING = "nothing that holds GPUs"
NO_NODES = "the cluster has no nodes, or all of its nodes are avoided (`ome nodes` shows the avoided nodes)"


class Holder(NamedTuple):
    """The pods of a service, or of a namespace, that occupy a node."""

    who: str
    gpus: int


class PlacedPods(NamedTuple):
    """Pods of a role that would be placed on a node."""

    role: str
    node: str
    pods: int


@dataclass(frozen=True)
class NodeToFree:
    """A node that the service would need, and the pods that would have to leave the node."""

    node: str
    holders: tuple[Holder, ...]


@dataclass(frozen=True)
class FitAnswer:
    """The answer of `ome fit` for a service."""

    namespace: str
    service: str
    fits: bool
    why: str
    """Why the pods of the service do not fit on the nodes; "" if they fit."""
    places: tuple[PlacedPods, ...] = ()
    """Where the pods of the service would run. The scheduler may choose other nodes."""
    goes: tuple[NodeToFree, ...] = ()
    """The nodes whose pods would have to leave. Empty unless the service fits on the nodes of the cluster only without
    some pods that run there now."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Maps each role to the number of its groups that the check has counted."""


def fit_on_nodes(
    name: tuple[str, str],
    needs: Needs,
    nodes: Nodes,
    held: Mapping[str, Mapping[str, int]],
    on: Mapping[str, Sequence[Holder]],
) -> FitAnswer:
    """Return whether the nodes have capacity for the pods of a service next to the pods that already run on them.

    name    Namespace and name of the service.
    needs   The pods of the service, by role, with the resources that they request.
    nodes   The nodes as if they were empty.
    held    The amounts of each resource that other pods use on each node.
    on      The pods that use these amounts, by node.
    """
    if not any(need.pods for need in needs):
        return FitAnswer(*name, fits=True, why="")
    if not nodes:
        return FitAnswer(*name, fits=False, why=NO_NODES)
    free = {key: subtract_held(node, held.get(key, {})) for key, node in nodes.items()}
    if found := find_unplaced(needs, nodes):
        return FitAnswer(*name, fits=False, why="; ".join(lack.sentence for lack in found))
    if has_capacity(needs, (), free):
        placed, _ = _place(needs, free.values())
        return FitAnswer(*name, fits=True, why="", places=tuple(placed))
    placed, left = _place(needs, free.values())
    used = {each.node for each in placed}
    order = sorted((node for key, node in nodes.items() if key not in used), key=lambda node: (_gpus(on, node), node.name))
    more, _ = _place(left, order)
    goes = tuple(NodeToFree(key, tuple(on.get(key, ()))) for key in dict.fromkeys(each.node for each in more))
    why = without_capacity(needs, nodes, free, lambda key: [holder.who for holder in on.get(key, ())])
    return FitAnswer(*name, fits=False, why=why, places=tuple(placed), goes=goes)


def _gpus(on: Mapping[str, Sequence[Holder]], node: Node) -> int:
    return sum(holder.gpus for holder in on.get(node.name, ()))


def _place(needs: Needs, nodes: Iterable[Node]) -> tuple[list[PlacedPods], Needs]:
    """Assign pods to nodes, one role after the other. Return the assignment, and the pods that found no node."""
    order = list(nodes)
    rooms = {node.name: node.room for node in order}
    taken: dict[str, set[int]] = {}
    placed, left = Counter[tuple[str, str]](), list[Need]()
    for number, need in enumerate(needs):
        pods = need.pods
        for node in order if pods else ():
            if taken.get(node.name, set()).intersection(need.apart) or not node_accepts(need.demand, node, False):
                continue
            here = most_pods(need.demand.requests, rooms[node.name], 1 if need.alone else pods)
            if here:
                asked = {name: amount * here for name, amount in need.demand.requests}
                rooms[node.name] = tuple((name, has - asked.get(name, 0)) for name, has in rooms[node.name])
                taken.setdefault(node.name, set()).add(number)
                placed[need.title, node.name] += here
                pods -= here
            if not pods:
                break
        left.append(need._replace(pods=pods))
    return [PlacedPods(role, node, pods) for (role, node), pods in placed.items()], tuple(left)


def text(found: FitAnswer) -> str:
    """Return the answer as lines for people."""
    lines = [f"{found.namespace}/{found.service} {'fits now.' if found.fits else f'does not fit now: {found.why}.'}"]
    if found.groups:
        counted = (f"{count(groups, 'group')} of {role}" for role, groups in found.groups.items())
        lines.append(f"  counted: {', '.join(counted)}")
    roles: dict[str, list[str]] = {}
    for place in found.places:
        roles.setdefault(place.role, []).append(place.node + (f" ({place.pods} pods)" if place.pods > 1 else ""))
    lines += [f"  {role}: {', '.join(nodes)}" for role, nodes in roles.items()]
    if found.goes:
        lines.append("  To free the other nodes, these pods would have to end:")
    for node in found.goes:
        held = ", ".join(f"{each.who} ({count(each.gpus, 'GPU')})" for each in node.holders) or NOTHING
        lines.append(f"  {node.node}: {held}")
    return "\n".join(lines)
