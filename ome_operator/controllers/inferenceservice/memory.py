"""What passes over one service learn and later passes need. Lost at a restart, which costs a few requests, never harm."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ome_operator import keys
from ome_operator.cache.resources import SERVICE, Resource
from ome_operator.controllers.status_writer import Written
from ome_operator.core.observed.objects import Child, Pod, Ref, Refusal
from ome_operator.core.reasons import Reason, Why

Key = tuple[str, str]
"""Kind and name of an object in the service's namespace."""

SOON, STEP, LONGEST = 1.0, 5.0, 300.0
"""Seconds until something that failed is tried or looked at again: doubling from `STEP` on after `PATIENCE` tries.
What met a conflict or a failing server is tried again sooner, and not told, until then: mostly it is over at once."""
ROOM, ROOM_LONGEST = 10.0, 60.0
"""Seconds for which an answer about the room on nodes counts: where there is none, twice as long each time it is asked."""
PATIENCE = 4
"""An API server that has just started says 403 to everybody, for seconds, until its authorizer has caught up."""


class RefusedWrite(NamedTuple):
    """A write or a deletion that the API server refused."""

    refusal: Refusal
    hash: str
    """Digest of what was refused; anything else is tried at once."""
    tries: int
    next: float
    """Monotonic time of the next attempt."""

    @property
    def reported(self) -> Refusal | None:
        """What the status says of it."""
        return None if _brief(self.refusal.reason, self.tries) else self.refusal


class DryRun(NamedTuple):
    """The answer to a dry run."""

    hash: str
    why: str
    """"" = passed."""
    tries: int
    next: float
    """Monotonic time after which a refusal is asked about again."""
    unanswered: str = ""
    """What kept the server from an answer when it was asked again."""

    @property
    def said(self) -> str:
        """What is known: a refusal stands until there is another answer."""
        return f"{self.why} (asked again, without an answer: {self.unanswered})" if self.unanswered else self.why


class RoomAnswer(NamedTuple):
    """What was found of the room on nodes."""

    why: str
    """Why it does not suffice; "" = it does."""
    tries: int
    until: float
    """Monotonic time after which it counts no more."""


class Starting(NamedTuple):
    """Pods that wait on their nodes, no container of which has run."""

    pods: frozenset[str] = frozenset()
    """UIDs."""
    tries: int = 0
    """How often the events about them were read."""
    at: float = 0.0
    """Monotonic time when they may be read next."""
    told: Mapping[str, Why] = {}
    """UID -> what keeps a pod from starting."""


def pause(tries: int) -> float:
    """Seconds before the next attempt after so many."""
    return min(LONGEST, STEP * 2.0 ** max(0, min(tries - PATIENCE, 10)))


def _brief(reason: str, tries: int) -> bool:
    """Whether it may be over at the next attempt."""
    return reason in (Reason.CONFLICT, Reason.SERVER_ERROR) and tries < PATIENCE


def _wait(reason: str, tries: int) -> float:
    """Seconds before the next attempt at what was refused for this reason."""
    if _brief(reason, tries):
        return SOON
    return STEP if reason == Reason.WAITING else pause(tries)


@dataclass
class ServiceMemory:
    """About one service (by UID)."""

    refused: dict[Key, RefusedWrite] = field(default_factory=dict)
    checked: dict[str, DryRun] = field(default_factory=dict)
    """By revision."""
    rooms: dict[str, RoomAnswer] = field(default_factory=dict)
    """By what was asked."""
    accepted: dict[str, str] = field(default_factory=dict)
    """UID -> digest of what we owned right after our apply, where that is not the hash."""
    warnings: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    missing: dict[Key, float] = field(default_factory=dict)
    """Workload -> since when (monotonic) it has fewer pods than it wants, without getting more."""
    counts: dict[Key, int] = field(default_factory=dict)
    """Workload -> pods that it had then."""
    failures: dict[Key, str] = field(default_factory=dict)
    looks: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """Workload -> how often its events were read, and when (monotonic) they may be read again."""
    starting: Starting = field(default_factory=Starting)
    coming: str = ""
    """Since when the try lasts of which an autoscaler said that it makes nodes for its pods, as the status has it."""
    secrets: dict[str, float] = field(default_factory=dict)
    """Name -> monotonic time after which it is made again, should it be gone by then: it cannot be looked up."""
    events: dict[tuple[str, str], float] = field(default_factory=dict)
    """(reason, message) -> monotonic time when it was told."""
    bug: str = ""
    """What `sync` raised last: its traceback is logged once."""
    status: Written = ("", "")
    """Digest of the status that we wrote last, and of what the server made of it."""
    status_at: float = float("-inf")
    """Monotonic time of that write."""
    status_turn: float | None = None
    """Monotonic time at which new counts may be written; None before there are any."""
    held_up: bool = False
    """Whether it would be Ready but for an address or a right that is still to be made."""

    def refuse(self, key: Key, refusal: Refusal, hash_: str, now: float) -> bool:
        """Remember a refusal; whether it is news for the status."""
        known = self.refused.get(key)
        tries = known.tries + 1 if known and known.hash == hash_ else 1
        self.refused[key] = RefusedWrite(refusal, hash_, tries, now + _wait(refusal.reason, tries))
        return self.refused[key].reported != (known.reported if known else None)

    def refusals(self) -> dict[Key, Refusal]:
        """For `Observed`."""
        return {key: one.reported for key, one in self.refused.items() if one.reported is not None}

    def checks(self, now: float) -> dict[str, str]:
        """For `Observed`: a refusal is forgotten after a while, so that it is asked about again; of nodes any answer."""
        tried = {revision: run.said for revision, run in self.checked.items() if not run.why or now < run.next}
        return tried | {asked: answer.why for asked, answer in self.rooms.items() if now < answer.until}

    def found_room(self, key: str, why: str, now: float) -> None:
        """Remember an answer, and no older one of other groups or revisions."""
        tries = self.rooms[key].tries + 1 if key in self.rooms else 0
        lasts = min(ROOM * 2.0 ** min(tries, 10), ROOM_LONGEST) if why else ROOM
        self.rooms = {key: RoomAnswer(why, tries, now + lasts)}

    def asks_again(self, now: float) -> float | None:
        """Seconds until a refusal is forgotten. Every pass looks: the queue keeps the earliest date of a service alone."""
        dates = [run.next for run in self.checked.values() if run.why]
        dates += [answer.until for answer in self.rooms.values() if answer.why]
        return min((date - now for date in dates if date > now), default=None)

    def free(self, key: Key) -> None:
        """An object of this name vanished: whatever was refused may be tried at once."""
        if (known := self.refused.get(key)) is not None:
            self.refused[key] = known._replace(next=float("-inf"))

    def count(self, children: Mapping[Key, Child], pods: tuple[Pod, ...], now: float) -> None:
        """Note which workloads miss pods, and forget what is about objects that are gone."""
        have: Counter[Key] = Counter()
        for pod in pods:
            have["StatefulSet", pod.workload] += 1
            have["Deployment", pod.workload.rpartition("-")[0]] += 1  # its pods belong to its ReplicaSet
        for key, child in children.items():
            if child.kind not in ("StatefulSet", "Deployment"):
                continue
            number = have[key]
            if child.deleting or number >= child.replicas:
                self._forget(key)
            elif key not in self.missing or number > self.counts.get(key, 0):
                self.missing[key], self.counts[key] = now, number
        for key in [key for key in self.missing if key not in children]:
            self._forget(key)
        uids = {child.uid for child in children.values()}
        for uid in [uid for uid in self.accepted if uid not in uids]:
            del self.accepted[uid]

    def _forget(self, key: Key) -> None:
        self.missing.pop(key, None)
        self.counts.pop(key, None)
        self.failures.pop(key, None)
        self.looks.pop(key, None)


class Memories:
    """The memory of each service, for as long as the service exists."""

    def __init__(self) -> None:
        self._found: dict[Ref, tuple[str, ServiceMemory]] = {}

    def of(self, resource: Resource) -> ServiceMemory:
        """Return the memory of a service. A new service of a former one's name starts with an empty memory."""
        uid, memory = self._found.get(resource.ref, ("", ServiceMemory()))
        if uid != resource.uid:
            memory = ServiceMemory()
            self._found[resource.ref] = resource.uid, memory
        return memory

    def forget(self, ref: Ref) -> bool:
        """Forget a service. Return whether there was a memory of it."""
        return self._found.pop(ref, None) is not None

    def child_gone(self, child: Child) -> None:
        """Let what was refused for the name of a child be tried at once, because the child has vanished."""
        _, memory = self._found.get(Ref(SERVICE, child.namespace, child.labels.get(keys.SERVICE) or ""), ("", None))
        if memory is not None:
            memory.free((child.kind, child.name))
