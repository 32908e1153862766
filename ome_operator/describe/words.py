"""The words that commands print in the place of a reason, although no condition has them as its reason."""

from collections.abc import Mapping
from typing import NamedTuple

from ome_operator.core.reasons import Reason, State


class CommandWord(NamedTuple):
    """A word in the place of a reason, with its description."""

    of: str
    """What the word is shown for: a service or a pod."""
    meaning: str
    remedy: str
    """What to do, with the placeholders of `core/reasons/record.py:ReasonRecord.remedy`."""
    router_remedy: str = ""
    """The remedy for a router's pod; "" if it is the same as for engines."""
    state: State = State.BROKEN


MISSING = "NotCreated"
"""Reason of a rank whose pod does not exist."""
OUTDATED = "Outdated"
"""Reason of a service whose status is older than its last edit, or whose pods contradict the status while no operator
works."""
WORDS: Mapping[str, CommandWord] = {
    OUTDATED: CommandWord(
        "Service",
        "the status is older than the last edit of the service; or no operator renews its Lease, and the state of the "
        "pods contradicts the condition Ready",
        "wait a few seconds; if the service stays Outdated, check that the operator runs: kubectl get pods -A -l "
        "app.kubernetes.io/name=ome-operator",
        state=State.STARTING,
    ),
    MISSING: CommandWord(
        "Pod",
        "the pod does not exist (`ome status` and `ome explain` write: not created yet)",
        "wait until its StatefulSet creates the pod; if the pod stays missing, the events show the cause",
        "wait until its Deployment creates the pod; if the pod stays missing, the condition RouterReady shows the cause",
        State.STARTING,
    ),
    "Error": CommandWord(
        "Pod",
        "a container has ended with an exit code other than 0; the message contains its last log lines",
        Reason.CRASH_LOOP_BACK_OFF.remedy,
    ),
    "OOMKilled": CommandWord(
        "Pod",
        "the kernel ended a container that used more memory than its limit",
        "the container needs more memory: raise resources.limits.memory of its runner",
    ),
}
"""Maps each word to its description. Pods also have reasons of the kubelet that are not listed here."""
