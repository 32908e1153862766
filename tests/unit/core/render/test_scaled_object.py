"""Tests of ScaledObjects, and of the advice if no ScaledObject is created."""

from typing import Any

import pytest

from ome_operator.core.render import meta, scaled_object
from ome_operator.core.resolve.keda import KedaSettings
from ome_operator.core.resolve.scaling import ReplicaPolicy

OWNER = meta.Owner("svc", "team", "u")
LOAD = {"type": "prometheus", "metadata": {"query": "load{app='%s'}"}}


def counts(*triggers: Any, low: int = 1, high: int = 4, scaler: str = "keda", **more: Any) -> ReplicaPolicy:
    keda = KedaSettings(triggers, tuple(more.items()))
    return ReplicaPolicy(low, high, None, None, "", 0, {}, scaler, keda=keda)


def test_a_scaled_object_scales_the_role_scale() -> None:
    made = scaled_object.scaled_object(OWNER, "decoder", counts(LOAD, low=2, pollingInterval=5, cooldownPeriod=60))
    assert (made["apiVersion"], made["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert made["metadata"]["name"] == "svc-decoder" and made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made["spec"] == {
        "scaleTargetRef": {"apiVersion": "ome.io/v1beta1", "kind": "RoleScale", "name": "svc-decoder"},
        "minReplicaCount": 2,
        "maxReplicaCount": 4,
        "triggers": [{"type": "prometheus", "metadata": {"query": "load{app='svc-decoder'}"}}],
        "pollingInterval": 5,
        "cooldownPeriod": 60,
        "fallback": {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"},
    }


def test_keda_autoscaler_is_not_labelled_as_owned_by_the_operator() -> None:
    metadata = scaled_object.scaled_object(OWNER, "engine", counts(LOAD))["metadata"]
    excluded = metadata["annotations"]["scaledobject.keda.sh/hpa-excluded-labels"].split(",")
    assert set(excluded) == metadata["labels"].keys() and "ome.io/managed-by" in excluded


@pytest.mark.parametrize(
    ("policy", "fallback"),
    [
        (counts(LOAD, fallback={"replicas": 3}), {"replicas": 3}),
        (counts(LOAD, low=0), None),
        (counts({"type": "cpu"}, {"type": "memory"}), None),
        (counts({"type": "cpu"}, LOAD), {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}),
    ],
)
def test_scaled_object_keeps_the_number_while_a_metric_is_missing(policy: ReplicaPolicy, fallback: Any) -> None:
    assert scaled_object.scaled_object(OWNER, "engine", policy)["spec"].get("fallback") == fallback


@pytest.mark.parametrize("trigger", [{"type": "prometheus"}, {"metadata": "q"}, {"metadata": {"value": "%s"}}])
def test_only_prometheus_queries_get_default_fields(trigger: Any) -> None:
    assert scaled_object.scaled_object(OWNER, "engine", counts(trigger))["spec"]["triggers"] == [trigger]


@pytest.mark.parametrize(
    ("policy", "enabled", "words"),
    [
        (counts(LOAD), True, ""),
        (counts(LOAD), False, "class KEDA has no effect for engine and its size stays, because this operator creates no"),
        (counts(), True, "because it has no trigger: write spec.engine.autoscaler.keda.triggers"),
        (counts()._replace(keda=KedaSettings(incomplete=True)), True, "kedaConfig needs promServerAddress"),
        (counts(LOAD, high=1), True, "spec.engine.maxReplicas has to be greater than minReplicas"),
        (counts(LOAD, scaler="hpa"), False, ""),
    ],
)
def test_scaled_object_advice_for_keda_settings(policy: ReplicaPolicy, enabled: bool, words: str) -> None:
    found = list(scaled_object.advice(OWNER, "engine", policy, enabled=enabled))
    assert len(found) == bool(words) and words in "".join(found)
