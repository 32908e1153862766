"""Tests of the advice about pods of a service that Kueue does not admit together."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.render.queue_advice import advice
from ome_operator.core.render.statefulsets import roles_by_component
from tests.unit.core.render.test_pod_groups import QUEUE, data

OWN = {"labels": {**QUEUE, keys.KUEUE_GROUP: "mine"}, "annotations": {keys.KUEUE_COUNT: "4"}}
BOTH = {"engine": {"labels": QUEUE}, "decoder": {"labels": QUEUE}}
ONLY_WORKERS = {"labels": {}, "workers": {"size": 1, "labels": QUEUE}}


def said(
    groups: tuple[int, int] = (1, 1), labels: dict[str, str] | None = None, *, old: bool = False, **spec: Any
) -> list[str]:
    made = data(2, **spec)
    for role in made["workloads"].values():
        if old:
            role.pop("podGroup", None)
    return list(
        advice(roles_by_component(made), dict(zip(("engine", "decoder"), groups, strict=True)), labels or {}, "0a1b2c3d")
    )


@pytest.mark.parametrize(
    ("spec", "groups"),
    [
        ({}, (1, 1)),
        (BOTH, (1, 1)),
        (BOTH, (3, 5)),
        ({"engine": OWN, "decoder": OWN}, (1, 1)),
        ({"engine": OWN, "decoder": BOTH["decoder"]}, (2, 1)),
    ],
)
def test_no_advice_if_kueue_admits_the_pods_together(spec: dict[str, Any], groups: tuple[int, int]) -> None:
    assert said(groups, **spec) == []


def test_advice_about_a_revision_rendered_by_an_earlier_operator() -> None:
    first, second = said(old=True, **BOTH)
    assert first.startswith("Kueue admits the pods of prefill one by one, because an earlier version of the operator")
    assert "revision 0a1b2c3d" in first and "decode" in second


@pytest.mark.parametrize(
    ("queued", "other", "words"), [("engine", "decoder", "decode takes"), ("decoder", "engine", "prefill takes")]
)
def test_advice_about_a_queue_of_only_one_role(queued: str, other: str, words: str) -> None:
    (sentence,) = said(**{queued: {"labels": QUEUE}})
    assert words in sentence and sentence.endswith(f"write the label {keys.KUEUE_LABEL} into spec.{other}.labels, too")


def test_advice_about_different_queues_of_leader_and_workers() -> None:
    found = said(runtime=ONLY_WORKERS)
    assert any("leader and workers of prefill do not name the same queue" in each for each in found)


def test_advice_about_a_queue_label_that_reaches_no_pod() -> None:
    (sentence,) = said(labels=QUEUE)
    assert sentence == (
        f"the label {keys.KUEUE_LABEL} of the InferenceService has no effect: write this label into spec.engine.labels and "
        "spec.decoder.labels"
    )
    assert said(labels=QUEUE, **BOTH) == []


@pytest.mark.parametrize(("groups", "pods"), [((2, 1), 6), ((1, 3), 8), ((0, 1), 2)])
def test_advice_about_a_wrong_user_defined_pod_group_size(groups: tuple[int, int], pods: int) -> None:
    (sentence,) = said(groups, engine=OWN, decoder=OWN)
    assert f"of pod group mine is 4, but the service has {pods} of its pods" in sentence
