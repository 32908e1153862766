"""Tests of the pod labels that OME v0.1.5 writes (pkg/controller/v1beta1/inferenceservice/components, ProcessBaseLabels)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ome_operator.api import InferenceService, Model
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.resolve.ome_labels import KEYS
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.resolve.test_finetuned import having, service, weight


def stamped(one: InferenceService, deps: Deps) -> dict[str, dict[str, str]]:
    """Return OME's labels on the pods of each kind of workload."""
    plan = sync(one, deps, Observed(), datetime(2026, 1, 1, tzinfo=UTC))
    found = {}
    for applied in plan.apply:
        if applied.manifest["kind"] in ("StatefulSet", "Deployment"):
            labels = applied.manifest["spec"]["template"]["metadata"]["labels"]
            found[applied.manifest["kind"]] = {key: labels[key] for key in KEYS if key in labels}
    return found


def with_model(deps: Deps, **more: Any) -> Deps:
    """Return the objects with a model that has these annotations or this spec."""
    model = parts.model(**more.pop("spec", {}))
    model = replace(model, **more)
    return replace(deps, models=dict.fromkeys(deps.models, model))


def test_pods_and_routers_carry_omes_labels() -> None:
    deps = with_model(Shape().deps(), spec={"vendor": "moonshotai"}, annotations={"models.ome.io/category": "LARGE"})
    labels = {
        "base-model-name": "tiny", "base-model-size": "LARGE", "base-model-type": "Serving",
        "base-model-vendor": "moonshotai", "serving-runtime": "rt", "fine-tuned-serving": "false",
    }  # fmt: skip
    assert stamped(Shape().service(), deps) == {"StatefulSet": labels, "Deployment": labels}


def test_invalid_label_values_are_omitted_and_user_labels_take_precedence() -> None:
    deps = with_model(Shape().deps(), spec={"vendor": "Moonshot AI"})
    one = parts.service(engine={"labels": {"base-model-size": "HUGE"}})
    labels = stamped(one, deps)["StatefulSet"]
    assert "base-model-vendor" not in labels and labels["base-model-size"] == "HUGE"
    assert stamped(parts.service(engine={}), deps)["StatefulSet"]["base-model-size"] == "SMALL"


def test_fine_tuned_weights_set_ome_labels() -> None:
    labels = stamped(service("poet"), having(weight(hyperParameters={"strategy": "lora"})))["StatefulSet"]
    assert (labels["fine-tuned-serving"], labels["fine-tuned-weight-ft-strategy"]) == ("true", "lora")
    assert labels["fine-tuned-serving-with-merged-weights"] == "false"
    merged = stamped(service("poet"), having(weight(kind="merged")))["StatefulSet"]
    assert merged["fine-tuned-serving-with-merged-weights"] == "true" and "fine-tuned-weight-ft-strategy" not in merged


def test_changed_vendor_label_restarts_no_pods() -> None:
    shape = Shape()
    world = World(shape.service(), shape.deps(), 4)
    world.settle()
    before = {name: pod.uid for name, pod in world.pods.items()}
    world.deps = with_model(world.deps, spec={"vendor": "another"})
    world.settle()
    assert {name: pod.uid for name, pod in world.pods.items()} == before
    assert isinstance(next(iter(world.deps.models.values())), Model)
