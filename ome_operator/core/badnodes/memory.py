"""Remember faults by node: add new faults, confirm failures if a group of the same role works on other nodes, and forget
faults that are too old, that were forgiven, or whose node was replaced by another node of the same name.
"""

from collections.abc import Iterable, Mapping
from functools import reduce

from ome_operator.core.badnodes.blame import blamed_nodes
from ome_operator.core.badnodes.record import WORDS, Memory, NodeMemory, RememberedFault, limit_memory, without_common
from ome_operator.core.badnodes.signs import FailureSign, ReadyGroup
from ome_operator.core.observed.objects import Node

EXPIRES = 24 * 3600.0
"""Seconds after which a failure of a service is forgotten."""
CLEARED = 600.0
"""A fault that the node itself reported is forgotten when the node has not reported it for this many seconds."""
REFRESH = 300.0
"""Seconds between two updates of the stored time of the last report, while a node continues to report a fault. A shorter
interval would write the NodeFaults object more often."""
PROVEN = 600.0
"""Seconds for which a group of the same role has to be ready on other nodes. This proves that a node is to blame for the
failures on it."""


def remember(
    memory: Memory, signs: Iterable[FailureSign], ready: Iterable[ReadyGroup], nodes: Mapping[str, Node], now: float
) -> dict[str, NodeMemory]:
    """Return the memory after adding the new failures (`signs`) and the faults that nodes report now. Failures are
    marked as confirmed if one of the `ready` groups proves that the node is to blame.

    nodes       All nodes of the cluster: nodes that do not exist any more are forgotten.
    now         Seconds since the epoch.
    """
    kept = {name: _aged(each, now) for name, each in memory.items() if name in nodes and _same(each, nodes[name])}
    for name, node in nodes.items():
        if node.faults or (name in kept and any(fault.role is None for fault in kept[name].faults)):
            known = kept.get(name, NodeMemory(node.uid))
            kept[name] = known._replace(faults=_own(known.faults, node, now))
    kept = reduce(lambda found, sign: _added(found, sign, nodes), signs, kept)
    kept = without_common(_confirmed(kept, ready, now))
    return limit_memory({name: each for name, each in kept.items() if each.faults or now - each.forgiven < EXPIRES})


def _same(known: NodeMemory, node: Node) -> bool:
    return not known.uid or not node.uid or known.uid == node.uid


def _aged(known: NodeMemory, now: float) -> NodeMemory:
    """Return the memory of a node without the failures of services that are older than EXPIRES or were forgiven."""
    stays = tuple(
        fault for fault in known.faults if fault.role is None or (now - fault.last < EXPIRES and fault.last > known.forgiven)
    )
    return known._replace(faults=stays)


def _own(faults: Iterable[RememberedFault], node: Node, now: float) -> tuple[RememberedFault, ...]:
    """Return the remembered faults of a node together with the faults that it reports now. A fault that the node has not
    reported for CLEARED seconds is dropped, so that it is treated as a new fault if the node reports it again later.
    """
    reported = dict(node.faults)
    found = []
    for fault in faults:
        if fault.role is not None:
            found.append(fault)
        elif fault.kind in reported:
            words, last = reported.pop(fault.kind)[:WORDS], now if now - fault.last >= REFRESH else fault.last
            found.append(fault._replace(message=words, last=last))
        elif now - fault.last < CLEARED:
            found.append(fault)
    return (*found, *(RememberedFault(kind, now, now, message=words[:WORDS]) for kind, words in reported.items()))


def _added(memory: dict[str, NodeMemory], sign: FailureSign, nodes: Mapping[str, Node]) -> dict[str, NodeMemory]:
    node = nodes.get(sign.node)
    if node is None:
        return memory
    known = memory.get(sign.node, NodeMemory(node.uid))
    if sign.time <= known.forgiven:
        return memory
    mine = [each for each in known.faults if (each.kind, each.role) == (sign.kind, sign.role)]
    fresh = RememberedFault(sign.kind, sign.time, sign.time, 1, sign.role, sign.message[:WORDS])
    if mine:
        before = mine[0]
        fresh = before._replace(times=before.times + 1, last=max(before.last, sign.time), message=sign.message[:WORDS])
    others = tuple(each for each in known.faults if each not in mine)
    return {**memory, sign.node: known._replace(faults=(*others, fresh))}


def _confirmed(memory: dict[str, NodeMemory], ready: Iterable[ReadyGroup], now: float) -> dict[str, NodeMemory]:
    """Return the memory in which the failures on a node are marked as confirmed if the node is to blame for them and a group
    of the same role works on other nodes.
    """
    groups = list(ready)
    found = dict(memory)
    for role, name in blamed_nodes(memory):
        mine = [fault for fault in memory[name].faults if fault.role == role]
        span = max(fault.last for fault in mine) - min(fault.first for fault in mine)
        proofs = (each for each in groups if each.role == role and name not in each.nodes and each.since)
        if any(now - each.since >= max(PROVEN, span) for each in proofs):
            faults = tuple(each._replace(confirmed=True) if each.role == role else each for each in found[name].faults)
            found[name] = found[name]._replace(faults=faults)
    return found
