"""Tests of the fields that an accelerator class adds to a component."""

from ome_operator.core.selection.accelerator import parallel_sizes, unset_by_service

NODES = {"gpu": "h200"}
PART = {"class": "h200", "args": ["--tp=8", "--ep", "4", "--x"], "env": {"A": "1", "B": "2"}, "nodeSelector": NODES}


def test_what_the_service_writes_itself_counts_more() -> None:
    written = {
        "runner": {"args": ["--ep=2"], "env": [{"name": "A", "value": "9"}]},
        "worker": {"runner": {"command": ["serve", "--x"]}},
    }
    found = unset_by_service(PART, written)
    assert found == {"class": "h200", "args": ["--tp=8"], "env": {"B": "2"}, "nodeSelector": NODES}


def test_a_service_that_says_nothing_gets_everything() -> None:
    assert unset_by_service(PART, {}) == PART
    assert unset_by_service({}, {"runner": {"args": ["--ep=2"]}}) == {}


def test_flags_that_the_service_wrote_are_told_where_sizes_follow_the_class() -> None:
    written = {"runner": {"args": ["-c", "exec serve --tp-size 4"]}}
    assert unset_by_service({"parallelism": 8}, written) == {"parallelism": 8, "own": ["--tp-size"]}


def test_tensor_and_pipeline_come_from_the_stored_product() -> None:
    assert parallel_sizes({}) == {}
    assert parallel_sizes({"parallelism": 16}) == {"TP": 16}
    assert parallel_sizes({"parallelism": 16, "pipeline": 2}) == {"TP": 8, "PP": 2}
