"""Tests that the length of what a user writes does not determine the time of a pass, during which the operator does nothing
else: an object may contain tens of thousands of names.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ome_operator.api import FineTunedWeight, migrate
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.podspec.spelling import misspelled_fields
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.resolve.references import MOST, missing_classes, missing_references
from ome_operator.util.similar import most_similar
from tests.support import parts, yamls
from tests.unit.core.resolve.test_references import EXAMPLES

CLASSES = (
    "nvidia-h100-80gb", "nvidia-h200-141gb", "nvidia-b200", "nvidia-a100-40gb", "nvidia-a100-80gb", "nvidia-l40s",
    "amd-mi300x", "amd-mi355x", "nvidia-gb200", "intel-gaudi3",
)  # fmt: skip
SECONDS = 0.5
"""Time of the processor for the first pass. The comparison of each name with each class took 14 s."""
WEIGHTS = FineTunedWeight.parse(
    {
        **yamls.model("lora"),
        "kind": "FineTunedWeight",
        "spec": {"baseModelRef": {"name": "tiny"}, "modelType": "LoRA", "storage": {"storageUri": "hf://a/b", "path": "/m"}},
    }
)


def names(number: int, of: str = "nvidia-h1200-480gb") -> list[str]:
    """Return names of the same characters, which a comparison can distinguish only thoroughly."""
    shuffled = random.Random(1)
    return ["".join(shuffled.sample(of, len(of))) + str(each) for each in range(number)]


def deps(*objects: Any) -> Deps:
    assert isinstance(WEIGHTS, FineTunedWeight)
    known = {name: replace(WEIGHTS, name=name) for name in CLASSES}
    return replace(parts.deps(parts.model(), *objects, *map(parts.accelerator, CLASSES)), weights=known)


Pass = Callable[[], tuple[str, ...]]
"""A pass over an object, which returns its messages. The object is parsed before."""


def of_service(**spec: Any) -> Pass:
    """Return a pass over a service."""
    written, known = parts.service(**spec), deps(parts.simple())
    service = replace(written, spec=migrate(written.spec))

    def messages() -> tuple[str, ...]:
        found = resolve(service, known)
        return (*found.advice, *(problem.message for problem in found.problems))

    return messages


def of_runtime(**spec: Any) -> Pass:
    """Return a pass over a runtime and over a service that uses it."""
    runtime, service = parts.runtime(**parts.simple().spec.dump(), **spec), parts.service(engine={})
    known = deps(runtime)

    def messages() -> tuple[str, ...]:
        problems = resolve(service, known).problems
        found = missing_classes(runtime.spec, known.accelerators)
        return (*(each.sentence for each in found), *(problem.message for problem in problems))

    return messages


def excluded(number: int) -> Pass:
    return of_service(engine={}, acceleratorSelector={"constraints": {"excludedClasses": names(number)}})


def required(number: int) -> Pass:
    return of_runtime(acceleratorRequirements={"acceleratorClasses": names(number)})


def configured(number: int) -> Pass:
    """Return a pass over a runtime with two kinds of formats: one format with `number` accelerator classes, and up to
    10,000 formats with one class each.
    """
    form, few = {"modelFormat": {"name": "safetensors"}}, min(number, 10_000)
    many = [{**form, "acceleratorConfig": {name: {}}} for name in names(few)]
    return of_runtime(supportedModelFormats=[{**form, "acceleratorConfig": {name: {} for name in names(number)}}, *many])


def fine_tuned(number: int) -> Pass:
    return of_service(engine={}, model={"name": "tiny", "fineTunedWeights": names(number)})


def fine_tuned_before(number: int) -> Pass:
    model = {"baseModel": "tiny", "runtime": "rt", "fineTunedWeights": names(number)}
    return of_service(spec={"predictor": {"model": model}})


LONG: dict[str, Callable[[int], Pass]] = {
    "AcceleratorConstraints.excludedClasses": excluded,
    "AcceleratorRequirements.acceleratorClasses": required,
    "SupportedModelFormat.acceleratorConfig": configured,
    "ModelRef.fineTunedWeights": fine_tuned,
    "PredictorModel.fineTunedWeights": fine_tuned_before,
}
"""Class and field that contains any number of references -> a pass over an object with that many."""


def test_every_reference_list_field_is_in_the_test_table() -> None:
    several = {name for name, (body, _) in EXAMPLES.items() if name.endswith(("es", "Config", "Weights"))}
    assert several == LONG.keys(), "a field with a single name ends otherwise"


@pytest.mark.parametrize("field", LONG)
def test_long_list_of_missing_references_is_processed_quickly(field: str) -> None:
    texts: list[tuple[str, ...]] = []
    took = []
    for number in (40_000, MOST):
        made = LONG[field](number)
        start = time.process_time()
        texts.append(made())
        took.append(time.process_time() - start)
    assert took[0] < SECONDS, took
    long, short = ([text for text in each if " does not exist: " in text] for each in texts)
    assert len(short) >= MOST and len(long) <= 2 * MOST + 1
    assert sum(map(len, long)) < 3_000


def test_unnamed_missing_classes_are_counted() -> None:
    def of(number: int) -> tuple[str, ...]:
        constraints = {"constraints": {"excludedClasses": [f"gpu-{each}" for each in range(number)]}}
        service = parts.service(engine={}, acceleratorSelector=constraints)
        return tuple(each.sentence for each in missing_classes(service.spec, ["gpu-0"]))

    field = "spec.acceleratorSelector.constraints.excludedClasses"
    assert len(of(MOST + 1)) == MOST
    assert of(MOST + 2)[-1] == f"1 more AcceleratorClass does not exist: apply it, or fix {field}"
    assert of(1000)[-1] == f"each of {1000 - MOST - 1} more AcceleratorClasses does not exist: apply it, or fix {field}"


def test_runtime_needs_only_one_existing_class() -> None:
    assert not missing_classes(parts.runtime(acceleratorRequirements={"acceleratorClasses": ["a", "b"]}).spec, ["b"])


def test_missing_classes_are_recomputed_only_for_other_classes() -> None:
    written = parts.service(engine={}, acceleratorSelector={"constraints": {"excludedClasses": ["a"]}})
    first = missing_classes(written.spec, {"b": 1, "c": 2})
    assert missing_classes(written.spec, {"c": 2, "b": 1}) is first
    assert missing_classes(written.spec, {"a": 1}) == ()


@pytest.mark.parametrize("of", ["a" * 126 + "b" * 126 + "c", "nvidia-h1200-480gb", "ab" * 126])
def test_a_similar_name_is_found_quickly_among_many(of: str) -> None:
    """A similar name is found in limited time, although tenants may create any number of objects with names of 253
    characters.
    """
    among = names(10_000, of)
    start = time.process_time()
    most_similar(of, among)
    assert time.process_time() - start < SECONDS / 4


def test_a_missing_object_among_many_is_found_quickly() -> None:
    assert isinstance(WEIGHTS, FineTunedWeight)
    start = time.process_time()
    (found,) = missing_references(WEIGHTS, {Ref("BaseModel", f"team-{name}", name) for name in names(10_000)})
    assert "ClusterBaseModel tiny does not exist: apply it" in found.sentence
    assert time.process_time() - start < SECONDS


def test_a_name_of_any_length_gives_a_short_message() -> None:
    constraints = {"constraints": {"excludedClasses": ["x" * 500_000]}}
    (found,) = of_service(engine={}, acceleratorSelector=constraints)()
    assert len(found) < 600


def test_long_pod_field_name_is_not_compared() -> None:
    written = parts.service(engine={"runner": {f"{each}{'image' * 2_000}": 1 for each in range(100)}, "volumes": []})
    start = time.process_time()
    assert misspelled_fields(written, None) == ()
    assert time.process_time() - start < SECONDS / 4
