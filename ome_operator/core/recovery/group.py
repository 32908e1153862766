"""A group as it is, and how its pods stand to the start that was recorded."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ome_operator.core.observed.objects import Pod
from ome_operator.core.recovery.record import UID, GroupRecord, mark


class Group(NamedTuple):
    """One group of a slice."""

    name: str
    """Of its leader pod."""
    component: str
    revision: str
    number: int
    size: int
    title: str
    """What people call it: "prefill group 0"."""
    pods: Mapping[int, Pod]
    """Rank -> pod, those that are being deleted included."""
    drifted: frozenset[str] = frozenset()
    """UIDs of pods that were made from a template that is not the slice's."""
    settled: bool = True
    """False while a template is not the slice's: what comes up meanwhile is not recorded."""

    @property
    def leader(self) -> Pod | None:
        """Rank 0."""
        return self.pods.get(0)

    @property
    def complete(self) -> bool:
        """Whether every rank has a pod that is there to stay."""
        return len(self.pods) == self.size and not any(pod.deleting or pod.over for pod in self.pods.values())

    @property
    def bound(self) -> bool:
        """Whether every rank has a pod on a node."""
        return self.complete and all(pod.node for pod in self.pods.values())

    @property
    def held(self) -> bool:
        """Whether the check of a rank keeps its engine from starting, by its mode Require."""
        return any(pod.preflight is not None and pod.preflight.held for pod in self.pods.values())

    @property
    def apart(self) -> bool:
        """Whether a rank is held while the engine of another runs: they can meet only from the beginning."""
        return self.held and any(pod.running for pod in self.pods.values())

    @property
    def ready(self) -> bool:
        """Whether the leader serves, and could be recorded: readiness of other ranks proves nothing."""
        return self.complete and self.pods[0].ready

    def marks(self) -> dict[str, str]:
        """Rank -> start, of all pods that exist."""
        return {str(rank): mark(pod) for rank, pod in sorted(self.pods.items())}


class Standing(NamedTuple):
    """How a group stands to its record."""

    recorded: tuple[Pod, ...]
    """Pods whose start is the recorded one: the only ones that may ever be deleted."""
    whole: bool
    """Every rank runs since the recorded start, but for those that the engine survives losing."""
    ending: bool
    """The leader was told to end by somebody else: it finishes what it has, and all its ranks still work for it."""
    restarting: bool
    """Every pod is the recorded one; main containers were started again, or are about to be."""


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
    """The beginning of the UID of the pod that was recorded for a rank."""
    return record.members.get(str(rank), "").partition(".")[0]


def ranks(pods: Iterable[Pod]) -> dict[int, Pod]:
    """Rank -> pod; of two pods of one rank the newer one (the older one is gone, and the watch has not told yet)."""
    out: dict[int, Pod] = {}
    for pod in pods:
        if pod.rank not in out or out[pod.rank].version < pod.version:
            out[pod.rank] = pod
    return out
