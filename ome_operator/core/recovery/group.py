"""A group as it is observed, and how its pods compare with the recorded start."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ome_operator.core.observed.objects import Pod
from ome_operator.core.recovery.record import UID, GroupRecord, mark


class Group(NamedTuple):
    """A group of a slice."""

    name: str
    """Name of its leader pod."""
    component: str
    revision: str
    number: int
    size: int
    title: str
    """The group as people call it: "prefill group 0"."""
    pods: Mapping[int, Pod]
    """Rank -> pod, including pods that are being deleted."""
    drifted: frozenset[str] = frozenset()
    """UIDs of pods that were created from a template other than the slice's."""
    settled: bool = True
    """False while a template is not the slice's: a group that starts meanwhile is not recorded."""

    @property
    def leader(self) -> Pod | None:
        """The pod of rank 0, None if it does not exist."""
        return self.pods.get(0)

    @property
    def complete(self) -> bool:
        """Whether every rank has a pod that is not being deleted."""
        return len(self.pods) == self.size and not any(pod.deleting or pod.over for pod in self.pods.values())

    @property
    def bound(self) -> bool:
        """Whether every rank has a pod on a node."""
        return self.complete and all(pod.node for pod in self.pods.values())

    @property
    def held(self) -> bool:
        """Whether the preflight check of a rank, in mode Require, prevents its engine from starting."""
        return any(pod.preflight is not None and pod.preflight.held for pod in self.pods.values())

    @property
    def apart(self) -> bool:
        """Whether a rank is held while the engine of another runs: engines can only join when they all start together."""
        return self.held and any(pod.running for pod in self.pods.values())

    @property
    def ready(self) -> bool:
        """Whether the leader serves, so that the start can be recorded: readiness of other ranks proves nothing."""
        return self.complete and self.pods[0].ready

    def marks(self) -> dict[str, str]:
        """Rank -> mark of its start, for all pods that exist."""
        return {str(rank): mark(pod) for rank, pod in sorted(self.pods.items())}


class Standing(NamedTuple):
    """How a group compares with its record."""

    recorded: tuple[Pod, ...]
    """Pods whose start is the recorded one: only these may ever be deleted."""
    whole: bool
    """Whether every rank has been running since the recorded start, except ranks that the engine survives losing."""
    ending: bool
    """Whether somebody else is ending the leader: it finishes its requests, and all its ranks still work for it."""
    restarting: bool
    """Whether every pod is the recorded one, and main containers were restarted or are about to be."""


def view(group: Group, record: GroupRecord, spare: int = 0) -> Standing:
    """Compare a group with its record; `spare` ranks above 0 may differ."""
    recorded = {rank: pod for rank, pod in group.pods.items() if record.members.get(str(rank)) == mark(pod)}
    alive = {rank for rank, pod in recorded.items() if pod.running and not (pod.deleting or pod.over)}
    leader = group.leader
    return Standing(
        recorded=tuple(pod for _, pod in sorted(recorded.items())),
        whole=0 in alive and len(alive) >= group.size - spare,
        ending=leader is not None and 0 in recorded and _finishes(leader) and len(alive) >= group.size - 1 - spare,
        restarting=group.complete and all(pod.uid[:UID] == uid_of(record, rank) for rank, pod in group.pods.items()),
    )


def _finishes(leader: Pod) -> bool:
    return leader.deleting and leader.running and not leader.over


def uid_of(record: GroupRecord, rank: int) -> str:
    """Return the beginning of the UID of the pod that was recorded for a rank."""
    return record.members.get(str(rank), "").partition(".")[0]


def ranks(pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return rank -> pod; of two pods of a rank the newer one, because the older one is gone and the watch has not
    reported that yet.
    """
    out: dict[int, Pod] = {}
    for pod in pods:
        if pod.rank not in out or out[pod.rank].version < pod.version:
            out[pod.rank] = pod
    return out
