"""Decide which nodes are to blame for the faults that are remembered, and which of these nodes are avoided, by whom."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator.core.badnodes.record import Memory, Role
from ome_operator.core.observed.objects import Node

FAILURES = 3
"""Number of failures of a role on a node after which the node may be to blame."""
TIMES = 3
"""A node is to blame if it has this many times the failures of every other node."""
LASTS = 300.0
"""Seconds for which a node has to report a fault of its own: a restarting device plugin reports no GPUs for a moment."""
PART = 10
"""At most one of this many nodes is avoided."""


class Avoided(NamedTuple):
    """The nodes on which no new group is placed, each with the reason, and what is not acted on."""

    everybody: Mapping[str, str]
    """The nodes that nobody uses."""
    namespaces: Mapping[str, Mapping[str, str]]
    """The nodes that only the services of a namespace do not use, by namespace."""
    ignored: Mapping[str, str]
    """The nodes that are to blame, and are used all the same, with the reason."""

    def of(self, namespace: str) -> dict[str, str]:
        """Return the nodes that services of a namespace do not use."""
        return {**self.everybody, **self.namespaces.get(namespace, {})}


NOBODY = Avoided({}, {}, {})


class _Blame(NamedTuple):
    since: float
    node: str
    why: str


def blamed(memory: Memory) -> list[tuple[Role, str]]:
    """Return each node that a role blames. Failures that are confirmed count by themselves; the others have to be
    concentrated on a node, because a wrong configuration fails on every node.
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


def avoid(memory: Memory, nodes: Mapping[str, Node], now: float) -> Avoided:
    """Return the nodes that are avoided, and by whom. At most one of PART nodes is, but at least one may be."""
    known = {name: each for name, each in memory.items() if name in nodes}
    limit = _limit(nodes, known)
    ignored: dict[str, str] = {}
    common = list(_own(known, now, limit, ignored))
    by_node: dict[str, dict[str, _Blame]] = {}
    for role, name in blamed(known):
        blame = _Blame(_since(known, role, name), name, _why(known, role, name))
        mine = by_node.setdefault(name, {})
        mine[role.namespace] = min(blame, mine.get(role.namespace, blame))
    for name, blames in by_node.items():
        if len(blames) > 1:
            since = sorted(blame.since for blame in blames.values())[1]
            # Everybody reads this sentence, so it names no namespace.
            common.append(_Blame(since, name, f"services of {len(blames)} namespaces failed there"))
    everybody = _first(common, limit, ignored)
    namespaces: dict[str, dict[str, str]] = {}
    for space in sorted({space for blames in by_node.values() for space in blames}):
        own = [blames[space] for name, blames in by_node.items() if space in blames and name not in everybody]
        own = [blame for blame in own if blame.node not in ignored]
        if found := _first(own, limit - len(everybody), ignored):
            namespaces[space] = found
    return Avoided(everybody, namespaces, ignored)


def _limit(nodes: Mapping[str, Node], memory: Memory) -> int:
    """Return how many nodes may be avoided: a part of the nodes with GPUs or, without such nodes, of all nodes."""
    with_gpus = sum(bool(node.gpus) or any(kind == "GPUMissing" for kind, _ in node.faults) for node in nodes.values())
    return max(1, (with_gpus or len(nodes)) // PART)


def _own(memory: Memory, now: float, limit: int, ignored: dict[str, str]) -> Iterator[_Blame]:
    """Yield the faults that nodes report themselves. A fault that too many nodes have at once blames none of them: whoever
    reports it is wrong, or something that all nodes share is broken.
    """
    kinds: dict[str, list[_Blame]] = {}
    for name, known in memory.items():
        for fault in known.faults:
            if fault.role is None and fault.first > known.forgiven and now - fault.first >= LASTS:
                kinds.setdefault(fault.kind, []).append(_Blame(fault.first, name, f"{fault.kind}: {fault.message}"))
    for kind, found in kinds.items():
        if len(found) > limit:
            why = f"{kind} is ignored, because {len(found)} nodes report it, and at most {limit} may be avoided"
            ignored.update({blame.node: why for blame in found})
        else:
            yield from found


def _first(blames: list[_Blame], limit: int, ignored: dict[str, str]) -> dict[str, str]:
    """Return the nodes that were blamed first, up to the limit."""
    found: dict[str, str] = {}
    for blame in sorted(blames):
        if blame.node in found:
            continue
        if len(found) < limit:
            found[blame.node] = blame.why
        else:
            ignored[blame.node] = f"{blame.why}; it is used, because as many nodes as allowed are avoided already"
    for name in found:
        ignored.pop(name, None)
    return found


def _since(memory: Memory, role: Role, name: str) -> float:
    return min(fault.first for fault in memory[name].faults if fault.role == role)


def _why(memory: Memory, role: Role, name: str) -> str:
    mine = [fault for fault in memory[name].faults if fault.role == role]
    count, last = sum(fault.times for fault in mine), max(mine, key=lambda fault: fault.last)
    words = f": {last.message}" if last.message else ""
    return f"{role.component} of {role.namespace}/{role.service} failed there {count} times, last with {last.kind}{words}"
