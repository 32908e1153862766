"""Describe for people what a gang waits for: how much of the required capacity is free, and which services hold the rest."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.fit import (
    Needs,
    Nodes,
    NodeSet,
    all_fit,
    compute_unplaced,
    find_unplaced,
    join_role_names,
    merge_needs,
)
from ome_operator.core.placement.need import Need, format_amount
from ome_operator.core.placement.packing import most_pods
from ome_operator.util.wording import count

NAMED = 3
"""Largest number of services that a message names as holders of nodes. Further services are only counted."""
OTHERS = "others"
HELD = "that its pods could take"
"""Part of the text that `held_by_services` returns. A condition whose message contains this part contains the text."""
Holders = Callable[[str], Sequence[str]]
"""A function that returns, for the name of a node, the services that hold its capacity, each with a remark, the largest
holder first."""


def describe_awaited_nodes(needs: Needs, nodes: Nodes, free: Nodes, holders: Holders) -> str:
    """Return a text that can follow "waits for", such as "16 nodes with 8 free GPUs: 12 are free, 4 are held by gang/two,
    which serves".

    `nodes` holds the nodes as if they were empty, `free` the same nodes with their free capacity.
    """
    if found := compute_unplaced(needs, nodes):
        return "; ".join(lack.sentence for lack in found)
    ground = NodeSet(nodes)
    return " and ".join(_clause(need, ground, free, holders) for need in merge_needs(needs) if need.pods)


def without_capacity(needs: Needs, nodes: Nodes, free: Nodes, holders: Holders) -> str:
    """Explain why pods that would fit on empty nodes do not fit now, for example "decode needs 12 nodes with 8 free GPUs:
    3 are free".
    """
    if found := find_unplaced(needs, nodes):
        return "; ".join(lack.sentence for lack in found)
    here, there = NodeSet(nodes), NodeSet(free)
    alike = merge_needs(tuple(need._replace(apart=()) for need in needs if need.pods))
    lacking = [need for need in alike if not all_fit((need,), there)]
    clauses = [f"{_needs(need.title)} {_clause(need, here, free, holders)}" for need in lacking]
    who = join_role_names(alike)
    return "; ".join(clauses) or (
        f"{f'{who} together need' if ' and ' in who else f'{who} needs'} more capacity than is free and not reserved for "
        "groups that are being placed"
    )


def _needs(title: str) -> str:
    return f"{title} {'need' if ' and ' in title else 'needs'}"


def held_by_services(needs: Needs, nodes: Nodes, free: Nodes, holders: Holders) -> str:
    """Return a text that states which services hold nodes that the pods `needs` could take, such as "of the nodes that its
    pods could take, 4 are held by gang/two, which is serving". Return "" if no service is known to hold such a node.

    Unlike `describe_awaited_nodes`, the text does not state how much is free. It is shown for pods that exist, next to the
    message of the scheduler, which also takes pods into account that do not belong to services.
    """
    ground, lost, shared = NodeSet(nodes), Counter[str](), False
    for need in merge_needs(needs):
        if need.pods:
            taken = _taken(need, ground, free, holders)
            shared |= taken.shared
            lost.update(taken.lost)
    del lost[OTHERS]
    return f"of the {'places' if shared else 'nodes'} {HELD}, {', '.join(_held(lost))}" if lost else ""


class _Taken(NamedTuple):
    """For pods with the same demand: how many of them the nodes can hold now, and which services hold the capacity that
    further pods could use.
    """

    places: int
    """Number of free places for pods with this demand."""
    lost: Counter[str]
    """Maps the name of each service that holds nodes to the number of places for such pods that it occupies."""
    lacks: Counter[str]
    """Maps each resource to the number of nodes that have too little of it."""
    shared: bool
    """Whether any node has places for several of these pods."""


def _taken(need: Need, ground: NodeSet, free: Nodes, holders: Holders) -> _Taken:
    places, lost, lacks, shared = 0, Counter[str](), Counter[str](), False
    for node in ground.accepting_nodes(need.demand):
        whole, here = _places(need, node), _places(need, free.get(node.name, node))
        shared |= whole > 1
        places += here
        if whole > here:
            lost[next(iter(holders(node.name)), OTHERS)] += whole - here
            lacks.update(
                name for name, asked in need.demand.requests if not most_pods(((name, asked),), free[node.name].room, 1)
            )
    return _Taken(places, lost, lacks, shared)


def _clause(need: Need, ground: NodeSet, free: Nodes, holders: Holders) -> str:
    """Return the part of a message about the pods of one need: how many nodes or places they need, how many are free, and
    which services hold others.
    """
    places, lost, lacks, shared = _taken(need, ground, free, holders)
    what = f"places for {need.pods} pods" if shared else count(need.pods, "node")
    found = [f"{places} {'is' if places == 1 else 'are'} free", *_held(lost)]
    return f"{what}{_with(need, lacks)}: {', '.join(found)}"


def _places(need: Need, node: Node) -> int:
    return most_pods(need.demand.requests, node.room, 1 if need.alone else need.pods)


def _with(need: Need, lacks: Counter[str]) -> str:
    """Return the words for the resource that most nodes lack or, if no resource is lacking, for the requested accelerators,
    such as " with 8 free GPUs"; "" if there is no such resource.
    """
    requests = dict(need.demand.requests)
    accelerators = [name for name in requests if name.endswith("/gpu")]
    name = max(lacks, key=lambda name: (lacks[name], name in accelerators), default=next(iter(accelerators), ""))
    if not name or name == "pods":
        return ""
    return f" with {format_amount(name, requests[name])} free {_called(name, requests[name])}"


def _called(name: str, number: int) -> str:
    if not name.endswith("/gpu"):
        return name
    return "GPU" if number == 1 else "GPUs"


def _held(lost: Counter[str]) -> list[str]:
    """Return the parts of a message about the places that are not free: one part for each service, with the number of places
    that it holds.
    """
    named = lost.most_common()
    messages = [f"{count} {'is' if count == 1 else 'are'} held by {who}" for who, count in named[:NAMED]]
    rest = sum(count for _, count in named[NAMED:])
    return [*messages, f"{rest} are held by {len(named) - NAMED} others"] if rest else messages
