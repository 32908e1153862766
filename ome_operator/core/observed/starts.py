"""Pods of which no container runs, and what keeps their nodes from starting any: only events tell that, no status."""

from collections.abc import Iterable, Mapping

from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import Reason, Why

MOUNTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
"""Reasons of events about a volume."""
FAILED = MOUNTS | {"FailedCreatePodSandBox"}
"""Reasons of events about what has to be there before any container is."""
VAGUE = "Unable to attach or mount volumes"
"""How the kubelet sums up every two minutes what it said more exactly about a single volume."""


def waits(pod: Pod) -> bool:
    """Whether a pod has a node, and none of its containers has run there."""
    return pod.reason == Reason.CONTAINER_CREATING and not pod.deleting


def explained(pods: Iterable[Pod], failures: Mapping[str, Why]) -> tuple[Pod, ...]:
    """The pods, those that wait with what was told about them; `failures`: by UID."""
    return tuple(_explained(pod, failures.get(pod.uid)) if waits(pod) else pod for pod in pods)


def _explained(pod: Pod, why: Why | None) -> Pod:
    return pod if why is None else pod._replace(reason=why.reason, message=why.sentence)


def failure(told: Iterable[tuple[str, str]]) -> Why | None:
    """What keeps a pod from starting, from the (reason, message) of the events about it, the newest first; None when nothing
    does.

    Only what was said last counts: a node that pulls the image has mounted everything.
    """
    said = list(told)
    if not said or said[0][0] not in FAILED:
        return None
    reason, message = next((event for event in said if event[0] in FAILED and not event[1].startswith(VAGUE)), said[0])
    return Why(Reason.FAILED_MOUNT if reason in MOUNTS else reason, message)
