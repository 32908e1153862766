"""Tests of the rules about objects that change the number of groups."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.lint import rules
from ome_operator.lint.finding import Finding
from tests.support.linting import looked_at
from tests.support.yamls import model, runtime, service

TARGETS = {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms"}
DEMAND = {"minReplicas": 1, "maxReplicas": 2, "autoscaler": {"class": "Demand"}}


def told(rule: str, absent: bool = False, gpus: int = 8, **spec: Any) -> list[Finding]:
    """Return the findings of a rule in a service. With `absent`, the cluster has no KEDA."""
    components = ("engine", "decoder", "router") if "decoder" in spec else ("engine", "router")
    body = service("team", "svc", "rt", *components, **spec)
    bodies = [body, model(), runtime("rt", gpus=gpus, decoder=True)]
    (subject,) = (one for one in looked_at(bodies, whole=False) if one.service == "team/svc")
    return [one for one in rules.check(replace(subject, keda_absent=absent)) if one.rule.id == rule]


@pytest.mark.parametrize(
    ("written", "field", "says", "remedy"),
    [
        (None, "", "autoscaler.class Demand needs targets", "set spec.scalingPolicy.demand"),
        ({"gpuBudget": 15}, ".gpuBudget", "the smallest size of the service needs 16 GPUs", "raise gpuBudget"),
        ({"gpuBudget": 16}, "", "", ""),
        ({"timeToFirstToken": "99ms"}, ".timeToFirstToken", "treated as always missed", "write 100ms or more"),
        ({"timeToFirstToken": "100ms"}, "", "", ""),
        ({"timeBetweenTokens": "0s"}, ".timeBetweenTokens", "which no group can meet", "write a time such as 50ms"),
    ],
)
def test_unusable_demand_setting_is_reported_with_field_and_remedy(written: Any, field: str, says: str, remedy: str) -> None:
    policy: dict[str, Any] = {} if written is None else {"scalingPolicy": {"demand": {**TARGETS, **written}}}
    found = told("demand-unusable", decoder=DEMAND, **policy)
    place = ("InferenceService team/svc", f"spec.scalingPolicy.demand{field}")
    assert [one.hit.place for one in found] == ([place] if says else [])
    assert all(says in one.hit.says and remedy in one.hit.remedy for one in found)


def test_demand_without_a_decoder_suggests_adding_one() -> None:
    (found,) = told("demand-unusable", engine=DEMAND, scalingPolicy={"demand": TARGETS})
    assert "add spec.decoder" in found.hit.remedy


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"decoder": {"minReplicas": 2, "autoscaler": {"class": "Demand"}}},
            "spec.decoder.maxReplicas is not set, so the class Demand does not scale decoder",
        ),
        ({"decoder": {}}, "spec.scalingPolicy.demand has no effect without a component of the class Demand"),
        (
            {"schedule": [{"start": "08:00", "end": "18:00", "minimum": {"decoder": 3}}]},
            "schedule[0].minimum.decoder is 3, but spec.decoder.maxReplicas is 2, which is used: raise maxReplicas",
        ),
        ({"schedule": [{"start": "08:00", "end": "18:00", "minimum": {}}]}, "schedule[0].minimum is empty"),
        ({}, ""),
    ],
)
def test_demand_settings_without_effect_give_advice(spec: dict[str, Any], says: str) -> None:
    more = {name: value for name, value in spec.items() if name == "schedule"}
    found = told("advice", decoder=spec.get("decoder", DEMAND), scalingPolicy={"demand": {**TARGETS, **more}})
    assert any(says in one.hit.says for one in found) if says else not found


PEAK = {"start": "08:00", "end": "18:00"}


@pytest.mark.parametrize(
    ("demand", "components", "says"),
    [
        ({}, {"router": DEMAND}, "the number of routers never changes without spec.scalingPolicy.demand.requestsPerRouter"),
        ({"requestsPerRouter": 9}, {"router": DEMAND}, ""),
        ({"requestsPerRouter": 9}, {}, "requestsPerRouter has no effect, because spec.router does not have the autoscaler"),
        ({"spare": {"decoder": 1}}, {"decoder": {**DEMAND, "maxReplicas": 3}}, ""),
        ({"spare": {"decoder": 2}}, {}, "spare.decoder is 2, but spec.decoder.maxReplicas is 2, so the service always has"),
        ({"spare": {"engine": 1}}, {}, "spare.engine has no effect, because spec.engine does not have the autoscaler class"),
        (
            {"schedule": [{**PEAK, "minimum": {"engine": 2}}]},
            {},
            "schedule[0].minimum.engine has no effect, because spec.eng",
        ),
        (
            {"gpuBudget": 16, "spare": {"decoder": 1}},
            {},
            "with spec.scalingPolicy.demand.spare, the smallest size of the ser",
        ),
        ({"gpuBudget": 24, "spare": {"decoder": 1}}, {"decoder": {**DEMAND, "maxReplicas": 3}}, ""),
        (
            {"gpuBudget": 16, "schedule": [{**PEAK, "minimum": {"decoder": 1}}, {**PEAK, "minimum": {"decoder": 2}}]},
            {},
            "with spec.scalingPolicy.demand.schedule[1].minimum, the smallest size of the service needs 24 GPUs, but "
            "gpuBudget is 16, which is kept: raise gpuBudget",
        ),
    ],
)
def test_contradictory_demand_settings_give_advice(demand: dict[str, Any], components: dict[str, Any], says: str) -> None:
    found = told("advice", **{"decoder": DEMAND, "scalingPolicy": {"demand": {**TARGETS, **demand}}, **components})
    assert len(found) == bool(says) and all(says in one.hit.says for one in found)


@pytest.mark.parametrize(
    ("decoder", "policy", "says"),
    [
        ({"class": "Demand", "keda": {}}, {}, "spec.decoder.autoscaler.keda has no effect, because spec.decoder.autoscaler"),
        ({"class": "KEDA", "keda": {"triggers": [{}]}, "hpa": {}}, {}, "spec.decoder.autoscaler.hpa has no effect, because"),
        ({"class": "External"}, {}, ""),
        ({"class": "External"}, {"maxReplicas": 1}, "class External scales nothing for decoder: spec.decoder.maxReplicas"),
        ({"class": "HPA"}, {"maxReplicas": 1}, "class HPA scales nothing for decoder: spec.decoder.maxReplicas has to be"),
    ],
)
def test_settings_of_another_autoscaler_class_give_advice(
    decoder: dict[str, Any], policy: dict[str, Any], says: str
) -> None:
    demand: dict[str, Any] = {"scalingPolicy": {"demand": TARGETS}} if decoder["class"] == "Demand" else {}
    found = told("advice", decoder={**DEMAND, "autoscaler": decoder, **policy}, **demand)
    assert any(says in one.hit.says for one in found) if says else not found


@pytest.mark.parametrize(("low", "number"), [(0, 0), (1, 1)])
def test_wake_on_request_without_minimum_zero_gives_advice(low: int, number: int) -> None:
    decoder = {"minReplicas": low, "maxReplicas": 2, "autoscaler": {"class": "External"}}
    found = told("advice", decoder=decoder, scalingPolicy={"wakeOnRequest": True})
    assert len(found) == number and all("wakeOnRequest has no effect" in one.hit.says for one in found)


@pytest.mark.parametrize(("absent", "class_", "number"), [(True, "KEDA", 1), (False, "KEDA", 0), (True, "External", 0)])
def test_missing_keda_is_reported_only_for_a_cluster_without_it(absent: bool, class_: str, number: int) -> None:
    scaler = {"class": class_, **({"keda": {"triggers": []}} if class_ == "KEDA" else {})}
    found = told("keda-missing", absent, decoder={"minReplicas": 1, "maxReplicas": 2, "autoscaler": scaler})
    assert [one.hit.place.field for one in found] == ["spec.decoder.autoscaler.class"] * number
