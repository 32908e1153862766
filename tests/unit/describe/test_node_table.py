"""Tests of the table that `ome nodes` prints."""

from ome_operator.core.observed.nodes import node
from ome_operator.describe import cluster
from ome_operator.describe.node_table import node_table
from tests.support import console


def table(*names: str) -> list[str]:
    board = console.fleet(hostile=False).seen()
    rows = cluster.node_rows(board.trees.values(), board.nodes, board.records)
    return node_table([row for row in rows if not names or row.name in names]).splitlines()


def test_a_line_has_state_gpus_groups_and_weights() -> None:
    head, line, *_ = table("h200-07")
    assert head.split() == ["NODE", "STATE", "PRODUCT", "GPUS", "SERVICE", "GROUPS", "WEIGHTS"]
    assert line.split("  ")[0] == "h200-07" and "8/8" in line
    assert "decode 0 · rank 7 (CrashLoopBackOff)" in line and "kimi-k2-instruct Ready" in line


def test_every_node_and_every_service_on_it_has_a_line() -> None:
    board = console.fleet(hostile=False).seen()
    rows = cluster.node_rows(board.trees.values(), board.nodes, board.records)
    services = [max(1, len({(use.namespace, use.service) for use in row.uses})) for row in rows]
    assert max(services) > 1, "a node with groups of several services"
    assert len(table()) == 1 + sum(services) + 3, "the header, the rows, an empty line, the sums and what is free"


def test_totals_count_free_gpus_and_those_on_unschedulable_nodes() -> None:
    *_, sums, free = table()
    assert sums.startswith("192 GPUs on 24 nodes, of which 22 ready: ")
    assert sums.endswith(" free, 16 free on nodes that accept no pods.")
    assert free == cluster.FREE


def test_unknown_numbers_are_not_written_as_zero() -> None:
    board = console.fleet(hostile=False).seen()
    text = node_table(cluster.node_rows(board.trees.values(), (), ()))
    assert "8/?" in text and "not known" in text


def test_node_table_of_cluster_without_gpus() -> None:
    assert node_table(cluster.node_rows((), [node(console.node("plain", gpus=0))], ())).startswith("No node has GPUs")
