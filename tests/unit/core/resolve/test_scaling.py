"""Tests of accelerators, weights, the nodes that hold the weights, and the number of groups."""

from typing import Any

import pytest

from ome_operator.core.problem import ProblemError
from ome_operator.core.resolve.scaling import replica_policy
from ome_operator.core.selection.accelerator import accelerator_classes
from ome_operator.core.weights.availability import availability
from ome_operator.core.weights.mount import claim, mount, weights
from tests.support import parts

FORMATS = [
    {"name": "a"},
    {
        "name": "b",
        "acceleratorConfig": {
            "h200": {
                "runtimeArgsOverride": ["--tp=8"],
                "environmentOverride": {"A": "1"},
                "tensorParallelismOverride": {"tensorParallelSize": 8, "pipelineParallelSize": 2},
            }
        },
    },
]
H200 = parts.accelerator("h200", discovery={"nodeSelector": {"gpu": "h200"}})


def chosen(**spec: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the parts of the pod that the accelerator class adds, and the reasons of problems."""
    having = parts.deps(H200, parts.accelerator("other"))
    found, problems = accelerator_classes(
        parts.service(**spec), parts.runtime(supportedModelFormats=FORMATS), {}, having, None, {}
    )
    return found.parts, [one.reason for one in problems]


def test_accelerator_class_adds_nodes_arguments_variables_and_parallelism() -> None:
    part = {"class": "h200", "nodeSelector": {"gpu": "h200"}, "args": ["--tp=8"], "env": {"A": "1"}}
    part |= {"parallelism": 16, "pipeline": 2}
    found = chosen(engine={}, decoder={}, acceleratorSelector={"acceleratorClass": "h200"})
    assert found == ({"engine": part, "decoder": part}, [])


def test_accelerator_class_of_the_component_takes_precedence() -> None:
    found, _ = chosen(
        engine={"acceleratorOverride": {"acceleratorClass": "other"}}, acceleratorSelector={"acceleratorClass": "h200"}
    )
    assert found == {"engine": {"class": "other"}}


def test_an_unknown_class_is_a_problem() -> None:
    assert chosen(engine={}, acceleratorSelector={"acceleratorClass": "x"})[1] == ["AcceleratorNotFound"]


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("pvc://weights", ("", "weights", "")),
        ("pvc://weights/llama/8b/", ("", "weights", "llama/8b")),
        ("pvc://team:weights/llama", ("team", "weights", "llama")),
        ("hf://org/model", None),
        ("local:///models/x", None),
    ],
)
def test_claim_name_is_parsed_from_uri(uri: str, found: object) -> None:
    assert claim(uri) == found


def identity(uri: str, **storage: Any) -> dict[str, str]:
    """Return what a revision stores about a model."""
    model = parts.model(storage={"storageUri": uri, **storage})
    return dict(weights(model)._asdict())


def test_model_on_nodes_is_mounted_read_only_with_node_affinity() -> None:
    found = mount(identity("hf://a/b", path="/raid/tiny/"), "team")
    assert found.volume == {"name": "model", "hostPath": {"path": "/raid/tiny", "type": "Directory"}}
    assert found.mount == {"name": "model", "mountPath": "/raid/tiny", "readOnly": True}
    expression = {"key": "models.ome.io/clusterbasemodel.tiny", "operator": "In", "values": ["Ready"]}
    assert found.affinity == expression


def test_a_model_without_a_path_has_a_default() -> None:
    assert identity("hf://a/b")["path"] == "/mnt/models/tiny"


def test_claim_needs_no_node_affinity_and_must_be_in_the_same_namespace() -> None:
    found = mount(identity("pvc://team:weights/x"), "team")
    assert found.volume["persistentVolumeClaim"] == {"claimName": "weights", "readOnly": True}
    assert (found.mount["subPath"], found.affinity) == ("x", None)
    with pytest.raises(ProblemError, match="claim of namespace other"):
        mount(identity("pvc://other:weights/x"), "team")


@pytest.mark.parametrize(
    ("groups", "need"),
    [([(1, 4), (1, 12)], 16), ([(3, 1), (2, 1)], 1), ([(2, 2), (5, 1)], 4), ([(0, 4)], 0), ([(0, 1)], 0), ([], 0)],
)
def test_availability_counts_nodes_that_groups_need(groups: list[tuple[int, int]], need: int) -> None:
    found = availability([identity("hf://a/b")], groups, parts.deps(parts.model(), nodes=4))
    assert (found.ready_nodes, found.need, found.has_enough_nodes) == (4, need, need <= 4)


def test_weights_on_claim_are_available_on_all_nodes() -> None:
    assert availability([identity("pvc://weights")], [(9, 9)], parts.deps()).has_enough_nodes


def counts(above: dict[str, Any], below: dict[str, Any] | None = None, scaler: str = "") -> Any:
    """Return the replica policy of the engine."""
    service = parts.service(engine=above, annotations={"ome.io/autoscalerClass": scaler} if scaler else {})
    return replica_policy(service, parts.runtime(engineConfig=below or {}), "engine")


def test_default_is_one_group_without_an_autoscaler() -> None:
    found = counts({})
    assert (found.low, found.high, found.is_scaled, found.scaler) == (1, 1, False, "")


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        ({"minReplicas": 2}, {"minReplicas": 5, "maxReplicas": 6}, (2, 6)),
        ({}, {"minReplicas": 5}, (5, 5)),
        ({"minReplicas": 0}, {}, (0, 0)),
        ({"minReplicas": 4}, {"maxReplicas": 2}, (4, 4)),
        ({"maxReplicas": 3}, {}, (1, 3)),
    ],
)
def test_replica_counts_of_the_service_override_the_runtime(above: Any, below: Any, expected: tuple[int, int]) -> None:
    found = counts(above, below)
    assert (found.low, found.high) == expected


def test_budget_of_the_service_replaces_the_budget_of_the_runtime() -> None:
    found = counts({"maxUnavailable": 2}, {"minAvailable": 1})
    assert (found.min_available, found.max_unavailable) == (None, 2)


@pytest.mark.parametrize(
    ("engine", "scaled", "autoscaled"),
    [
        ({"maxReplicas": 2}, True, False),  # set manually
        ({"maxReplicas": 2, "scaleTarget": 50}, True, False),
        ({"maxReplicas": 2, "scaleMetric": "cpu"}, True, True),
        ({"maxReplicas": 2, "scaleMetric": "rps", "scaleTarget": 5}, True, False),  # 5 requests are not 5 % of a CPU
        ({"maxReplicas": 2, "scaleMetric": "concurrency", "autoscaler": {"class": "HPA"}}, True, False),
        ({"maxReplicas": 2, "autoscaler": {"class": "HPA"}}, True, True),
        ({"maxReplicas": 2, "scaleMetric": "rps", "autoscaler": {"class": "HPA", "hpa": {"metrics": [{}]}}}, True, True),
        ({"maxReplicas": 2, "autoscaler": {"class": "None"}}, False, False),
        ({"scaleMetric": "cpu"}, False, False),
        ({"autoscaler": {"class": "KEDA", "keda": {}}}, True, False),
    ],
)
def test_autoscaler_needs_a_class_or_a_supported_metric(engine: Any, scaled: bool, autoscaled: bool) -> None:
    found = counts(engine)
    assert (found.is_scaled, found.autoscaled) == (scaled, autoscaled)


def test_ome_annotation_sets_the_autoscaler_class() -> None:
    assert counts({"maxReplicas": 2}, None, "hpa").autoscaled
    assert not counts({"maxReplicas": 2}, None, "external").autoscaled


def test_scaler_depends_on_policy_and_default() -> None:
    assert counts({"maxReplicas": 2}).is_scaled
    assert not counts({"maxReplicas": 2, "autoscaler": {"class": "None"}}).is_scaled
    assert counts({"autoscaler": {"class": "External"}}).is_scaled
    assert counts({}, None, "keda").scaler == "keda"
    assert counts({"autoscaler": {"class": "HPA"}}, None, "keda").scaler == "hpa"
