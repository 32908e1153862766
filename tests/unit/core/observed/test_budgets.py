"""Tests of which disruption budgets of other clients select pods of a service."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.budgets import Budget, budget, second_budgets
from ome_operator.core.reconcile.sync import sync
from tests.support.shapes import Shape
from tests.unit.core.passes import settled

WORLD = settled(Shape(size=2, engines=3, decoders=1))
MANIFESTS = [one.manifest for one in WORLD.children.values()]


def said(selector: dict[str, Any] | None, *more: Budget) -> str:
    return "; ".join(second_budgets([Budget("extra", selector), *more], MANIFESTS, "team"))


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "components"),
    [
        ({}, {"engine", "decoder", "router"}),
        (None, set()),
        ({"matchLabels": {"component": "decoder"}}, {"decoder"}),
        ({"matchLabels": {"component": "decoder", "app": "x"}}, set()),
        ({"matchLabels": {keys.GROUP_INDEX: "2"}}, {"engine"}),
        ({"matchLabels": {keys.GROUP_INDEX: "9"}}, set()),
        ({"matchLabels": {keys.WORKER_INDEX: "0"}}, {"engine", "decoder"}),
        (expression("component", "In", "router", "x"), {"router"}),
        (expression("component", "NotIn", "router"), {"engine", "decoder"}),
        (expression(keys.GROUP_INDEX, "In", "2"), {"engine"}),
        (expression(keys.WORKER_INDEX, "Exists"), {"engine", "decoder"}),
        (expression(keys.MANAGED_BY, "DoesNotExist"), set()),
        (expression("component", "Unknown", "router"), set()),
    ],
)
def test_budget_selector_is_compared_with_pod_labels(selector: dict[str, Any] | None, components: set[str]) -> None:
    found = said(selector)
    assert {one for one in ("engine", "decoder", "router") if f"pods of {one}," in found} == components


def test_the_sentence_names_the_budgets_and_the_way_out() -> None:
    found = said({"matchLabels": {"component": "decoder"}})
    assert found.startswith("PodDisruptionBudget extra also selects pods of decoder")
    assert found.endswith("Exclude pods with the label ome.io/managed-by=ome-operator from the selector, or run "
                          "`kubectl delete pdb extra -n team`")  # fmt: skip
    many = [Budget(f"b{number}", {"matchLabels": {"component": "decoder"}}) for number in range(4)]
    assert said(None, *many).startswith("PodDisruptionBudgets b0, b1, b2 and 1 more also select pods of decoder")


def test_foreign_disruption_budget_is_reported_as_advice() -> None:
    seen = replace(WORLD.observed(), budgets=(Budget("extra", {}),))
    told = {one["type"]: one for one in sync(WORLD.service, WORLD.deps, seen, WORLD.now).status["conditions"]}
    assert "PodDisruptionBudget extra also selects pods of router" in told["Advice"]["message"]
    assert told["Ready"]["status"] == "True"


@pytest.mark.parametrize("body", [{}, {"metadata": None, "spec": None}, {"spec": {"minAvailable": 1}}])
def test_a_budget_without_a_selector_selects_nothing(body: dict[str, Any]) -> None:
    assert budget(body) == Budget("", None)
