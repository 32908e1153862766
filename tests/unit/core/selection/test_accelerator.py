"""Tests of the fields that an accelerator class adds to a component."""

from ome_operator.core.selection.accelerator import parallel_sizes, unset_by_service

NODES = {"gpu": "h200"}
PART = {"class": "h200", "args": ["--tp=8", "--ep", "4", "--x"], "env": {"A": "1", "B": "2"}, "nodeSelector": NODES}


def test_service_settings_override_the_accelerator_class() -> None:
    written = {
        "runner": {"args": ["--ep=2"], "env": [{"name": "A", "value": "9"}]},
        "worker": {"runner": {"command": ["serve", "--x"]}},
    }
    found = unset_by_service(PART, written)
    assert found == {"class": "h200", "args": ["--tp=8"], "env": {"B": "2"}, "nodeSelector": NODES}


def test_service_without_own_settings_gets_all_of_the_class() -> None:
    assert unset_by_service(PART, {}) == PART
    assert unset_by_service({}, {"runner": {"args": ["--ep=2"]}}) == {}


def test_size_flags_set_by_the_service_are_listed_as_own() -> None:
    written = {"runner": {"args": ["-c", "exec serve --tp-size 4"]}}
    assert unset_by_service({"parallelism": 8}, written) == {"parallelism": 8, "own": ["--tp-size"]}


def test_tensor_and_pipeline_sizes_are_derived_from_the_stored_product() -> None:
    assert parallel_sizes({}) == {}
    assert parallel_sizes({"parallelism": 16}) == {"TP": 16}
    assert parallel_sizes({"parallelism": 16, "pipeline": 2}) == {"TP": 8, "PP": 2}
