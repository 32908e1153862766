"""Explain, from Events, why no container of a pod starts on its node. The status of the pod does not contain the causes."""

from collections.abc import Iterable, Mapping

from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import Reason, ReasonedMessage

MOUNTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
"""Reasons of Events that report failures of volumes."""
FAILED = MOUNTS | {"FailedCreatePodSandBox"}
"""Reasons of Events that report failures before the first container of a pod can start."""
VAGUE = "Unable to attach or mount volumes"
"""Start of the message with which the kubelet summarizes failed mounts. The kubelet sends this message every two minutes,
in addition to more detailed messages about single volumes."""


def waits_for_start(pod: Pod) -> bool:
    """Return whether a pod is bound to a node, but none of its containers has run there."""
    return pod.reason == Reason.CONTAINER_CREATING and not pod.deleting


def with_failures(pods: Iterable[Pod], failures: Mapping[str, ReasonedMessage]) -> tuple[Pod, ...]:
    """Return the pods, with the reason and message from `failures` for each pod that waits for its start. `failures` maps
    UIDs of pods to failures.
    """
    return tuple(_explained(pod, failures.get(pod.uid)) if waits_for_start(pod) else pod for pod in pods)


def _explained(pod: Pod, why: ReasonedMessage | None) -> Pod:
    return pod if why is None else pod._replace(reason=why.reason, message=why.sentence)


def start_failure(reported: Iterable[tuple[str, str]]) -> ReasonedMessage | None:
    """Return the reason why a pod cannot start; None if its start has not failed. `reported` are (reason, message) of the
    Events about the pod, newest first.

    Only the newest Event determines whether there is a failure: a node that pulls the image has already mounted all volumes.
    """
    events = list(reported)
    if not events or events[0][0] not in FAILED:
        return None
    reason, message = next((event for event in events if event[0] in FAILED and not event[1].startswith(VAGUE)), events[0])
    return ReasonedMessage(Reason.FAILED_MOUNT if reason in MOUNTS else reason, message)
