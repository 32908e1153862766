"""Compute how many pods of several classes fit on a set of nodes together, from the requests of the pods and the capacities
of the nodes.

A class may be restricted to some nodes, and classes may exclude each other from a node. The search decides exactly whether
all pods fit, unless it reaches its limit (`STEPS`): the problem is bin packing, which can take very long.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from ome_operator.core.placement.demand import HOST_PORT
from ome_operator.errors import OmeError

STEPS = 100_000
"""Number of comparisons after which the search stops and assumes that all pods fit. These comparisons take less than a
tenth of a second."""

MANY = 5
"""Largest number of classes in the combinations of classes that `_missing` checks."""
_REPORTED = ""
"""Key that is set in the amounts of a node that has reported its resources."""
Amounts = tuple[tuple[str, int], ...]
"""The amount of each resource of a node; () if the amounts are unknown."""
Load = tuple[int, ...]
"""Number of pods of each class, on one node or on several nodes."""


class PodClass(NamedTuple):
    """Identical pods that have to be placed: their number, their requests, and the classes with which they share no node."""

    pods: int
    requests: tuple[tuple[str, int], ...]
    apart: frozenset[int]
    """Indices of the classes whose pods must not share a node with pods of this class, possibly including this class
    itself."""


def most_pods(requests: tuple[tuple[str, int], ...], room: Amounts, limit: int) -> int:
    """Return how many pods with the requests `requests` fit into the capacity `room`, at most `limit`."""
    has = _amounts(room)
    return min([limit, *(_has(has, name) // amount for name, amount in requests if _known(has, name))])


def has_room(room: Amounts, name: str, amount: int) -> bool:
    """Return whether the capacity `room` contains the amount `amount` of the resource `name`. An amount that is unknown is
    assumed to suffice.
    """
    return most_pods(((name, amount),), room, 1) > 0


def largest_packing(kinds: Sequence[PodClass], nodes: Sequence[tuple[Amounts, frozenset[int]]]) -> int | None:
    """Return the largest number of pods of all classes that fit, or an upper bound of this number. Return None if every pod
    fits, or if the search was stopped by its limit.

    `nodes` contains, for each node, its capacity and the indices of the classes that the node accepts.
    """
    if _greedy(kinds, nodes):
        return None
    if missing := _missing(kinds, Counter(nodes)):
        return sum(kind.pods for kind in kinds) - missing
    try:
        return _searched(kinds, nodes, _Budget(STEPS))
    except _TooMany:
        return None


def _missing(kinds: Sequence[PodClass], nodes: Mapping[tuple[Amounts, frozenset[int]], int]) -> int:
    """Return a lower bound of the number of pods that do not fit, however the pods are distributed. A result of 0 does
    not prove that all pods fit.

    The bound assumes that all pods of a combination of classes have the smallest requests of these classes.
    """
    found = 0
    for size in range(1, min(len(kinds), MANY) + 1):
        for some in combinations(range(len(kinds)), size):
            pods = sum(kinds[number].pods for number in some)
            held = 0
            for (room, takes), times in nodes.items():
                here = [kinds[number].requests for number in some if number in takes]
                held += times * most_pods(smallest_requests(here), room, pods) if here else 0
            found = max(found, pods - held)
    return found


def smallest_requests(requests: Sequence[tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    """Return, for each resource that all pods request, the smallest request. `requests` contains the requests of every
    pod.
    """
    if len(requests) == 1:
        return requests[0]
    first, *others = map(dict, requests)
    return tuple(
        (name, min(amount, *(other[name] for other in others)))
        for name, amount in first.items()
        if all(name in other for other in others)
    )


class _TooMany(OmeError):
    """Raised if the search needs more comparisons than the budget allows."""


class _Budget:
    """The number of comparisons that the search may still make."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, steps: int) -> None:
        """Subtract comparisons from the budget. Raises _TooMany if the budget is exceeded."""
        self._left -= steps
        if self._left < 0:
            raise _TooMany


def _searched(kinds: Sequence[PodClass], nodes: Sequence[tuple[Amounts, frozenset[int]]], budget: _Budget) -> int | None:
    """Return the largest number of pods that fit on the nodes; None if all pods fit. Raises _TooMany if the search exceeds
    the budget.

    The search adds the nodes one by one. After each step, it keeps the maximal loads that the added nodes can hold together
    (`_maximal`).
    """
    want = tuple(kind.pods for kind in kinds)
    best: set[Load] = {tuple(0 for _ in kinds)}
    for loads, number in _alike(kinds, nodes, budget).items():
        # more nodes than pods are not needed, because each node that is needed holds at least one pod
        for _ in range(min(number, sum(want))):
            budget.spend(len(best) * len(loads))
            best = _maximal({_sum(found, load, want) for found in best for load in loads}, budget)
            if want in best:
                return None
    return max(map(sum, best))


def _greedy(kinds: Sequence[PodClass], nodes: Sequence[tuple[Amounts, frozenset[int]]]) -> bool:
    """Return whether all pods fit if they are placed in a simple order: the nodes that the fewest classes can use are filled
    first, and on each node the class that has the fewest nodes per pod comes first.
    """
    choice = Counter(kind for _, takes in nodes for kind in takes)
    left = {number: kind.pods for number, kind in enumerate(kinds)}
    order = sorted(left, key=lambda number: choice[number] / max(1, left[number]))
    for room, takes in sorted(nodes, key=lambda node: len(node[1])):
        has, here = _amounts(room), set[int]()
        for number in order:
            kind = kinds[number]
            while left[number] and number in takes and not kind.apart & here and _fits(kind, has):
                _take(kind, has)
                here.add(number)
                left[number] -= 1
        if not any(left.values()):
            return True
    return not any(left.values())


def _alike(
    kinds: Sequence[PodClass], nodes: Sequence[tuple[Amounts, frozenset[int]]], budget: _Budget
) -> dict[frozenset[Load], int]:
    """Group the nodes by their maximal loads, which are the loads that can take no further pod. Return each set of maximal
    loads with the number of nodes that have this set.
    """
    found: dict[tuple[Amounts, frozenset[int]], frozenset[Load]] = {}
    for node in set(nodes):
        loads: set[Load] = set()
        for load in _loads(kinds, *node):
            budget.spend(len(kinds))
            loads.add(load)
        found[node] = frozenset(_maximal(loads, budget))
    return Counter(found[node] for node in nodes)


def _loads(kinds: Sequence[PodClass], room: Amounts, takes: frozenset[int]) -> Iterator[Load]:
    """Yield every load that a node can hold: the number of pods of each class in `kinds`. `room` is the capacity of the
    node, and `takes` contains the indices of the classes whose pods the node accepts.
    """

    def filled(number: int, has: dict[str, int], load: Load) -> Iterator[Load]:
        if number == len(kinds):
            yield load
            return
        kind, here = kinds[number], {other for other, count in enumerate(load) if count}
        count = 0
        while True:
            yield from filled(number + 1, dict(has), (*load, count))
            full = count == kind.pods or number not in takes or not _fits(kind, has)
            if full or kind.apart & (here | ({number} if count else set())):
                return
            _take(kind, has)
            count += 1

    return filled(0, _amounts(room), ())


def _maximal(loads: set[Load], budget: _Budget) -> set[Load]:
    """Return the loads that no other load exceeds. A load exceeds another load if it has at least as many pods of every
    class.
    """
    budget.spend(len(loads) ** 2)
    return {load for load in loads if not any(load != other and _within(load, other) for other in loads)}


def _within(load: Load, other: Load) -> bool:
    return all(mine <= theirs for mine, theirs in zip(load, other, strict=True))


def _sum(first: Load, second: Load, want: Load) -> Load:
    return tuple(min(a + b, limit) for a, b, limit in zip(first, second, want, strict=True))


def _fits(kind: PodClass, has: Mapping[str, int]) -> bool:
    return all(not _known(has, name) or _has(has, name) >= amount for name, amount in kind.requests)


def _take(kind: PodClass, has: dict[str, int]) -> None:
    for name, amount in kind.requests:
        if _known(has, name):
            has[name] = _has(has, name) - amount


def _amounts(room: Amounts) -> dict[str, int]:
    return {**dict(room), _REPORTED: 1} if room else {}


def _known(has: Mapping[str, int], name: str) -> bool:
    """Return whether the amount of a resource is known. For a node that reports nothing, only host ports are known: the
    node has one of each.
    """
    return name.startswith(HOST_PORT) or (_REPORTED in has and (name != "pods" or name in has))


def _has(has: Mapping[str, int], name: str) -> int:
    return has.get(name, 1 if name.startswith(HOST_PORT) else 0)
