"""Tests of which objects belong to an operator."""

import pytest

from ome_operator.cache.cluster_cache import KINDS
from ome_operator.cache.scope import Scope
from ome_operator.kube.resources import RESOURCES

LABEL = "ome.io/operator-class"


@pytest.mark.parametrize(
    ("kind", "label", "none", "blue"),
    [
        ("InferenceService", None, True, False),
        ("InferenceService", "blue", False, True),
        ("InferenceService", "red", False, False),
        ("BenchmarkJob", None, True, False),
        ("Serving", "blue", False, True),
        ("ClusterServingRuntime", None, True, True),
        ("ClusterServingRuntime", "blue", False, True),
        ("BaseModel", "red", False, False),
        ("Pod", "red", True, True),
        ("Node", "red", True, True),
    ],
)
def test_objects_of_other_operator_classes_are_not_covered(kind: str, label: str | None, none: bool, blue: bool) -> None:
    body = {"metadata": {"labels": {LABEL: label}} if label else {}}
    assert (Scope().covers_object(kind, body), Scope(operator_class="blue").covers_object(kind, body)) == (none, blue)


def test_operator_writes_only_objects_of_its_own_class() -> None:
    """Every operator reads a model without a class, but only the operator without a class writes the model's status."""
    assert [Scope(operator_class=of).acts_on({}) for of in ("", "blue")] == [True, False]
    assert [Scope(operator_class=of).acts_on({LABEL: "blue"}) for of in ("", "blue")] == [False, True]


def test_each_kind_is_in_one_place() -> None:
    scope = Scope(("a", "b"))
    inside, outside = scope.in_place(KINDS, "a"), scope.in_place(KINDS, "")
    assert set(inside) | set(outside) == set(KINDS) and not set(inside) & set(outside)
    assert all(RESOURCES[kind].namespaced for kind in inside)
    assert Scope().in_place(KINDS, "") == KINDS
    assert set(Scope(("a",), cluster_kinds=False).kinds(KINDS)) == set(inside)


@pytest.mark.parametrize(
    ("scope", "labels", "removes"),
    [
        (Scope(), True, True),
        (Scope(("a",)), False, False),
        (Scope(("a",), model_agent=True), True, False),
        (Scope(operator_class="blue", model_agent=True), False, False),
        (Scope(("a",), cluster_kinds=False, model_agent=True), False, False),
    ],
)
def test_only_one_operator_of_a_cluster_labels_nodes(scope: Scope, labels: bool, removes: bool) -> None:
    """Only one operator of a cluster labels nodes. Only an operator that sees all pods permits the removal of weights."""
    assert (scope.labels_nodes, scope.removes_weights) == (labels, removes)
