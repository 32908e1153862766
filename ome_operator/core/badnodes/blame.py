"""Decide which nodes are to blame for the remembered faults, and which services avoid these nodes. A node that is to blame
causes the faults itself; otherwise the services that failed there cause them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator.core.badnodes.record import Memory, Role
from ome_operator.core.observed.objects import Node

FAILURES = 3
"""Number of failures of a role on a node after which the node may be to blame."""
TIMES = 3
"""A node is to blame for the failures of a role only if it has at least `TIMES` times as many of these failures as any
other node."""
LASTS = 300.0
"""Seconds for which a node has to report a fault before the node is to blame. The wait is necessary because a device
plugin that restarts reports no GPUs for a moment."""
PART = 10
"""At most one of `PART` nodes is avoided: with 10, a tenth of the nodes."""


class NodesToAvoid(NamedTuple):
    """The nodes on which no new group is placed, and the nodes that are to blame and are used nevertheless."""

    everybody: Mapping[str, str]
    """Maps each node that all services avoid to the reason."""
    namespaces: Mapping[str, Mapping[str, str]]
    """Maps each namespace to the nodes that only the services of this namespace avoid, each with the reason."""
    ignored: Mapping[str, str]
    """Maps each node whose faults are ignored to the reason. Such a node may still be in `namespaces`, if services of a
    namespace failed on it."""

    def avoided_in(self, namespace: str) -> dict[str, str]:
        """Return all nodes that the services of a namespace avoid, each with the reason."""
        return {**self.everybody, **self.namespaces.get(namespace, {})}


NOBODY = NodesToAvoid({}, {}, {})


class _Blame(NamedTuple):
    since: float
    node: str
    why: str


def blamed_nodes(memory: Memory) -> list[tuple[Role, str]]:
    """Return the nodes to blame for the failures of each role, as sorted pairs of role and node.

    One confirmed failure (`RememberedFault.confirmed`) is enough to blame a node. Without a confirmed failure, a node is to
    blame only if the role has failed on it at least FAILURES times, and TIMES as often as on any other node, because a wrong
    configuration fails on every node.
    """
    counts: dict[Role, Counter[str]] = {}
    sure = set[tuple[Role, str]]()
    for name, known in memory.items():
        for fault in known.faults:
            if fault.role is not None and fault.confirmed:
                sure.add((fault.role, name))
            elif fault.role is not None:
                counts.setdefault(fault.role, Counter())[name] += fault.times
    for role, found in counts.items():
        (name, most), *others = found.most_common(2)
        if most >= FAILURES and all(most >= TIMES * count for _, count in others):
            sure.add((role, name))
    return sorted(sure)


def choose_avoided_nodes(memory: Memory, nodes: Mapping[str, Node], now: float) -> NodesToAvoid:
    """Return the nodes that are avoided, and by whom. The services of each namespace avoid at most `_limit` nodes, including
    those that all services avoid. Nodes that report a fault themselves take precedence, because tenants can make their own
    containers fail. If the fault that a node reports itself is ignored, the node can still be avoided because services
    failed on it.
    """
    known = {name: each for name, each in memory.items() if name in nodes}
    limit = _limit(nodes, known)
    wrong, beyond = dict[str, str](), dict[str, str]()
    everybody = _first(list(_own(known, now, limit, wrong)), limit, beyond)
    common: list[_Blame] = []
    by_node: dict[str, dict[str, _Blame]] = {}
    for role, name in blamed_nodes(known):
        blame = _Blame(_since(known, role, name), name, _why(known, role, name))
        mine = by_node.setdefault(name, {})
        mine[role.namespace] = min(blame, mine.get(role.namespace, blame))
    for name, blames in by_node.items():
        if len(blames) > 1:
            since = sorted(blame.since for blame in blames.values())[1]
            # Users of all namespaces can read this text, so it names no namespace.
            common.append(_Blame(since, name, f"services of {len(blames)} namespaces failed on this node"))
    everybody |= _first([blame for blame in common if blame.node not in everybody], limit - len(everybody), beyond)
    namespaces: dict[str, dict[str, str]] = {}
    for space in sorted({space for blames in by_node.values() for space in blames}):
        own = [blames[space] for name, blames in by_node.items() if space in blames and name not in everybody]
        own = [blame for blame in own if blame.node not in beyond]
        if found := _first(own, limit - len(everybody), beyond):
            namespaces[space] = found
    ignored = {name: why for name, why in {**wrong, **beyond}.items() if name not in everybody}
    return NodesToAvoid(everybody, namespaces, ignored)


def _limit(nodes: Mapping[str, Node], memory: Memory) -> int:
    """Return the largest number of nodes that are avoided: a fraction 1/PART of the nodes with GPUs (of all nodes, if none
    has GPUs), and at least one node.
    """
    with_gpus = sum(bool(node.gpus) or any(kind == "GPUMissing" for kind, _ in node.faults) for node in nodes.values())
    return max(1, (with_gpus or len(nodes)) // PART)


def _own(memory: Memory, now: float, limit: int, wrong: dict[str, str]) -> Iterator[_Blame]:
    """Yield the nodes to blame for faults that they report themselves. If more than `limit` nodes report the same kind of
    fault, none of these nodes is to blame. In this case, the reports are probably wrong, or something that all nodes
    share is broken. These nodes are added to `wrong`, each with the reason.
    """
    kinds: dict[str, list[_Blame]] = {}
    for name, known in memory.items():
        for fault in known.faults:
            if fault.role is None and fault.first > known.forgiven and now - fault.first >= LASTS:
                kinds.setdefault(fault.kind, []).append(_Blame(fault.first, name, f"{fault.kind}: {fault.message}"))
    for kind, found in kinds.items():
        if len(found) > limit:
            why = f"{kind} is ignored, because {len(found)} nodes report it, and at most {limit} nodes may be avoided"
            wrong.update({blame.node: why for blame in found})
        else:
            yield from found


def _first(blames: list[_Blame], limit: int, beyond: dict[str, str]) -> dict[str, str]:
    """Return the nodes to avoid, each with the reason: of the nodes in `blames`, the `limit` nodes that have been to blame
    for the longest time. Add the other nodes to `beyond`, each with the reason.
    """
    found: dict[str, str] = {}
    for blame in sorted(blames):
        if blame.node in found:
            continue
        if len(found) < limit:
            found[blame.node] = blame.why
        else:
            beyond[blame.node] = f"{blame.why}; the node is not avoided, because the limit of avoided nodes is reached"
    for name in found:
        beyond.pop(name, None)
    return found


def _since(memory: Memory, role: Role, name: str) -> float:
    return min(fault.first for fault in memory[name].faults if fault.role == role)


def _why(memory: Memory, role: Role, name: str) -> str:
    mine = [fault for fault in memory[name].faults if fault.role == role]
    count, last = sum(fault.times for fault in mine), max(mine, key=lambda fault: fault.last)
    words = f": {last.message}" if last.message else ""
    return (
        f"{role.component} of {role.namespace}/{role.service} failed on this node {count} times, last with "
        f"{last.kind}{words}"
    )
