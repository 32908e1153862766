"""Tests of the choice of an accelerator class by policy."""

from typing import Any

import pytest

from ome_operator.api import AcceleratorClass
from ome_operator.core.observed.objects import Deps, Node
from ome_operator.core.resolve.inputs import resolve
from tests.support import parts


def gpu(name: str, memory: str, price: str | None = None, tflops: int = 100, **more: Any) -> AcceleratorClass:
    """Return a class whose nodes have the label gpu=<name>. `memory` is in GB, and `price` is the cost per hour; None if
    the class states none.
    """
    capabilities = {
        "memoryGB": memory, "computeCapability": "9.0", "features": ["fp8"], "performance": {"fp16Tflops": tflops}, **more,
    }  # fmt: skip
    cost = {"cost": {"perHour": price}} if price else {}
    where = {"nodeSelector": {"gpu": name}}
    return parts.accelerator(name, capabilities=capabilities, discovery=where, family=name[0], **cost)


CLASSES = (gpu("a80", "80", "2"), gpu("h141", "141", "4", 900), gpu("b192", "192", None, 2000))


def deps(*classes: AcceleratorClass, on: str = "a80 h141 b192", model: dict[str, Any] | None = None, **runtime: Any) -> Deps:
    """Return the objects to which a service refers: these accelerator classes, of which those in `on` have a node, a model,
    and a runtime.
    """
    box = parts.container(resources={"limits": {"nvidia.com/gpu": 1}})
    found = parts.deps(parts.runtime(engineConfig={"runner": box}, **runtime), *classes)
    nodes = {name: Node(name, 1, {"gpu": name}, True, 8) for name in on.split()}
    one = parts.model()
    object.__setattr__(one, "status", {"facts": model or {}})
    models = dict.fromkeys(parts.deps(one).models, one)
    return Deps(models, found.runtimes, found.accelerators, nodes=nodes)


def chosen(having: Deps, stored: dict[str, Any] | None = None, **selector: Any) -> str:
    """Return the class that is chosen for the engine."""
    found = resolve(parts.service(engine={}, acceleratorSelector=selector), having, stored and {"r1": stored})
    assert found.inputs is not None, found.problems
    return str(found.inputs["accelerator"]["engine"]["class"])


@pytest.mark.parametrize(
    ("policy", "name"), [("BestFit", "a80"), ("Cheapest", "a80"), ("MostCapable", "b192"), ("FirstAvailable", "a80")]
)
def test_accelerator_choice_follows_policy(policy: str, name: str) -> None:
    assert chosen(deps(*CLASSES), policy=policy) == name


def test_best_fit_chooses_a_class_that_holds_the_weights_with_spare_memory() -> None:
    assert chosen(deps(*CLASSES, model={"weightBytes": 100 * 10**9}), policy="BestFit") == "h141"
    assert chosen(deps(*CLASSES, model={"weightBytes": 900 * 10**9}), policy="BestFit") == "b192"


def test_classes_with_ready_nodes_are_preferred() -> None:
    assert chosen(deps(*CLASSES, on="b192"), policy="Cheapest") == "b192"
    assert chosen(deps(*CLASSES, on=""), policy="Cheapest") == "a80"


@pytest.mark.parametrize(
    ("constraints", "name"),
    [
        ({"minMemory": 100}, "h141"),
        ({"excludedClasses": ["a80"]}, "h141"),
        ({"architectureFamilies": ["b"]}, "b192"),
        ({"minComputePerformanceTFLOPS": 1000}, "b192"),
        ({"maxMemory": 90, "minArchitectureVersion": "8.9", "requiredFeatures": ["fp8"]}, "a80"),
    ],
)
def test_accelerator_choice_respects_constraints(constraints: dict[str, Any], name: str) -> None:
    assert chosen(deps(*CLASSES), constraints=constraints) == name


def test_accelerator_requirements_of_the_runtime_are_respected() -> None:
    assert chosen(deps(*CLASSES, acceleratorRequirements={"acceleratorClasses": ["b192"]}), policy="Cheapest") == "b192"
    assert chosen(deps(*CLASSES, acceleratorRequirements={"minMemory": 100}), policy="Cheapest") == "h141"


def test_no_fitting_class_message_names_what_each_class_lacks() -> None:
    asked = {"constraints": {"minMemory": 500}}
    found = resolve(parts.service(engine={}, acceleratorSelector=asked), deps(*CLASSES[:2]))
    assert [(one.reason, one.message) for one in found.problems] == [
        (
            "NoAcceleratorFits",
            "no AcceleratorClass fits spec.engine, not even a80 (it has 80 GB, but the service asks for 500), h141 (it has "
            "141 GB, but the service asks for 500): relax acceleratorSelector, or name a class in it",
        )
    ]


@pytest.mark.parametrize("memory", ["1e9999999", "9" * 5000])
def test_invalid_memory_amount_counts_as_unknown(memory: str) -> None:
    asked = {"constraints": {"minMemory": 80}}
    found = resolve(parts.service(engine={}, acceleratorSelector=asked), deps(gpu("odd", memory, "2")))
    assert "odd (it has an unknown number of GB, but the service asks for 80)" in found.problems[0].message


def test_chosen_class_is_kept_until_the_service_asks_for_another_policy() -> None:
    service = parts.service(engine={}, acceleratorSelector={"policy": "Cheapest"})
    stored = resolve(service, deps(*CLASSES)).inputs
    assert chosen(deps(*CLASSES, on="b192"), stored, policy="Cheapest") == "a80"
    assert chosen(deps(*CLASSES, on="b192"), stored, policy="MostCapable") == "b192"


def test_deleted_chosen_class_is_reported_as_a_problem() -> None:
    service = parts.service(engine={}, acceleratorSelector={"policy": "Cheapest"})
    stored = resolve(service, deps(*CLASSES)).inputs
    assert stored is not None
    found = resolve(service, deps(*CLASSES[1:]), {"r1": stored})
    assert [one.reason for one in found.problems] == ["AcceleratorNotFound"]
    assert found.inputs is None


def part(having: Deps, stored: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the class that is chosen for the engine of a service that requests none, and its node selector; None if none is
    chosen.
    """
    found = resolve(parts.service(engine={}), having, stored and {"r1": stored})
    assert found.inputs is not None, found.problems
    chosen: dict[str, Any] | None = found.inputs.get("accelerator", {}).get("engine")
    return chosen


def test_requirements_of_the_runtime_choose_a_class_if_the_service_has_none() -> None:
    wants = {"acceleratorRequirements": {"minMemory": 100}}
    found = part(deps(*CLASSES, **wants))
    assert found is not None and (found["class"], found["nodeSelector"]) == ("h141", {"gpu": "h141"})
    assert part(deps(*CLASSES)) is None, "the runtime requires nothing"
    assert part(deps(**wants)) is None, "no class exists, and the user has named the runtime"


def test_new_runtime_requirements_do_not_change_a_service_without_a_class() -> None:
    service = parts.service(engine={})
    before = resolve(service, deps(*CLASSES)).inputs
    assert before is not None
    assert resolve(service, deps(*CLASSES, acceleratorRequirements={"minMemory": 100}), {"r1": before}).inputs == before


def test_class_chosen_by_runtime_requirements_is_kept_while_it_meets_them() -> None:
    service = parts.service(engine={})
    before = resolve(service, deps(*CLASSES, acceleratorRequirements={"minMemory": 100})).inputs
    assert before is not None
    same = resolve(service, deps(*CLASSES, on="b192", acceleratorRequirements={"minMemory": 120}), {"r1": before})
    assert same.inputs == before, "the class meets the new requirement, too"
    found = part(deps(*CLASSES, acceleratorRequirements={"minMemory": 150}), before)
    assert found is not None and found["class"] == "b192"


def test_an_annotation_of_omes_names_the_class() -> None:
    noted = {"annotations": {"ome.io/accelerator-class": "h141"}}
    found = resolve(parts.service(engine={}, **noted), deps(*CLASSES)).inputs
    assert found is not None and found["accelerator"]["engine"]["class"] == "h141"
    override = {"acceleratorOverride": {"acceleratorClass": "b192"}}
    found = resolve(parts.service(engine=override, **noted), deps(*CLASSES)).inputs
    assert found is not None and found["accelerator"]["engine"]["class"] == "b192"
    (problem,) = resolve(parts.service(engine={}, annotations={"ome.io/accelerator-class": "x"}), deps(*CLASSES)).problems
    assert problem.message == "AcceleratorClass x does not exist: apply it, or fix the annotation ome.io/accelerator-class"
