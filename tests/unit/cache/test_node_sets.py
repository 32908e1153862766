"""Tests that a set of nodes equals a set of their names."""

import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.cache.node_sets import NodeNumbers, NodeSet

NODES = st.sampled_from([f"node-{number}" for number in range(6)])


@given(st.lists(st.tuples(st.sampled_from(["hold", "drop", "go"]), NODES, st.integers(0, 2)), max_size=40))
def test_sets_of_nodes_equal_sets_of_names(steps: list[Any]) -> None:
    """Three sets of nodes always equal three sets of the nodes' names. The equality holds while nodes enter and leave the
    sets, and when the number of a deleted node is used for another node.
    """
    numbers = NodeNumbers()
    sets = [NodeSet(numbers) for _ in range(3)]
    wanted: list[Any] = [set() for _ in range(3)]
    for what, node, at in steps:
        for each, names in zip(sets, wanted, strict=True) if what == "go" else [(sets[at], wanted[at])]:
            if what == "hold" and node not in names:
                each.add(node)
                names.add(node)
            elif what != "hold" and node in names:
                each.remove(node)
                names.remove(node)
        if what == "go":
            numbers.free(node)
    for each, names in zip(sets, wanted, strict=True):
        assert each == names and set(each) == names and len(each) == len(names)
        assert all((f"node-{number}" in each) is (f"node-{number}" in names) for number in range(7))
        assert each & sets[0] == names & wanted[0] and isinstance(each | sets[0], frozenset)
    assert len(numbers.names) <= 6
    for node in {node for _, node, _ in steps}:
        numbers.free(node)
    assert not numbers.names and not numbers._free


def test_node_set_uses_little_memory() -> None:
    numbers = NodeNumbers()
    made = NodeSet(numbers)
    for number in range(5000):
        made.add(f"node-{number}")
    assert sys.getsizeof(made._flags) < 10_000 and len(made) == 5000
