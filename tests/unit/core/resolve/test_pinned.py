"""Tests of services that do not follow edits of their runtime or model."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps
from ome_operator.core.resolve.inputs import ResolvedService, resolve
from tests.support import parts
from tests.support.simulator import World
from tests.unit.core.resolve.test_finetuned import having, weight
from tests.unit.core.selection.test_runtime import MODEL, candidate, unnamed

HOLD: dict[str, Any] = {"autoSync": False}


def service(runtime: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **more: Any) -> InferenceService:
    """Return a service with these fields of its references to runtime and model."""
    named = {"model": {"name": "tiny", **(model or {})}, "runtime": {"name": "rt", **(runtime or {})}}
    return parts.service({**named, "engine": {}, "router": {}, **more})


def deps(image: str = "a", uri: str = "hf://test/tiny", **spec: Any) -> Deps:
    """Return a runtime with this image, and a model with this URI."""
    made = parts.runtime(**{**parts.simple(image=image).spec.dump(), **spec})
    return parts.deps(parts.model(uri), made, parts.accelerator("h200", discovery={"nodeSelector": {"gpu": "h200"}}))


def again(one: InferenceService, before: ResolvedService, now: Deps, **kept: Any) -> ResolvedService:
    """Resolve the service again after an edit of the objects to which it refers."""
    assert before.inputs is not None, before.problems
    return resolve(one, now, {**kept, "r1": before.inputs})


@pytest.mark.parametrize(
    ("words", "part", "now"),
    [
        ({"runtime": HOLD}, "runtime", deps("b")),
        ({"model": HOLD}, "model", deps(uri="hf://test/tiny@v2")),
    ],
)
def test_edit_of_a_pinned_object_is_reported_without_a_new_revision(words: dict[str, Any], part: str, now: Deps) -> None:
    one = service(**words)
    before = resolve(one, deps())
    assert before.drift[part] == ""
    after = again(one, before, now)
    assert after.inputs == before.inputs
    assert f"annotate isvc svc -n team ome.io/{part}-sync=" in str(after.drift[part])
    assert "as stored in revision r1" in str(after.drift[part])
    assert again(one, before, deps()).drift[part] == ""
    assert {again(service(), before, now).drift[name] for name in ("runtime", "model")} == {None}
    assert again(service(), before, now).inputs != before.inputs


def test_pinned_runtime_keeps_accelerator_override_but_follows_the_class() -> None:
    def tuned(flag: str) -> dict[str, Any]:
        override = {"runtimeArgsOverride": [flag]}
        return {"supportedModelFormats": [{"name": "safetensors", "acceleratorConfig": {"h200": override}}]}

    one = service(HOLD, acceleratorSelector={"acceleratorClass": "h200"})
    before = resolve(one, deps(**tuned("--a")))
    edited = deps(**tuned("--b"))
    assert again(one, before, edited).inputs == before.inputs
    moved = replace(edited, accelerators={"h200": parts.accelerator("h200", discovery={"nodeSelector": {"gpu": "new"}})})
    after = again(one, before, moved).inputs
    assert after is not None
    assert after["accelerator"]["engine"] == {"class": "h200", "nodeSelector": {"gpu": "new"}, "args": ["--a"]}


def test_pinned_merged_weights_keep_their_base_model() -> None:
    merged = weight("poet", kind="Merged")
    one = service(model={**HOLD, "fineTunedWeights": ["poet"]})
    before = resolve(one, having(merged))
    edited = replace(having(merged), models=deps(uri="hf://test/tiny@v2").models)
    assert before.inputs is not None and before.inputs["base"]["uri"] == "hf://test/tiny"
    assert again(one, before, edited).inputs == before.inputs
    assert again(service(model={"fineTunedWeights": ["poet"]}), before, edited).inputs != before.inputs


def test_switch_to_another_runtime_is_applied_despite_the_pin() -> None:
    before = resolve(service(HOLD), deps())
    other = parts.deps(parts.model(), parts.simple(), replace(parts.simple(image="b"), name="other"))
    after = again(service({**HOLD, "name": "other"}), before, other)
    assert after.inputs is not None and after.inputs["runtime"]["engineConfig"]["runner"]["image"] == "b"


def test_automatically_chosen_runtime_is_kept_while_edits_are_not_followed() -> None:
    model = parts.model(**MODEL)
    before = resolve(unnamed(), parts.deps(model, candidate("one")))
    edited = parts.deps(model, candidate("one", quantization="int4"), candidate("two"))
    after = again(unnamed(runtime=HOLD), before, edited)
    assert after.inputs == before.inputs


@pytest.mark.parametrize("part", ["runtime", "model"])
def test_named_revision_is_used_and_must_belong_to_the_same_object(part: str) -> None:
    old = resolve(service(), deps()).inputs
    new = resolve(service(), deps("b", "hf://test/tiny@v2")).inputs
    assert old is not None and new is not None
    kept = {"r1": old, "r2": new}
    pin = {part: {**HOLD, "revision": "r1"}}
    found = resolve(service(**pin), deps("b", "hf://test/tiny@v2"), kept)
    assert found.inputs == {**new, part: old[part]}
    assert f"remove spec.{part}.revision" in str(found.drift[part])
    for revision in ("gone", "r3"):
        strange = {**kept, "r3": {**old, "model": {**old["model"], "name": "x"}, "chosen": {}}}
        lost = resolve(service(**{part: {**HOLD, "revision": revision}}), deps(), strange)
        (problem,) = lost.problems
        assert (problem.condition, problem.reason) == (f"{part.title()}Ready", "RevisionNotFound")
        assert f"spec.{part}.revision {revision} is not a stored revision" in problem.message
        assert "(stored: r1, r2)" in problem.message
        assert lost.inputs is None


def test_sync_annotation_applies_an_edit_once() -> None:
    world = World(service(HOLD), deps(), 1)
    world.settle()
    first = world.service.status["revision"]
    world.edit(deps=deps("b"))
    world.settle()
    assert world.service.status["revision"] == first
    assert world.condition("RuntimeDrifted")["status"] == "True"
    assert world.condition("Ready")["status"] == world.condition("RolledOut")["status"] == "True"
    synced = replace(world.service, annotations={"ome.io/runtime-sync": "1"})
    world.edit(synced, deps("b"))
    world.settle()
    second = world.service.status["revision"]
    assert second != first and world.condition("RuntimeDrifted")["reason"] == "InSync"
    assert world.service.status["lastRuntimeSyncToken"] == "1"
    world.edit(deps=deps("c"))
    world.settle()
    assert world.service.status["revision"] == second, "the same value counts once"
    world.edit(replace(world.service, annotations={"ome.io/runtime-sync": "2"}))
    world.settle()
    assert world.service.status["revision"] not in (first, second)


def test_sync_annotation_that_cannot_be_applied_yet_is_kept() -> None:
    world = World(service(HOLD), deps(), 1)
    world.settle()
    first = world.service.status["revision"]
    world.edit(replace(world.service, annotations={"ome.io/runtime-sync": "1"}), replace(deps("b"), models={}))
    world.settle()
    assert "lastRuntimeSyncToken" not in world.service.status
    world.edit(deps=deps("b"))
    world.settle()
    assert world.service.status["revision"] != first


def test_named_revision_is_kept_beyond_the_history_limit() -> None:
    world = World(service(), deps(), 1)
    world.settle()
    first = world.service.status["revision"]
    for number in range(12):
        world.edit(service({**HOLD, "revision": first}, rollout={"restartedAt": str(number)}))
        world.settle()
    kept = {one.labels["ome.io/revision"] for (kind, _), one in world.children.items() if kind == "ControllerRevision"}
    assert first in kept and len(kept) == 10
