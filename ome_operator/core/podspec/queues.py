"""Queues of Kueue and Volcano: the marks on pods that OME's annotations ask for.

A service's annotations count for all of its components, those of a component more. What a user writes himself wins.
"""

from collections.abc import Iterable, Mapping

from ome_operator import keys
from ome_operator.core.podspec.compose import Composed

NOTES = (keys.VOLCANO_QUEUE, keys.DEDICATED_CLUSTER, keys.KUEUE_ENABLED)
VOLCANO = "scheduling.volcano.sh/queue-name"
"""Annotation by which Volcano finds the queue of a pod that it schedules; OME writes a label."""
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
PRIORITY = "kueue-scheduling-high-priority"
"""The WorkloadPriorityClass that OME's dedicated clusters have."""


def asked(annotations: Mapping[str, str]) -> dict[str, str]:
    """What annotations say about queues."""
    return {name: annotations[name] for name in NOTES if annotations.get(name)}


def queued(composed: Composed, of_service: Iterable[tuple[str, str]]) -> Composed:
    """A component whose pods carry the marks of their queue; `of_service`: `asked` of the service's annotations."""
    labels, notes = _marks({**dict(of_service), **asked(composed.annotations)})
    if not labels:
        return composed
    return composed._replace(
        labels={**labels, **composed.labels},
        annotations={**notes, **composed.annotations},
        worker_labels={**labels, **composed.worker_labels},
        worker_annotations={**notes, **composed.worker_annotations},
    )


def _marks(said: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of a pod."""
    queue, cluster = said.get(keys.VOLCANO_QUEUE), said.get(keys.DEDICATED_CLUSTER)
    if not queue and cluster and keys.KUEUE_ENABLED in said:
        return {keys.KUEUE_LABEL: cluster, KUEUE_PRIORITY: PRIORITY}, {}
    name = queue or cluster
    return ({keys.VOLCANO_LABEL: name}, {VOLCANO: name}) if name else ({}, {})


def advice(annotations: Mapping[str, str], scheduler: str) -> list[str]:
    """What keeps the queue of a pod from counting."""
    if VOLCANO in annotations and scheduler != "volcano":
        return [
            f"queue {annotations[VOLCANO]} counts for pods that Volcano schedules: write schedulerName: volcano beside it"
        ]
    return []
