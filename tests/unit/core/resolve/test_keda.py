"""Tests of the settings of ScaledObjects: which of two spellings takes precedence, and which fields the triggers get."""

from typing import Any

import pytest

from ome_operator.core.resolve.scaling import ReplicaPolicy, replica_policy
from tests.support import parts

OLD = {"promServerAddress": "http://prom:9090", "customPromQuery": "sum(load{app='%s'})", "scalingThreshold": "8"}
TRIGGER = {"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "q", "threshold": 4}}
ROOM = {"minReplicas": 1, "maxReplicas": 4}


def policy(engine: Any, *, runtime: Any = None, annotated: str = "", service: Any = None) -> ReplicaPolicy:
    asked = parts.service(engine=engine, **({"kedaConfig": service} if service else {}))
    if annotated:
        asked.annotations["ome.io/autoscalerClass"] = annotated
    return replica_policy(asked, parts.runtime(engineConfig=runtime) if runtime else None, "engine")


def of_class(**keda: Any) -> dict[str, Any]:
    return {**ROOM, "autoscaler": {"class": "KEDA", "keda": keda}}


@pytest.mark.parametrize(
    ("engine", "options", "scaler", "made"),
    [
        (of_class(triggers=[TRIGGER]), {}, "keda", True),
        (of_class(), {}, "keda", False),
        ({**of_class(), "kedaConfig": OLD}, {}, "keda", True),
        ({**of_class(), "kedaConfig": {**OLD, "enableKeda": False}}, {}, "keda", False),
        ({**ROOM, "kedaConfig": OLD}, {}, "", False),
        ({**ROOM, "kedaConfig": OLD}, {"annotated": "keda"}, "keda", True),
        ({**ROOM, "kedaConfig": {**OLD, "enableKeda": True}}, {}, "keda", True),
        ({**ROOM, "scaleMetric": "cpu", "kedaConfig": {**OLD, "enableKeda": True}}, {}, "keda", True),
        ({"minReplicas": 2, "kedaConfig": {**OLD, "enableKeda": True}}, {}, "", False),
        ({**ROOM, "autoscaler": {"class": "HPA"}, "kedaConfig": {**OLD, "enableKeda": True}}, {}, "hpa", False),
        ({**ROOM, "kedaConfig": {**OLD, "enableKeda": True}}, {"annotated": "external"}, "external", False),
        (ROOM, {"service": {**OLD, "enableKeda": True}}, "keda", True),
        (ROOM, {"runtime": {"kedaConfig": {**OLD, "enableKeda": True}}}, "keda", True),
        ({**ROOM, "kedaConfig": {"enableKeda": True}}, {"service": OLD}, "keda", False),
        ({}, {"runtime": of_class(triggers=[TRIGGER])}, "keda", True),
        ({"minReplicas": 4}, {"runtime": of_class(triggers=[TRIGGER])}, "keda", False),
    ],
)
def test_scaler_and_keda_settings_determine_the_policy(engine: Any, options: Any, scaler: str, made: bool) -> None:
    found = policy(engine, **options)
    assert (found.scaler, found.scaled_by_keda) == (scaler, made)


def test_legacy_keda_config_becomes_one_trigger() -> None:
    reference = {"authModes": "bearer", "authenticationRef": {"name": "login"}}
    (trigger,) = policy({**of_class(), "kedaConfig": {**OLD, **reference, "scalingOperator": "Less"}}).keda.triggers
    metadata = {
        "serverAddress": "http://prom:9090", "query": "sum(load{app='%s'})", "threshold": "8", "authModes": "bearer",
        "ignoreNullValues": "false",
    }  # fmt: skip
    login = {"name": "login", "kind": "TriggerAuthentication"}
    assert trigger == {"type": "prometheus", "metadata": metadata, "authenticationRef": login}


@pytest.mark.parametrize("missing", sorted(OLD))
def test_incomplete_legacy_keda_config_makes_no_trigger(missing: str) -> None:
    found = policy({**of_class(), "kedaConfig": {name: value for name, value in OLD.items() if name != missing}})
    assert found.keda.incomplete and not found.scaled_by_keda


def test_prometheus_triggers_treat_missing_values_as_errors_by_default() -> None:
    said = {**TRIGGER, "metadata": {"ignoreNullValues": True, "threshold": 1.5}}
    cron = {"type": "cron", "metadata": {"desiredReplicas": 3}}
    first, second, third = policy(of_class(triggers=[TRIGGER, said, cron])).keda.triggers
    assert first["metadata"]["ignoreNullValues"] == "false" and first["metadata"]["threshold"] == "4"
    assert second["metadata"] == {"ignoreNullValues": "true", "threshold": "1.5"}
    assert third["metadata"] == {"desiredReplicas": "3"}


@pytest.mark.parametrize("trigger", [{}, {"type": "prometheus"}, {"type": "prometheus", "metadata": "q"}])
def test_invalid_triggers_are_passed_unchanged(trigger: Any) -> None:
    assert policy(of_class(triggers=[trigger])).keda.triggers == (trigger,)
