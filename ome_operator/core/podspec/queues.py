"""Set labels and annotations for the queues of Kueue and Volcano on pods, as OME's annotations on services request them.

Annotations of a service apply to all of its components; annotations of a component take precedence. Labels and annotations
that the user sets on pods are kept.
"""

from collections.abc import Iterable, Mapping

from ome_operator import keys
from ome_operator.core.podspec.compose import ComposedPods

NOTES = (keys.VOLCANO_QUEUE, keys.DEDICATED_CLUSTER, keys.KUEUE_ENABLED)
VOLCANO = "scheduling.volcano.sh/queue-name"
"""Annotation by which Volcano determines the queue of a pod that it schedules. OME itself sets only a label for the queue.
"""
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
PRIORITY = "kueue-scheduling-high-priority"
"""Name of the WorkloadPriorityClass of OME's dedicated clusters."""


def queue_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that request a queue or a priority in a queue."""
    return {name: annotations[name] for name in NOTES if annotations.get(name)}


def with_queue(composed: ComposedPods, of_service: Iterable[tuple[str, str]]) -> ComposedPods:
    """Return the component with the labels and annotations of its queue. `of_service` are the service's annotations about
    queues, as (key, value).
    """
    labels, notes = _marks({**dict(of_service), **queue_annotations(composed.annotations)})
    if not labels:
        return composed
    return composed._replace(
        labels={**labels, **composed.labels},
        annotations={**notes, **composed.annotations},
        worker_labels={**labels, **composed.worker_labels},
        worker_annotations={**notes, **composed.worker_annotations},
    )


def _marks(requested: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and the annotations of a pod for the requested queue, given the annotations about queues."""
    queue, cluster = requested.get(keys.VOLCANO_QUEUE), requested.get(keys.DEDICATED_CLUSTER)
    if not queue and cluster and keys.KUEUE_ENABLED in requested:
        return {keys.KUEUE_LABEL: cluster, KUEUE_PRIORITY: PRIORITY}, {}
    name = queue or cluster
    return ({keys.VOLCANO_LABEL: name}, {VOLCANO: name}) if name else ({}, {})


def advice(annotations: Mapping[str, str], scheduler: str) -> list[str]:
    """Return a list with a sentence if the queue that a pod requests has no effect; otherwise []."""
    if VOLCANO in annotations and scheduler != "volcano":
        return [
            f"queue {annotations[VOLCANO]} has no effect unless Volcano schedules the pods: set schedulerName: volcano, too"
        ]
    return []
