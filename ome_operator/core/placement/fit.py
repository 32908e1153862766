"""Decide whether a set of nodes can hold all pods of a revision, and which requirement fails if it cannot. The callers pass
nodes either as if they were empty, or with their free capacity.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.need import Need, explain, node_accepts, pods_that_fit
from ome_operator.core.placement.packing import PodClass, largest_packing, most_pods, smallest_requests
from ome_operator.util.memoize import memoize_by_identity
from ome_operator.util.wording import count

ANSWERS = 4096
"""Maximum number of results that are cached for one set of nodes."""


class UnplacedPods(NamedTuple):
    """Pods that do not fit, and why."""

    components: tuple[str, ...]
    sentence: str


Needs = tuple[Need, ...]
Nodes = Mapping[str, Node]


def ignores_fit(annotations: Mapping[str, str]) -> bool:
    """Return whether a service with these annotations is placed without a check of the nodes' capacity, because its user
    states that nodes are created for its pods.
    """
    return annotations.get(keys.IGNORE_FIT) == "true"


def find_unplaced(needs: Needs, nodes: Nodes, lasting: bool = False) -> tuple[UnplacedPods, ...]:
    """Return the pods that do not fit on the nodes; () if all pods fit, or if no node is known.

    If `lasting` is true, the present state of nodes (not ready, cordoned) is ignored.
    """
    known = _answers(nodes)
    if (needs, lasting) not in known:
        if len(known) >= ANSWERS:
            known.clear()
        known[needs, lasting] = compute_unplaced(needs, nodes, lasting)
    return known[needs, lasting]


def combine_needs(*several: Needs) -> Needs:
    """Return the needs of several revisions as one tuple. The indices in `Need.apart` are changed so that they refer to
    this tuple.
    """
    found: list[Need] = []
    for needs in several:
        found += [need._replace(apart=tuple(other + len(found) for other in need.apart)) for need in needs]
    return tuple(found)


class NodeSet:
    """A set of nodes on which several sets of pods are checked. For each demand, the nodes that accept its pods are
    determined only once. If `lasting` is true, the present state of nodes (not ready, cordoned) is ignored.
    """

    def __init__(self, nodes: Nodes, lasting: bool = False) -> None:
        self.nodes, self._lasting = tuple(nodes.values()), lasting
        self._takes: dict[Demand, tuple[list[Node], Iterator[Node]]] = {}

    def accepting_nodes(self, demand: Demand) -> Iterator[Node]:
        """Yield the nodes that accept a pod with this demand, regardless of their capacity. The nodes are evaluated one
        by one, as the caller reads them.
        """
        if demand not in self._takes:
            self._takes[demand] = [], (node for node in self.nodes if node_accepts(demand, node, self._lasting))
        found, others = self._takes[demand]
        for number in itertools.count():
            if number == len(found):
                more = next(others, None)
                if more is None:
                    return
                found.append(more)
            yield found[number]


def merge_needs(needs: Needs) -> Needs:
    """Return `needs`, in which needs with the same demand are combined into one. If pods of any need exclude other pods from
    a node, the needs are returned unchanged.
    """
    plain = not any(need.alone or need.apart for need in needs)
    return tuple(_merged(needs, lambda _: ())) if plain else needs


def accepts_any(needs: Needs, node: Node) -> bool:
    """Return whether a node accepts any pod of `needs`, regardless of the capacity of the node."""
    return any(need.pods and node_accepts(need.demand, node, False) for need in needs)


@memoize_by_identity(2, grows=False)
def _answers(_: Nodes) -> dict[tuple[Needs, bool], tuple[UnplacedPods, ...]]:
    """Return the cache of results for a set of nodes. A change of any node makes a new set, whose cache is empty."""
    return {}


def compute_unplaced(needs: Needs, known: Nodes | NodeSet, lasting: bool = False) -> tuple[UnplacedPods, ...]:
    """Return the pods that do not fit, and why, as `find_unplaced` does, but without its cache. Each role is checked by
    itself, then the roles with the same demand together, then all roles together. If `lasting` is true, the present state of
    nodes (not ready, cordoned) is ignored.
    """
    ground = known if isinstance(known, NodeSet) else NodeSet(known, lasting)
    if not ground.nodes:
        return ()
    wanted = [need for need in needs if need.pods > 0]
    if _on_nodes_of_their_own(wanted, ground):
        return ()
    if found := _lacking(wanted, ground):
        return tuple(UnplacedPods(need.components, explain(need, ground.nodes, lasting)) for need in found)
    return _beside(needs, wanted, ground)


def all_fit(needs: Needs, ground: NodeSet) -> bool:
    """Return whether all needs fit on the nodes. The result is computed as by `compute_unplaced`, but without the reason."""
    wanted = [need for need in needs if need.pods > 0]
    if not ground.nodes or _on_nodes_of_their_own(wanted, ground):
        return True
    return not (_crowded(wanted, ground) or _lacking(wanted, ground) or _beside(needs, wanted, ground))


def _crowded(wanted: Sequence[Need], ground: NodeSet) -> bool:
    """Return whether there are more pods than the nodes could hold even if every pod requested only the smallest amounts.
    This check is inexpensive.
    """
    requests, pods = smallest_requests([need.demand.requests for need in wanted]), sum(need.pods for need in wanted)
    rooms = Counter(node.room for node in ground.nodes)
    return sum(times * most_pods(requests, room, pods) for room, times in rooms.items()) < pods


def _on_nodes_of_their_own(wanted: Sequence[Need], ground: NodeSet) -> bool:
    """Return whether the needs fit if each need takes the first nodes that accept its pods and that no other need has taken.
    If the result is True, no further nodes had to be evaluated.
    """
    taken = set[str]()
    for need in wanted:
        left = need.pods
        for node in (node for node in ground.accepting_nodes(need.demand) if node.name not in taken):
            here = most_pods(need.demand.requests, node.room, 1 if need.alone else left)
            if here:
                taken.add(node.name)
            left -= here
            if not left:
                break
        if left:
            return False
    return True


def _lacking(wanted: Sequence[Need], ground: NodeSet) -> list[Need]:
    """Return the needs that do not fit by themselves, or that do not fit together with other needs of the same demand."""
    for alike in (_merged(wanted, lambda need: need.components), _merged(wanted, lambda _: ())):
        if found := [need for need in alike if pods_that_fit(need, ground.accepting_nodes(need.demand)) < need.pods]:
            return found
    return []


def _beside(needs: Needs, wanted: Sequence[Need], ground: NodeSet) -> tuple[UnplacedPods, ...]:
    """Return which pods do not fit if each of the needs `wanted` fits by itself, but all of them together do not, because
    they want the same nodes. Return () if they fit together.
    """
    if len(wanted) == 1:
        return ()
    kinds = [PodClass(need.pods, need.demand.requests, _apart(number, needs, wanted)) for number, need in enumerate(wanted)]
    choice: dict[str, set[int]] = {}
    rooms = {}
    for number, need in enumerate(wanted):
        for node in ground.accepting_nodes(need.demand):
            choice.setdefault(node.name, set()).add(number)
            rooms[node.name] = node.room
    asked = {name for need in wanted for name, _ in need.demand.requests}
    nodes = [(_part(rooms[name], asked), frozenset(mine)) for name, mine in choice.items()]
    have = largest_packing(kinds, nodes)
    if have is None:
        return ()
    who = _components(wanted)
    pods = sum(kind.pods for kind in kinds)
    name, suitable = join_role_names(wanted), f"{count(len(nodes), 'suitable node')} {'has' if len(nodes) == 1 else 'have'}"
    verb = "need" if " and " in name else "needs"
    sentence = f"{name} {verb} places for {pods} pods at the same time: the {suitable} {have}"
    return (UnplacedPods(who, sentence),)


def _part(room: tuple[tuple[str, int], ...], asked: set[str]) -> tuple[tuple[str, int], ...]:
    """Return the amounts of the requested resources on a node. If the node reports only other resources, one of these is
    returned, so that the capacity of the node is not treated as unknown.
    """
    return tuple((name, amount) for name, amount in room if name in asked) or room[:1]


def _apart(number: int, needs: Needs, wanted: Sequence[Need]) -> frozenset[int]:
    """Return the indices, in `wanted`, of the needs that share no node with the need at index `number`. Its own index is
    included if each of its pods needs its own node.
    """
    mine = wanted[number]
    others = {place for place, need in enumerate(wanted) if any(needs[other] is need for other in mine.apart)}
    return frozenset(others | ({number} if mine.alone else set()))


def _merged(needs: Sequence[Need], by: Callable[[Need], tuple[str, ...]]) -> list[Need]:
    """Combine needs that have the same demand and for which the function `by` returns the same value. Needs whose pods
    exclude other pods from a node stay separate.
    """
    alike: dict[object, list[Need]] = {}
    for number, need in enumerate(needs):
        alike.setdefault((by(need), need.demand, number if need.alone or need.apart else None), []).append(need)
    return [_one(found) if len(found) > 1 else found[0] for found in alike.values()]


def _one(found: Sequence[Need]) -> Need:
    return found[0]._replace(
        components=_components(found), title=join_role_names(found), pods=sum(need.pods for need in found)
    )


def _components(needs: Iterable[Need]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(component for need in needs for component in need.components))


def join_role_names(needs: Iterable[Need]) -> str:
    """Return the names of the roles of `needs`, joined in the form that messages show."""
    return " and ".join(dict.fromkeys(need.title for need in needs))
