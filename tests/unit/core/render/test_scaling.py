"""Tests of disruption budgets, RoleScales and autoscalers."""

from typing import Any

import pytest

from ome_operator.core.render import meta, scaling
from ome_operator.core.resolve.scaling import ReplicaPolicy

OWNER = meta.Owner("svc", "team", "u")


def counts(**changed: Any) -> ReplicaPolicy:
    """Return a policy for one group."""
    return ReplicaPolicy(1, 1, None, None, "", 0, {}, "")._replace(**changed)


@pytest.mark.parametrize(
    ("said", "groups", "pods"),
    [
        ({}, 4, 1),
        ({}, 0, 1),
        ({"max_unavailable": 2}, 4, 2),
        ({"max_unavailable": 0}, 4, 0),
        ({"max_unavailable": "25%"}, 4, 1),
        ({"max_unavailable": "26%"}, 4, 2),
        ({"min_available": 1}, 1, 0),
        ({"min_available": 3}, 4, 1),
        ({"min_available": 9}, 4, 0),
        ({"min_available": "50%"}, 3, 1),
        ({"min_available": "100%"}, 3, 0),
        ({"min_available": 1}, 5, 4),
    ],
)
def test_user_budget_of_groups_is_converted_to_pods(said: dict[str, Any], groups: int, pods: int) -> None:
    """The budget of a user counts groups, and the PodDisruptionBudget counts pods: one eviction removes one group, so u
    unavailable groups correspond to u pods (decisions 14).
    """
    assert scaling.allowed_disruptions(counts(**said), groups) == pods


def test_budget_selects_all_pods_of_one_role_of_one_slice() -> None:
    spec = scaling.budget(OWNER, "engine", "r1", 2)["spec"]
    labels = {
        "component": "engine",
        "ome.io/revision": "r1",
        "ome.io/inferenceservice": "svc",
        "ome.io/managed-by": "ome-operator",
    }
    assert spec == {"maxUnavailable": 2, "selector": {"matchLabels": labels}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}


ADVICE: list[tuple[str, dict[str, Any], str]] = [
    ("engine", {}, ""),
    ("engine", {"min_available": 1}, "allows no eviction"),
    ("engine", {"high": 3, "scale_metric": "rps", "scaler": "hpa"}, "so no HorizontalPodAutoscaler is created"),
    ("engine", {"high": 3, "scale_metric": "cpu", "scaler": "hpa"}, ""),
    ("engine", {"high": 3, "scaler": "hpa"}, "names no metric, so its HorizontalPodAutoscaler reads the CPU usage"),
    ("engine", {"high": 3, "scaler": "hpa", "hpa": {"metrics": [{"type": "Pods"}]}}, ""),
    ("engine", {"low": 0, "high": 3, "scale_metric": "cpu", "scaler": "hpa"}, "cannot scale up from zero"),
    ("engine", {"high": 3}, ""),  # by hand (docs/scaling.md)
    ("engine", {"high": 3, "scale_target": 5}, "spec.engine.scaleTarget has no effect without scaleMetric"),
    ("engine", {"high": 3, "scaler": "none"}, ""),
    ("engine", {"scaler": "keda"}, ""),
    ("router", {"high": 3}, ""),
    (
        "router",
        {"high": 3, "scaler": "hpa", "scale_metric": "cpu", "waits": True},
        "the autoscaler of spec.router had no effect in earlier versions of the operator. The operator creates it",
    ),
    ("router", {}, ""),
]


@pytest.mark.parametrize(("component", "said", "words"), ADVICE)
def test_autoscaler_advice_for_unused_settings(component: str, said: dict[str, Any], words: str) -> None:
    found = scaling.advice(OWNER, component, counts(**said), 1)
    assert bool(found) == bool(words)
    assert words in "".join(found)


def test_role_scale_outside_bounds_gives_advice() -> None:
    told = "RoleScale svc-engine asks for 7 groups, but spec.engine has minReplicas 1 and maxReplicas 3: 3 are used"
    asked = counts(high=3, scale_metric="cpu", scaler="hpa")
    assert scaling.advice(OWNER, "engine", asked, 3, 7) == [told]
    assert scaling.advice(OWNER, "engine", asked, 1, 0)[0].endswith(": 1 are used")
    assert scaling.advice(OWNER, "engine", asked, 3, 3) == []


def test_autoscaler_targets_the_role_scale() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    spec = scaling.autoscaler(OWNER, "engine", counts(low=0, high=4, hpa={"behavior": behavior}))["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "ome.io/v1beta1", "kind": "RoleScale", "name": "svc-engine"}
    assert (spec["minReplicas"], spec["maxReplicas"], spec["behavior"]) == (1, 4, behavior)
    (metric,) = spec["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}


def test_user_metrics_replace_default_metrics() -> None:
    assert scaling.autoscaler(OWNER, "engine", counts(high=4, hpa={"metrics": [{"type": "Pods"}]}))["spec"]["metrics"] == [
        {"type": "Pods"}
    ]


def test_role_scale_selector_matches_leaders_of_every_revision() -> None:
    status = scaling.role_scale_status(OWNER, "decoder", 3, 2)
    assert (status["replicas"], status["readyReplicas"]) == (3, 2)
    assert "component=decoder" in status["selector"] and "worker-index=0" in status["selector"]
    assert "revision" not in status["selector"]
