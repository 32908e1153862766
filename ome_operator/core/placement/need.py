"""Identical pods of a role that need nodes: which nodes accept them, how many of them fit, and which requirement fails
first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ome_operator.core.observed.objects import Node, Taint
from ome_operator.core.placement.demand import Demand, Expression, Term
from ome_operator.core.placement.packing import has_room, most_pods
from ome_operator.quantity import canonical_text
from ome_operator.util.wording import count

_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that describe the temporary state of a node: not ready, cordoned, under pressure, not initialized."""
_CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Need(NamedTuple):
    """Identical pods of a role, and their requirements on nodes."""

    components: tuple[str, ...]
    title: str
    """The name of the role in messages."""
    demand: Demand
    pods: int
    alone: bool = False
    """Whether no two of the pods can share a node."""
    apart: tuple[int, ...] = ()
    """Indices, in the tuple of needs, of the other needs whose pods must not share a node with the pods of this need."""


def node_accepts(demand: Demand, node: Node, lasting: bool) -> bool:
    """Return whether a node accepts a pod with this demand, regardless of its capacity. If `lasting` is true, the present
    state of the node (not ready, cordoned) is ignored.
    """
    labels = node.labels
    for each in demand.selector:
        if not each.is_met(labels):
            return False
    if demand.terms and not any(term.is_met(node.name, labels) for term in demand.terms):
        return False
    if not _open(demand, node, lasting):
        return False
    return not node.taints or all(_ignored(demand, taint, lasting) for taint in node.taints)


def _open(demand: Demand, node: Node, lasting: bool) -> bool:
    """Return whether a node is ready and accepts new pods. A cordoned node accepts pods that tolerate the cordon. If
    `lasting` is true, the result is True for every node.
    """
    return lasting or node.ready or (node.alive and demand.tolerates(_CORDONED))


def _ignored(demand: Demand, taint: Taint, lasting: bool) -> bool:
    return (lasting and taint.key.startswith(_PASSING)) or demand.tolerates(taint)


def pods_that_fit(need: Need, nodes: Iterable[Node]) -> int:
    """Return how many of the pods of the need fit on the nodes."""
    found = 0
    for node in nodes:
        found += most_pods(need.demand.requests, node.room, 1 if need.alone else need.pods)
        if found >= need.pods:
            return need.pods
    return found


class _Stage(NamedTuple):
    """A requirement on nodes, and the texts that describe it. Requirements are in the order in which a person would check
    them.
    """

    words: str
    """The requirement, worded so that it can follow the word "nodes"."""
    none: str
    """Text that follows "no node" if no node meets the requirement."""
    one: str
    """Text that follows the number 1 if a single node meets the requirement."""
    plural_text: str
    """Text that follows any other number of nodes that meet the requirement."""
    met: Callable[[Node], bool]


def explain(need: Need, nodes: Sequence[Node], lasting: bool) -> str:
    """Return a sentence that names the requirement that leaves too few nodes. The requirements are applied in order, each to
    the nodes that meet all earlier requirements. If `lasting` is true, the present state of nodes (not ready, cordoned) is
    ignored.
    """
    left, passed = list(nodes), list[str]()
    for stage in _stages(need.demand, nodes, lasting):
        if _places(need, left) < need.pods:
            break
        met = [node for node in left if stage.met(node)]
        if _places(need, met) < need.pods:
            return _sentence(need, stage.words, _found(stage, len(met), len(left), " and ".join(passed)), met)
        if len(met) < len(left):
            passed.append(stage.words)
        left = met
    return _sentence(need, "", f"there {'is' if len(left) == 1 else 'are'} {count(len(left), 'node')}", left)


def _found(stage: _Stage, met: int, nodes: int, passed: str) -> str:
    """Return a text that states how many nodes meet the requirement `stage`. Of the `nodes` nodes that meet all earlier
    requirements, `met` nodes meet it. `passed` describes the earlier requirements.
    """
    of = f"of the {nodes} nodes {passed}".rstrip()
    if met:
        return f"{met} {of} {stage.one if met == 1 else stage.plural_text}"
    if passed and nodes > 1:
        return f"none {of} {stage.none}"
    return " ".join(word for word in ("no node", passed, stage.none) if word)


def _places(need: Need, nodes: Iterable[Node]) -> int:
    """Return the number of pods that the nodes can hold, at least one for each node. The minimum ensures that missing
    resources do not hide the requirement that is being checked.
    """
    limit = 1 if need.alone else need.pods
    rooms = Counter(node.room for node in nodes)
    return sum(times * max(1, most_pods(need.demand.requests, room, limit)) for room, times in rooms.items())


def _sentence(need: Need, words: str, found: str, nodes: Sequence[Node]) -> str:
    places = pods_that_fit(need, nodes)
    shared = places > len(nodes)
    what = f"places for {need.pods} pods, on nodes" if shared else count(need.pods, "node")
    hold = f", for {places} pods" if shared else ""
    verb = "need" if " and " in need.title else "needs"
    return f"{need.title} {verb} {what}{f' {words}' if words else ''}: {found}{hold}"


def _stages(demand: Demand, nodes: Sequence[Node], lasting: bool) -> Iterator[_Stage]:
    single = demand.terms[0] if len(demand.terms) == 1 else Term((), ())
    for each in (*demand.selector, *single.labels):
        yield _Stage(f"with {each}", "has this label", "has it", "have it", partial(_labelled, each))
    if demand.terms:
        words = " or ".join(" and ".join(map(str, (*term.labels, *term.name))) for term in demand.terms)
        yield _Stage(f"with {words}", "has that", "has it", "have it", partial(_chosen, demand))
    yield _Stage("that report and are not cordoned", "does", "does", "do", lambda node: _open(demand, node, lasting))
    for taint in _against(demand, nodes, lasting):
        words = f"without the taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        yield _Stage(words, "is without it", "is without it", "are without it", partial(_untainted, taint))
    for name, asked in demand.requests:
        most_ = max((dict(node.room).get(name, 0) for node in nodes), default=0)
        none = f"has as much; the maximum is {format_amount(name, most_)}" if most_ else "has any"
        yield _Stage(
            f"with {format_amount(name, asked)} {name}", none, "has as much", "have as much", partial(_roomy, name, asked)
        )


def _labelled(each: Expression, node: Node) -> bool:
    return each.is_met(node.labels)


def _chosen(demand: Demand, node: Node) -> bool:
    return any(term.is_met(node.name, node.labels) for term in demand.terms)


def _untainted(taint: Taint, node: Node) -> bool:
    return taint not in node.taints


def _roomy(name: str, asked: int, node: Node) -> bool:
    return has_room(node.room, name, asked)


def _against(demand: Demand, nodes: Iterable[Node], lasting: bool) -> list[Taint]:
    """Return the taints that exclude the pods, the most frequent taint first. Taints about the temporary state of a node
    come last. If `lasting` is true, taints about this temporary state are ignored.
    """
    found = Counter(taint for node in nodes for taint in node.taints if not _ignored(demand, taint, lasting))
    return sorted(found, key=lambda taint: (taint.key.startswith(_PASSING), -found[taint], taint))


def format_amount(name: str, number: int) -> str:
    """Return an amount of a resource as people write it. `number` is in the unit of `quantity.units`: thousandths of a CPU,
    or the plain number of other resources.
    """
    if name == "cpu":
        return canonical_text(f"{number}m")
    return canonical_text(f"{number // 1024}Ki") if number and number % 1024 == 0 else str(number)
