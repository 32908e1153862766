"""Tests of the pods of a component: layers, group sizes, the main container, and the messages of refusals."""

from typing import Any

import pytest

from ome_operator.core.podspec.compose import ComposedPods, compose
from ome_operator.core.problem import ProblemError

Data = dict[str, Any]


def made(runtime: Data, written: Data | None = None, component: str = "engine") -> ComposedPods:
    """Return the component that is composed of the part `runtime` of a runtime and the part `written` of a service; None if
    the service sets nothing.
    """
    return compose(component, runtime, written)


def test_higher_pod_layers_override_lower_ones() -> None:
    """Each layer of a pod spec overrides one key of the layer below, so the result shows the order of all layers."""
    runtime = {
        "pod": {
            "containers": [{"name": "main", "image": "1"}],
            "nodeSelector": {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"},
        },
        "engineConfig": {
            "nodeSelector": {"b": "2", "c": "2", "d": "2", "e": "2"},
            "leader": {"nodeSelector": {"c": "3", "d": "3", "e": "3"}},
        },
    }
    written = {"nodeSelector": {"d": "4", "e": "4"}, "leader": {"nodeSelector": {"e": "5"}}}
    assert made(runtime, written).leader["nodeSelector"] == {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}


def test_runners_follow_the_same_layers() -> None:
    def runner(value: str, **more: Any) -> Data:
        return {"image": value, "env": [{"name": value, "value": value}], **more}

    runtime = {"engineConfig": {"runner": runner("a", command=["x"]), "leader": {"runner": runner("b")}}}
    (box,) = made(runtime, {"runner": runner("c"), "leader": {"runner": runner("d", name="main")}}).leader["containers"]
    assert (box["name"], box["image"], box["command"]) == ("main", "d", ["x"])
    assert [one["name"] for one in box["env"]] == ["a", "b", "c", "d"]


def test_the_default_name_of_the_main_container() -> None:
    assert made({"engineConfig": {"runner": {"image": "i"}}}).leader["containers"][0]["name"] == "ome-container"


def test_unnamed_runner_is_merged_into_the_only_container() -> None:
    runtime = {"pod": {"containers": [{"name": "sglang", "image": "i", "args": ["a"]}]}}
    (box,) = made(runtime, {"runner": {"args": ["b"], "env": [{"name": "A"}]}}).leader["containers"]
    assert (box["name"], box["image"], box["args"]) == ("sglang", "i", ["a", "b"])


def test_unnamed_runner_is_merged_into_the_container_with_default_name() -> None:
    runtime = {"pod": {"containers": [{"name": "side"}, {"name": "ome-container", "image": "i"}]}}
    main, side = made(runtime, {"runner": {"args": ["b"]}}).leader["containers"]
    assert (main["name"], main["image"], side["name"]) == ("ome-container", "i", "side")


BOX = {"runner": {"image": "i"}}
SIZES: dict[str, tuple[Data, Data, int]] = {
    "no worker is one node": ({"engineConfig": BOX}, {}, 1),
    "a worker without a size is one": ({"engineConfig": {**BOX, "worker": {}}}, {}, 2),
    "the runtime's size": ({"engineConfig": {**BOX, "worker": {"size": 3}}}, {}, 4),
    "the service's size above it": ({"engineConfig": {**BOX, "worker": {"size": 3}}}, {"worker": {"size": 1}}, 2),
    "the service's worker without a size keeps the runtime's": (
        {"engineConfig": {**BOX, "worker": {"size": 3}}},
        {"worker": {}},
        4,
    ),
    "zero is one node": ({"engineConfig": {**BOX, "worker": {"size": 3}}}, {"worker": {"size": 0}}, 1),
    "the old top-level workers": ({"engineConfig": BOX, "workers": {"size": 2}}, {}, 3),
    "a leader alone is one node": ({"engineConfig": {**BOX, "leader": {}}}, {}, 1),
}


@pytest.mark.parametrize("case", SIZES)
def test_compose_derives_group_size_and_worker(case: str) -> None:
    runtime, written, size = SIZES[case]
    composed = made(runtime, written)
    assert composed.size == size
    assert (composed.worker is None) == (size == 1)


def test_legacy_workers_block_applies_only_to_the_engine() -> None:
    runtime = {"engineConfig": BOX, "decoderConfig": BOX, "workers": {"size": 2, "nodeSelector": {"w": "1"}}}
    engine = made(runtime)
    assert made(runtime, {}, "decoder").size == 1
    assert engine.worker is not None and engine.worker["nodeSelector"] == {"w": "1"}
    assert "nodeSelector" not in engine.leader


def test_labels_and_annotations_are_merged_from_all_layers() -> None:
    runtime = {"labels": {"a": "1", "b": "1"}, "annotations": {"n": "1"}, "engineConfig": {**BOX, "labels": {"b": "2"}}}
    composed = made(runtime, {"labels": {"c": "3"}, "annotations": {"n": "2"}})
    assert composed.labels == {"a": "1", "b": "2", "c": "3"}
    assert composed.annotations == {"n": "2"}


def test_compose_merges_timeout_and_router_config() -> None:
    runtime = {"routerConfig": {**BOX, "timeoutSeconds": 9, "config": {"A": "1", "B": "1"}}}
    composed = made(runtime, {"config": {"B": "2"}}, "router")
    assert (composed.timeout, composed.config) == (9, {"A": "1", "B": "2"})
    assert made(runtime, {"timeoutSeconds": 0}, "router").timeout == 0


def test_top_level_pod_of_a_runtime_does_not_apply_to_the_router() -> None:
    with pytest.raises(ProblemError):
        made({"pod": {"containers": [{"name": "main", "image": "i"}]}}, {}, "router")


REFUSED: dict[str, tuple[Data, Data, str]] = {
    "nothing to run": ({}, {}, "nothing to run"),
    "env as a map": ({"engineConfig": BOX}, {"runner": {"env": {"A": "1"}}}, "spec.engine.runner.env must be a list"),
    "env without a name": (
        {"engineConfig": {"runner": {"image": "i", "env": [{"value": "1"}]}}},
        {},
        "the runtime's spec.engineConfig.runner.env[0] must be a map with a name",
    ),
    "args as a text": (
        {"engineConfig": BOX},
        {"leader": {"runner": {"args": "--x"}}},
        "spec.engine.leader.runner.args must be a list of strings",
    ),
    "a container without a name": (
        {"pod": {"containers": [{"image": "i"}]}},
        {},
        "the runtime's spec.containers[0] must be a map with a name",
    ),
    "containers as a map": ({"engineConfig": BOX}, {"containers": {"a": {}}}, "spec.engine.containers must be a list"),
    "a port that is no number": (
        {"engineConfig": BOX},
        {"runner": {"ports": [{"containerPort": "http"}]}},
        "containerPort must be a whole number",
    ),
    "limits as a list": ({"engineConfig": BOX}, {"runner": {"resources": {"limits": []}}}, "limits must be a map"),
    "an empty entry": ({"engineConfig": BOX}, {"volumes": [None]}, "spec.engine.volumes[0] must be a map with a name"),
    "tolerations": (
        {"engineConfig": BOX},
        {"worker": {"tolerations": ["x"]}},
        "spec.engine.worker.tolerations[0] must be a map",
    ),
    "affinity": (
        {"engineConfig": BOX},
        {"affinity": {"nodeAffinity": "a"}},
        "spec.engine.affinity.nodeAffinity must be a map",
    ),
    "grace": ({"engineConfig": BOX}, {"terminationGracePeriodSeconds": "long"}, "must be a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_pod_field_is_refused_with_its_path(case: str) -> None:
    runtime, written, sentence = REFUSED[case]
    with pytest.raises(ProblemError) as refused:
        made(runtime, written)
    assert sentence in refused.value.problem.message
    assert refused.value.problem.condition == "EngineReady"


def test_stored_group_size_above_the_limit_is_refused_with_a_message() -> None:
    with pytest.raises(ProblemError) as refused:
        made({"engineConfig": {**BOX, "worker": {"size": 5000}}})
    assert refused.value.problem.message == "the runtime's spec.engineConfig.worker.size is 5000: write 1000 or less"


def test_null_removes_a_value_of_the_runtime() -> None:
    runtime = {"engineConfig": {"runner": {"image": "i", "command": ["x"]}, "hostNetwork": True}}
    composed = made(runtime, {"hostNetwork": None, "runner": {"command": None}})
    assert composed.leader == {"containers": [{"image": "i", "name": "ome-container"}]}


def test_duplicate_variable_is_reported_with_its_path() -> None:
    twice = {"runner": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}}
    runtime = {"engineConfig": {"runner": {"image": "i", "env": [{"name": "A", "value": "0"}]}}}
    composed = made(runtime, twice)
    assert composed.dropped == ("spec.engine.runner: env A is set twice: the last value is used",)
    assert composed.leader["containers"][0]["env"] == [{"name": "A", "value": "2"}]
    assert made({"engineConfig": twice}).dropped == (
        "the runtime's spec.engineConfig.runner: env A is set twice: the last value is used",
    )


def test_metadata_of_the_legacy_workers_block_applies_to_worker_pods() -> None:
    workers = {"labels": {"rank": "other", "a": "w"}, "annotations": {"note": "w"}}
    composed = made({"engineConfig": {**BOX, "labels": {"a": "e"}}, "labels": {"all": "r"}, "workers": workers})
    assert composed.labels == {"all": "r", "a": "e"} and composed.annotations == {}
    assert composed.worker_labels == {"all": "r", "rank": "other", "a": "e"}
    assert composed.worker_annotations == {"note": "w"}
    assert made({"routerConfig": BOX, "workers": workers}, component="router").worker_labels == {}
