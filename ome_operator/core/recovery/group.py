"""A group of pods as it is observed, and the comparison of its pods with its recorded start."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ome_operator.core.observed.objects import Pod
from ome_operator.core.recovery.record import UID, GroupRecord, start_mark


class Group(NamedTuple):
    """A group of a revision, as it is observed."""

    name: str
    """Name of the leader pod of the group."""
    component: str
    revision: str
    number: int
    size: int
    title: str
    """Name of the group in messages, such as "prefill group 0"."""
    pods: Mapping[int, Pod]
    """The pod of each rank that has a pod, including pods that are being deleted."""
    drifted: frozenset[str] = frozenset()
    """UIDs of pods that were created from another template than the present template of their StatefulSet."""
    copied: bool = False
    """Whether pods of the group were restored from a backup of another namespace. Such pods contact ranks in that
    namespace, although the template of their revision does not."""
    settled: bool = True
    """False while a StatefulSet of the group does not have the template of the group's revision. If the group becomes ready
    in this time, its start is recorded only in two cases: it is the first start of the group, or the policy does not
    recycle groups."""

    @property
    def leader(self) -> Pod | None:
        """The pod of rank 0; None if it does not exist."""
        return self.pods.get(0)

    @property
    def is_complete(self) -> bool:
        """Whether every rank has a pod, and no pod has ended or is being deleted."""
        return len(self.pods) == self.size and not any(pod.deleting or pod.over for pod in self.pods.values())

    @property
    def is_bound(self) -> bool:
        """Whether the group is complete and every pod is on a node."""
        return self.is_complete and all(pod.node for pod in self.pods.values())

    @property
    def is_held_by_preflight(self) -> bool:
        """Whether the preflight check of a rank, in mode Require, prevents its engine from starting."""
        return any(pod.preflight is not None and pod.preflight.held for pod in self.pods.values())

    @property
    def is_split_by_preflight(self) -> bool:
        """Whether a preflight check holds one rank while the engine of another rank runs. Engines can only join if they
        all start together.
        """
        return self.is_held_by_preflight and any(pod.running for pod in self.pods.values())

    @property
    def is_ready(self) -> bool:
        """Whether the group is complete and its leader is ready, so that its start can be recorded. The readiness of the
        other ranks does not matter, because it does not show whether they have joined.
        """
        return self.is_complete and self.pods[0].ready

    def start_marks(self) -> dict[str, str]:
        """Return the mark (`record.start_mark`) of the present start of each existing pod, by rank."""
        return {str(rank): start_mark(pod) for rank, pod in sorted(self.pods.items())}


class StartComparison(NamedTuple):
    """The comparison of the pods of a group with the recorded start of the group."""

    recorded: tuple[Pod, ...]
    """Pods whose present start is the recorded start. Only these pods may ever be deleted."""
    whole: bool
    """Whether the leader and the other ranks have been running since the recorded start. Ranks that the engine survives
    losing may be missing."""
    ending: bool
    """Whether somebody else deletes the leader. The leader then finishes its requests, and all other ranks still work for
    it."""
    restarting: bool
    """Whether every rank has a pod, and all pods are the recorded pods. If so, and if the group is not `whole`, main
    containers were restarted or are about to be restarted."""


def view(group: Group, record: GroupRecord, spare: int = 0) -> StartComparison:
    """Compare the pods of a group with its recorded start. `spare` is the number of ranks above 0 that may be lost."""
    recorded = {rank: pod for rank, pod in group.pods.items() if record.members.get(str(rank)) == start_mark(pod)}
    alive = {rank for rank, pod in recorded.items() if pod.running and not (pod.deleting or pod.over)}
    leader = group.leader
    return StartComparison(
        recorded=tuple(pod for _, pod in sorted(recorded.items())),
        whole=0 in alive and len(alive) >= group.size - spare,
        ending=leader is not None and 0 in recorded and _finishes(leader) and len(alive) >= group.size - 1 - spare,
        restarting=group.is_complete and all(pod.uid[:UID] == uid_of(record, rank) for rank, pod in group.pods.items()),
    )


def _finishes(leader: Pod) -> bool:
    return leader.deleting and leader.running and not leader.over


def uid_of(record: GroupRecord, rank: int) -> str:
    """Return the first characters of the UID of the pod that was recorded for a rank; "" if no pod was recorded."""
    return record.members.get(str(rank), "").partition(".")[0]


def ranks(pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return the pod of each rank. If two pods have the same rank, the newer pod is returned, because the older pod is
    gone and the watch has not reported that yet.
    """
    out: dict[int, Pod] = {}
    for pod in pods:
        if pod.rank not in out or out[pod.rank].version < pod.version:
            out[pod.rank] = pod
    return out
