"""Tests of edits of the fields that scale a running service: which size it has afterwards, and what its conditions say."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.support import parts
from tests.support.demanded import BUSY, Demanded, spec, told

TRIGGER = {"type": "prometheus", "metadata": {"serverAddress": "http://prometheus:9090", "query": "load", "threshold": "8"}}
CLASSES: Mapping[str, Mapping[str, Any]] = {
    "Demand": {"autoscaler": {"class": "Demand"}},
    "HPA": {"autoscaler": {"class": "HPA", "hpa": {"metrics": [{"type": "Pods"}]}}},
    "KEDA": {"autoscaler": {"class": "KEDA", "keda": {"triggers": [TRIGGER]}}},
    "External": {"autoscaler": {"class": "External"}},
    "None": {"autoscaler": {"class": "None"}},
    "": {},
}
"""Class of an autoscaler -> the fields of a component with this class; "" for a component that people scale by hand."""
CPU = {"scaleMetric": "cpu"}
OLD_KEDA = {
    "kedaConfig": {
        "enableKeda": True,
        "promServerAddress": "http://prometheus:9090",
        "customPromQuery": "load",
        "scalingThreshold": "8",
    }
}
BOUNDS = {"minReplicas": 1, "maxReplicas": 4}
SIZE = 3
"""Number of decode groups before each edit."""
UNBOUNDED = "spec.decoder.maxReplicas is not set, so the class Demand does not scale decoder"
UNSCALED = {
    "HPA": "class HPA scales nothing for decoder: spec.decoder.maxReplicas has to be greater than minReplicas",
    "KEDA": "maxReplicas",
    "External": "class External scales nothing for decoder: spec.decoder.maxReplicas has to be greater than minReplicas",
}
"""Class -> words of the condition Advice without maxReplicas. The size is then minReplicas."""
UNUSED = "spec.scalingPolicy.demand has no effect without a component of the class Demand"


class Edit(NamedTuple):
    """An edit of a service with three decode groups, and its result."""

    before: Mapping[str, Any]
    """The fields of the decoder before the edit, beside `BOUNDS`."""
    after: Mapping[str, Any]
    """All fields of the decoder after the edit."""
    size: int
    """Number of decode groups after the edit."""
    says: str = ""
    """Words of the conditions after the edit."""
    more: Mapping[str, Any] = {}
    """Other fields of the spec after the edit."""


def _edits() -> dict[str, Edit]:
    demand, mode = (
        CLASSES["Demand"],
        {"scalingPolicy": {"demand": {**spec()["scalingPolicy"]["demand"], "mode": "Recommend"}}},
    )
    found = {
        "Demand: minReplicas is deleted": Edit(demand, {"maxReplicas": 4, **demand}, SIZE),
        "Demand: minReplicas is raised": Edit(demand, {**BOUNDS, "minReplicas": 4, **demand}, 4),
        "Demand: maxReplicas is lowered": Edit(demand, {**BOUNDS, "maxReplicas": 2, **demand}, 2),
        "Demand: maxReplicas is lowered to minReplicas": Edit(
            demand, {**BOUNDS, "maxReplicas": 1, **demand}, 1, "maxReplicas is not above its minReplicas"
        ),
        "Demand: maxReplicas and the class are deleted": Edit(demand, {"minReplicas": 1}, 1, UNUSED),
        "Demand: scalingPolicy is deleted": Edit(
            demand, {**BOUNDS, **demand}, SIZE, "class Demand needs targets: set spec.scalingPolicy.demand",
            {"scalingPolicy": None},
        ),
        "Demand: scalingPolicy.demand is deleted": Edit(
            demand, {**BOUNDS, **demand}, SIZE, "class Demand needs targets: set spec.scalingPolicy.demand",
            {"scalingPolicy": {}},
        ),
        "Demand: scalingPolicy and maxReplicas are deleted": Edit(
            demand, {"minReplicas": 1, **demand}, SIZE, "class Demand needs targets", {"scalingPolicy": None}
        ),
        "Demand: mode is deleted": Edit(demand, {**BOUNDS, **demand}, SIZE, "", mode),
        "Demand: mode and maxReplicas are deleted": Edit(
            demand, {"minReplicas": 1, **demand}, SIZE, UNBOUNDED, mode
        ),
        "by hand: maxReplicas is deleted": Edit({}, {"minReplicas": 1}, 1),
        "by hand: minReplicas is deleted": Edit({}, {"maxReplicas": 4}, SIZE),
        "scaleMetric: maxReplicas is deleted": Edit(CPU, {"minReplicas": 1, **CPU}, 1),
        "scaleMetric is deleted": Edit(CPU, BOUNDS, SIZE),
        "kedaConfig is deleted": Edit(OLD_KEDA, BOUNDS, SIZE),
        "kedaConfig: maxReplicas is deleted": Edit(OLD_KEDA, {"minReplicas": 1, **OLD_KEDA}, 1, "kedaConfig has no effect"),
    }  # fmt: skip
    for one in ("Demand", "HPA", "KEDA", "External"):
        size, says = (SIZE, UNBOUNDED) if one == "Demand" else (1, UNSCALED[one])
        found[f"{one}: maxReplicas is deleted"] = Edit(CLASSES[one], {"minReplicas": 1, **CLASSES[one]}, size, says)
        found[f"{one}: maxReplicas is deleted and minReplicas is raised"] = Edit(
            CLASSES[one], {"minReplicas": 4, **CLASSES[one]}, 4, says
        )
    for one, two in ((one, two) for one in CLASSES for two in CLASSES if one not in (two, "None")):
        says = "somebody has set RoleScale svc-decoder by hand" if two == "Demand" else ""
        size = 1 if two == "None" else SIZE
        found[f"{one or 'by hand'} becomes {two or 'by hand'}"] = Edit(CLASSES[one], {**BOUNDS, **CLASSES[two]}, size, says)
    return found


EDITS = _edits()


def running(before: Mapping[str, Any]) -> Demanded:
    """Return a service with `SIZE` decode groups, whose decoder has the fields `before`."""
    world = Demanded(**_spec({**BOUNDS, **before}))
    world.deps = parts.change_deps(world.deps, keda=True)
    if before == CLASSES["Demand"]:
        world.edited(**_spec({**BOUNDS, "minReplicas": SIZE, **before}))
        world.decide(20)
        world.edited(**_spec({**BOUNDS, **before}))
        world.decide(20)
        assert world.service.status["scaling"]["applied"] == {"decoder": SIZE}
    else:
        world.write_scale(SIZE)
    assert world.decoders() == SIZE
    return world


def _spec(decoder: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    whole = {**spec("Apply"), "decoder": dict(decoder), **(more or {})}
    return {name: value for name, value in whole.items() if value is not None}


@pytest.mark.parametrize("edit", EDITS.values(), ids=[*EDITS])
def test_edit_changes_the_size_only_if_it_specifies_another_size(edit: Edit) -> None:
    world = running(edit.before)
    world.edited(**_spec(edit.after, edit.more))
    for _ in range(3):
        assert world.decoders() == edit.size
        if world.sync().demand is not None:
            world.decide()
        world.settle()
    task, unset = (
        world.sync().demand,
        "maxReplicas" not in edit.after and edit.after.get("autoscaler") == {"class": "Demand"},
    )
    said = " ".join(str(one["message"]) for one in world.service.status["conditions"])
    assert edit.says in said + (task.problem if task is not None else "")
    assert (".maxReplicas is not set" in said) == unset, "the condition Advice, which `ome lint` repeats"
    if task is not None and task.problem:
        assert told(world) == ("False", "DemandIgnored")


def test_component_without_maximum_scales_again_after_it_gets_one() -> None:
    world = running(CLASSES["Demand"])
    world.edited(**_spec({"minReplicas": 1, **CLASSES["Demand"]}))
    world.rate = BUSY * 10
    world.decide(300)
    assert world.decoders() == SIZE and world.service.status["scaling"]["hold"] == "Maximum"
    world.edited(**_spec({**BOUNDS, "maxReplicas": 5, **CLASSES["Demand"]}))
    world.decide(60)
    assert world.decoders() == 5


def test_component_without_maximum_keeps_last_demand_size_or_its_minimum() -> None:
    world = running(CLASSES["Demand"])
    for low in (1, 4, 2, 1):
        world.edited(**_spec({"minReplicas": low, **CLASSES["Demand"]}))
        world.decide(30)
        assert world.decoders() == max(SIZE, low) and ("RoleScale", "svc-decoder") not in world.children
    world.edited(**_spec({**BOUNDS, "maxReplicas": 5, **CLASSES["Demand"]}))
    assert world.decoders() == SIZE and world.service.status["scaling"]["applied"] == {"decoder": SIZE}


def test_manually_set_number_is_kept_when_the_maximum_is_deleted() -> None:
    world = running(CLASSES["Demand"])
    world.write_scale(2)
    world.decide(20)
    world.edited(**_spec({"minReplicas": 1, **CLASSES["Demand"]}))
    world.decide(30)
    assert world.decoders() == 2


@pytest.mark.parametrize("one", ["Demand", "HPA", "KEDA", "External"])
def test_component_that_never_had_a_maximum_uses_its_minimum(one: str) -> None:
    """A component with the class of an autoscaler that never had maxReplicas has minReplicas groups. Earlier versions of
    the operator ignore such a class and use minReplicas, too, so an upgrade alone changes no size.
    """
    world = Demanded(**_spec({"minReplicas": 4, **CLASSES[one]}))
    for low in (4, 2, 0):
        world.edited(**_spec({"minReplicas": low, **CLASSES[one]}))
        if one == "Demand":
            world.decide(30)
        assert world.decoders() == low
        assert (("RoleScale", "svc-decoder") in world.children) == (one in ("KEDA", "External"))
        assert "applied" not in world.service.status.get("scaling", {})


@pytest.mark.parametrize("one", ["KEDA", "External"])
def test_role_scale_writes_have_no_effect_without_a_maximum(one: str) -> None:
    world = running(CLASSES[one])
    world.edited(**_spec({"minReplicas": 0, **CLASSES[one]}))
    for number in (9, 5):
        world.write_scale(number)
        assert world.decoders() == 0
        advice = world.condition("Advice")["message"]
        assert (
            f"RoleScale svc-decoder asks for {number} groups, but spec.decoder has minReplicas 0 and maxReplicas 0" in advice
        )


@pytest.mark.parametrize("stored", [0, 1, 2, 7])
def test_stored_demand_size_is_kept_without_a_maximum_despite_the_role_scale(stored: int) -> None:
    world = Demanded(**_spec({**BOUNDS, "minReplicas": 0, "maxReplicas": 9, **CLASSES["Demand"]}))
    world.write_scale(5)
    world.service = replace(world.service, status={**world.service.status, "scaling": {"applied": {"decoder": stored}}})
    world.edited(**_spec({"minReplicas": 0, **CLASSES["Demand"]}))
    assert world.decoders() == stored and ("RoleScale", "svc-decoder") not in world.children
