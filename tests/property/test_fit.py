"""The capacity check agrees with an exhaustive search over all placements, for small cases (docs/placement.md)."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator.core.observed.objects import Node, Taint
from ome_operator.core.placement.demand import Demand, Expression, Term, Toleration
from ome_operator.core.placement.fit import find_unplaced
from ome_operator.core.placement.need import Need
from tests.support.scheduler import may

ASKED = ("cpu", "host port 1/TCP", "nvidia.com/gpu", "pods")
KEYS, VALUES = ("zone", "gpu"), ("1", "2", "x")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
TAINTS = st.lists(
    st.builds(Taint, st.sampled_from(["t", "u"]), st.sampled_from(["", "v"]), st.sampled_from(["NoSchedule", "NoExecute"])),
    max_size=2,
    unique=True,
)
ROOMS = st.fixed_dictionaries({"cpu": st.integers(0, 4000), "nvidia.com/gpu": st.integers(0, 8), "pods": st.integers(1, 5)})
EXPRESSIONS = st.builds(
    lambda key, operator, values: Expression(key, operator, tuple(values) if "Exist" not in operator else ()),
    st.sampled_from(KEYS),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
)
NAMES = st.builds(
    lambda operator, at: Expression("metadata.name", operator, (f"n{at}",)),
    st.sampled_from(["In", "NotIn"]),
    st.integers(0, 2),
)
TERMS = st.builds(
    lambda labels, name: Term(tuple(labels), tuple(name)), st.lists(EXPRESSIONS, max_size=2), st.lists(NAMES, max_size=1)
)
TOLERATIONS = st.builds(
    Toleration,
    st.sampled_from(["", "t", "u"]),
    st.sampled_from(["Exists", "Equal", ""]),
    st.sampled_from(["", "v"]),
    st.sampled_from(["", "NoSchedule", "NoExecute"]),
)
REQUESTS = st.builds(
    lambda *amounts: tuple((name, amount) for name, amount in zip(ASKED, amounts, strict=True) if amount),
    st.sampled_from([0, 1000, 1500]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 1, 2, 4, 8]),
    st.just(1),
)
DEMANDS = st.builds(
    lambda selector, terms, tolerations, requests: Demand(tuple(selector), tuple(terms), tuple(tolerations), requests),
    st.lists(EXPRESSIONS, max_size=1),
    st.one_of(st.just([]), st.lists(TERMS, max_size=2)),
    st.lists(TOLERATIONS, max_size=1),
    REQUESTS,
)


@st.composite
def nodes(draw: Any) -> dict[str, Node]:
    """Generate one to four nodes."""
    found = {}
    for at in range(draw(st.integers(1, 4))):
        room = tuple(sorted(draw(ROOMS).items())) if draw(st.integers(0, 9)) else ()
        alive = bool(draw(st.integers(0, 7)))
        ready = alive and bool(draw(st.integers(0, 7)))
        found[f"n{at}"] = Node(f"n{at}", 1, draw(LABELS), ready, 0, frozenset(), alive, tuple(draw(TAINTS)), room)
    return found


@st.composite
def needs(draw: Any) -> tuple[Need, ...]:
    """Generate one to three kinds of pods, up to five pods in all; some must not share a node."""
    number = draw(st.integers(1, 3))
    pods = [draw(st.integers(0, 3)) for _ in range(number)]
    shy = {
        pair for a in range(number) for b in range(a, number) if draw(st.integers(0, 5)) == 0 for pair in ((a, b), (b, a))
    }
    demands = [draw(DEMANDS) for _ in range(number)]
    if draw(st.booleans()):
        demands = [demands[0]] * number
    return tuple(
        Need((f"c{at}",), f"c{at}", demands[at], pods[at], (at, at) in shy, tuple(b for a, b in sorted(shy) if a == at != b))
        for at in range(number)
    )


def placements(
    pods: list[int], wanted: tuple[Need, ...], found: dict[str, Node], used: dict[str, list[int]]
) -> Iterator[bool]:
    """Yield one value for every assignment of the pods to nodes: True if the assignment is valid. `pods` lists the index of
    each pod's kind in `wanted`; `used` has the kinds of the pods that are already on each node.
    """
    if not pods:
        yield True
        return
    kind, rest = pods[0], pods[1:]
    need = wanted[kind]
    for name, node in found.items():
        here = used[name]
        shy = any((other == kind and need.alone) or other in need.apart for other in here)
        if shy or not may(need.demand, node) or not _held(node, [*here, kind], wanted):
            continue
        yield from placements(rest, wanted, found, {**used, name: [*here, kind]})


def _held(node: Node, here: list[int], wanted: tuple[Need, ...]) -> bool:
    for name in ASKED:
        asked = sum(dict(wanted[kind].demand.requests).get(name, 0) for kind in here)
        has = 1 if name.startswith("host") else dict(node.room).get(name, 0) if node.room else asked
        if asked > has:
            return False
    return True


@settings(max_examples=400)
@given(needs(), nodes())
def test_pods_fit_exactly_if_a_placement_exists(wanted: tuple[Need, ...], found: dict[str, Node]) -> None:
    pods = [kind for kind, need in enumerate(wanted) for _ in range(need.pods)]
    possible = any(placements(pods, wanted, found, {name: [] for name in found}))
    answer = find_unplaced(wanted, found)
    assert (answer == ()) is possible, answer
    assert all(lack.components and lack.sentence for lack in answer)


@settings(max_examples=100)
@given(needs(), nodes())
def test_pods_that_fit_also_fit_by_lasting_capacity(wanted: tuple[Need, ...], found: dict[str, Node]) -> None:
    if find_unplaced(wanted, found) == ():
        assert find_unplaced(wanted, found, True) == ()
