"""Tests of the message about the effect of an edit on a service."""

import re
from dataclasses import replace
from typing import Any

import pytest

from ome_operator.api import InferenceService, Runtime
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.sync import sync
from ome_operator.describe.changes import CHANGED
from ome_operator.describe.forecast import Forecast, forecast
from ome_operator.describe.outcome import compute_outcome
from tests.support import parts
from tests.support.simulator import START, World

REF = Ref("InferenceService", "team", "svc")


def edited(deps: Deps, old: str, new: str, component: str = "decoderConfig") -> Deps:
    """Return the objects with one word of the runtime's arguments replaced."""
    ((ref, runtime),) = deps.runtimes.items()
    assert isinstance(runtime, Runtime)
    body = runtime.dump()
    args = body["spec"][component]["runner"]["args"]
    assert old in args
    body["spec"][component]["runner"]["args"] = [new if one == old else one for one in args]
    return replace(deps, runtimes={ref: parts.ensure_valid(Runtime.parse(body))})


def told(before: tuple[InferenceService, Deps], after: tuple[InferenceService, Deps]) -> Forecast:
    """Return the forecast of the edit, which must have an effect."""
    found = forecast(REF, compute_outcome(*before), compute_outcome(*after))
    assert found is not None
    return found


def service(**spec: Any) -> InferenceService:
    return parts.service(engine={}, router={}, **spec)


def test_outcome_contains_what_the_first_reconciliation_writes() -> None:
    case = parts.kimi()
    plan = sync(*case, Observed(), START)
    assert compute_outcome(*case).manifests == tuple(one.manifest for one in (*plan.first, *plan.apply, *plan.create))


def test_runtime_edit_restarts_every_group_and_names_the_flag() -> None:
    service, deps = parts.kimi()
    found = told((service, deps), (service, edited(deps, "--mem-fraction-static=0.8", "--mem-fraction-static=0.85")))
    assert found.sentence == (
        f"revision {found.before} → {found.after}: prefill (1 group of 4 pods, 32 GPUs) and decode (1 group of 12 pods, "
        "96 GPUs) restart, 128 GPUs in all, all at the same time, so the service answers no requests meanwhile. Why: "
        "runtime kimi-k2-pd-rt decoderConfig.runner.args --mem-fraction-static 0.8 → 0.85"
    )
    assert found.gpus == 128
    changed = [one for one in found.changes if one.lines]
    assert [(one.kind, len(one.before)) for one in changed] == [("StatefulSet", 2)]  # leaders and workers of decode together
    edits = [line for line in changed[0].lines if line[0] in "+-"]
    assert [line.split("- ")[-1] for line in edits] == ["--mem-fraction-static=0.8", "--mem-fraction-static=0.85"]
    assert {one.mark for one in found.changes} == {CHANGED}


@pytest.mark.parametrize(
    ("groups", "rollout", "how"),
    [
        (1, {}, "restarts, so the service answers no requests meanwhile."),
        (4, {}, "restarts, 1 of 4 groups at a time in 4 steps, the group with the highest number first."),
        (
            4,
            {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
            "restarts, 2 of 4 groups at a time in 2 steps, the group with the highest number first, with 4 GPUs more "
            "meanwhile.",
        ),
        (
            4,
            {"blueGreen": {}},
            "restarts: the new pods start next to the old ones, with 8 GPUs more until the old pods are removed.",
        ),
        (
            4,
            {"recreate": {}},
            "restarts: the old pods end before the new pods start, so the service answers no requests meanwhile.",
        ),
    ],
)
def test_forecast_describes_how_groups_are_replaced(groups: int, rollout: dict[str, Any], how: str) -> None:
    one = parts.service(engine={"minReplicas": groups}, router={}, rollout=rollout)
    old, new = (parts.deps(parts.model(), parts.simple(2, image=image)) for image in ("engine:1", "engine:2"))
    found = told((one, old), (one, new))
    assert f"{how} Why: " in found.sentence


def test_an_edit_of_the_router_restarts_no_gpu_pod() -> None:
    service, deps = parts.kimi()
    found = told((service, deps), (service, edited(deps, "--port=8080", "--port=8081", "routerConfig")))
    assert found.gpus == 0 and found.before == found.after
    assert found.sentence.startswith(
        "the edit makes no new revision, so no GPU pod restarts; the router's pods are replaced; "
    )


def test_additional_groups_start_without_restarts() -> None:
    deps = parts.deps(parts.model(), parts.simple(2))
    found = told((service(), deps), (parts.service(engine={"minReplicas": 3}, router={}), deps))
    assert found.restarts == ()
    assert "; engine 1 → 3 groups: 4 pods with 4 GPUs start; 4 objects added" in found.sentence
    assert "changed" not in found.sentence, "an additional group changes no object of the others"


def test_forecast_without_change_is_none() -> None:
    deps = parts.deps(parts.model(), parts.simple())
    assert forecast(REF, compute_outcome(service(), deps), compute_outcome(service(), deps)) is None


def test_annotation_on_the_service_gives_no_forecast() -> None:
    deps = parts.deps(parts.model(), parts.simple())
    assert forecast(REF, compute_outcome(service(), deps), compute_outcome(service(annotations={"note": "x"}), deps)) is None


def test_new_service_forecast_counts_its_objects() -> None:
    found = forecast(REF, None, compute_outcome(*parts.kimi()))
    assert found is not None and found.gpus == 0
    assert found.sentence.startswith(f"new: revision {found.after} with prefill (1 group of 4 pods, 32 GPUs) and decode")
    assert found.sentence.endswith("128 GPUs in all; 16 objects added")


def test_edit_that_cannot_start_keeps_running_pods() -> None:
    deps = parts.deps(parts.model(), parts.simple())
    found = told((service(), deps), (service(model={"name": "other"}), deps))
    said = "it cannot start: ClusterBaseModel other does not exist: apply it, or fix spec.model.name"
    assert found.sentence == f"{said}; the running revision stays unchanged"
    assert found.changes == () and found.gpus == 0


def test_paused_service_forecast_states_the_wait() -> None:
    deps = parts.deps(parts.model(), parts.simple())
    paused = service(rollout={"paused": True})
    waits = "revision x waits: spec.rollout.paused is true"
    found = forecast(REF, compute_outcome(paused, deps), compute_outcome(paused, edited_image(deps)), f"But {waits}")
    assert found is not None
    assert found.gpus == 1
    assert f"engineConfig.runner.image engine:1 → engine:2. But {waits}" in found.sentence


def edited_image(deps: Deps) -> Deps:
    return parts.deps(*deps.models.values(), parts.simple(image="engine:2"))  # type: ignore[arg-type]


def test_stored_revision_is_recognized_in_the_forecast() -> None:
    """A revision that is already stored is recognized, and its name in the forecast is the one that the operator uses."""
    deps = parts.deps(parts.model(), parts.simple())
    world = World(service(), deps, seed=1)
    world.carry_out(world.sync())
    children = tuple(world.observed().children.values())
    world.deps = edited_image(deps)
    found = forecast(
        REF, compute_outcome(world.service, deps, children), compute_outcome(world.service, world.deps, children)
    )
    assert found is not None
    while world.service.status["revision"] != found.after:
        world.carry_out(world.sync())
        world.step()
    back = compute_outcome(world.service, deps, tuple(world.observed().children.values()))
    assert back.revision == found.before, "an undo selects the old revision again"


ZERO = {"engine": {"minReplicas": 0}}
TEMPLATE = {"env": [{"name": "A", "value": "b"}], "name": "ome-container"}
NUMBERS = {
    "new": (None, ZERO, "new: revision .* with engine (0 groups of 1 pod.*; [0-9]+ objects added"),
    "asleep": (
        {"engine": {}},
        ZERO,
        "engine 1 → 0 groups: 1 pod.* ends, so the service answers no requests until it is scaled up; 1 object",
    ),
    "awake": (ZERO, {"engine": {}}, "no new revision.*; engine 0 → 1 group: 1 pod.* starts; 1 object added"),
    "edited": (
        ZERO,
        {"engine": {**ZERO["engine"], "runner": TEMPLATE}},
        "no running pod would restart. Why: spec.engine.ru",
    ),
}
"""The components before and after an edit, and the expected forecast, for services that are scaled to zero."""


@pytest.mark.parametrize(("old", "new", "words"), NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("router", [{}, {"router": {}}, {"router": {"minReplicas": 0}}])
def test_service_scaled_to_zero_is_distinguished_from_one_that_cannot_start(
    old: dict[str, Any] | None, new: dict[str, Any], words: str, router: dict[str, Any]
) -> None:
    box = {"name": "ome-container", "image": "engine:1"}
    deps = parts.deps(
        parts.model(), parts.runtime(engineConfig={"runner": box}, routerConfig={"runner": {**box, "name": "router"}})
    )
    before = compute_outcome(parts.service(**old, **router), deps) if old is not None else None
    found = forecast(REF, before, compute_outcome(parts.service(**new, **router), deps))
    assert found is not None and re.search(words.replace("(", r"\("), found.sentence), found and found.sentence
