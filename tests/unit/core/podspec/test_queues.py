"""Tests of the queue in which pods wait."""

import pytest

from ome_operator.core.podspec import queues
from ome_operator.core.podspec.compose import ComposedPods, compose

KUEUE = {"kueue.x-k8s.io/queue-name": "dac", "kueue.x-k8s.io/priority-class": "kueue-scheduling-high-priority"}
VOLCANO, LABEL = "scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"


def made(annotations: dict[str, str], **labels: str) -> ComposedPods:
    """Return an engine over two nodes with these annotations and labels."""
    part = {"runner": {"image": "i"}, "worker": {"size": 1}, "annotations": annotations, "labels": labels}
    return compose("engine", {"engineConfig": part}, {})


MARKS = [
    ({"ome.io/volcano-queue": "q"}, {LABEL: "q"}, {VOLCANO: "q"}),
    ({"ome.io/dedicated-ai-cluster": "dac"}, {LABEL: "dac"}, {VOLCANO: "dac"}),
    ({"ome.io/dedicated-ai-cluster": "dac", "kueue-enabled": "true"}, KUEUE, {}),
    ({"ome.io/dedicated-ai-cluster": "dac", "ome.io/volcano-queue": "q"}, {LABEL: "q"}, {VOLCANO: "q"}),
    ({"kueue-enabled": "true"}, {}, {}),
    ({}, {}, {}),
]


@pytest.mark.parametrize(("said", "labels", "notes"), MARKS)
def test_annotations_of_a_service_or_a_component_mark_every_pod(
    said: dict[str, str], labels: dict[str, str], notes: dict[str, str]
) -> None:
    of_service = queues.with_queue(made({}), said.items())
    of_component = queues.with_queue(made(said), ())
    assert of_service.labels == of_service.worker_labels == of_component.labels == of_component.worker_labels == labels
    assert of_service.annotations == of_service.worker_annotations == notes
    assert of_component.annotations == of_component.worker_annotations == {**notes, **said}


def test_component_queue_overrides_service_queue_and_labels_override_both() -> None:
    both = queues.with_queue(made({"ome.io/volcano-queue": "mine"}), {"ome.io/volcano-queue": "all"}.items())
    assert both.labels == {LABEL: "mine"}
    own = queues.with_queue(made({}, **{LABEL: "own"}), {"ome.io/volcano-queue": "all"}.items())
    assert own.labels == {LABEL: "own"}


def test_volcano_queue_without_scheduler_name_gives_advice() -> None:
    assert queues.advice({VOLCANO: "q"}, "volcano") == queues.advice({}, "") == []
    (said,) = queues.advice({VOLCANO: "q"}, "")
    assert "set schedulerName: volcano" in said
