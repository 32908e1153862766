"""Tests of the waves that `ome diff` announces for an edit of a shared object."""

from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.describe.preview import Side, forecasts, waves
from tests.support import parts

RUNTIME = Ref("ClusterServingRuntime", "", "rt")


def services(number: int) -> dict[Ref, InferenceService]:
    """Return services that differ in their names only."""
    one = parts.service(engine={}, router={})
    names = [f"svc-{each:02}" for each in range(number)]
    return {Ref("InferenceService", "team", name): replace(one, name=name, uid=name) for name in names}


def deps(image: str) -> Deps:
    return parts.deps(parts.model(), parts.simple(2, image=image))


def said(number: int, **notes: str) -> list[str]:
    """Return the sentences about an edit of a runtime that this number of services use."""
    known = services(number)
    found = forecasts(Side(known, deps("engine:1")), Side(known, deps("engine:2")), {})
    assert {item.shared for item in found} == {(RUNTIME,)} and len(found) == number
    return [*waves(found, {RUNTIME: {f"ome.io/{name.replace('_', '-')}": text for name, text in notes.items()}})]


def test_announced_waves_equal_those_of_the_operator() -> None:
    (sentence,) = said(24)
    assert sentence == (
        "The edit of ClusterServingRuntime rt restarts groups of 24 services in 4 waves: 1 service first, then 1, 4, 18 "
        "more (default; rollout.waves of the chart may set others). A wave begins when all services of the wave before have "
        "been complete for 5 min"
    )


@pytest.mark.parametrize(
    ("number", "notes", "what"),
    [
        (3, {}, ["in 3 waves: 1 service first, then 1, 1 more (default"]),
        (1, {}, []),
        (4, {"rollout_waves": "100%"}, ["restarts groups of 4 services, which form a single wave"]),
        (
            4,
            {"rollout_waves": "2, 100%", "rollout_bake": "0s"},
            [f"2 services first, then 2 more (annotation {keys.WAVES})"],
        ),
        (4, {"rollout_bake": "0s"}, ["of the wave before have been complete"]),
    ],
)
def test_wave_annotations_of_the_object_are_announced(number: int, notes: dict[str, str], what: list[str]) -> None:
    found = said(number, **notes)
    assert len(found) == len(what) and all(text in sentence for text, sentence in zip(what, found, strict=True))
    assert "0s" not in " ".join(found) and ("for 5 min" in " ".join(found)) == (bool(what) and "rollout_bake" not in notes
                                                                               and "100%" not in notes.values())  # fmt: skip


def test_edit_of_a_service_announces_no_waves() -> None:
    known = services(3)
    own = parts.service(engine={"nodeSelector": {"a": "b"}}, router={})
    edited = {ref: replace(own, name=one.name, uid=one.uid) for ref, one in known.items()}
    found = forecasts(Side(known, deps("engine:1")), Side(edited, deps("engine:1")), {})
    assert len(found) == 3 and all(item.restarts for item in found) and not [*waves(found, {})]
