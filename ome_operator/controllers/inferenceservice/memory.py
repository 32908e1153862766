"""Facts about a service that one reconciliation learns and later reconciliations need. A restart loses them, which costs
only a few requests.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.cache.resources import SERVICE, Resource
from ome_operator.controllers.status_writer import Written
from ome_operator.core.observed.objects import Child, Pod, Ref, Refusal
from ome_operator.core.reasons import ROLLED_OUT, Reason, ReasonedMessage

Key = tuple[str, str]
"""Kind and name of an object in the service's namespace."""

SOON, STEP, LONGEST = 1.0, 5.0, 300.0
"""Seconds until a failed action is attempted again. The pause is `STEP` after each of the first `PATIENCE` attempts, and
then doubles with each attempt, up to `LONGEST`. After fewer than `PATIENCE` conflicts or server errors, the pause is
only `SOON`, and the error is not reported, because most of these errors disappear at once."""
CAPACITY_KEPT, CAPACITY_KEPT_LONGEST = 10.0, 60.0
"""Seconds for which the result of a capacity check is valid, and the upper limit of this time. While capacity is missing,
each check doubles the time up to the limit."""
PASS_KEPT = 300.0
"""Seconds after which a passed dry run is repeated, while the service waits for other services or for nodes."""
PATIENCE = 4
"""Number of attempts before the pause grows. The number is large enough for an API server that has just started: it
answers 403 to all requests for some seconds, until its authorizer has loaded."""


class RefusedWrite(NamedTuple):
    """A write or a deletion that the API server refused."""

    refusal: Refusal
    hash: str
    """Digest of the refused content. A write with other content is attempted immediately."""
    tries: int
    next: float
    """Monotonic time of the next attempt."""

    @property
    def reported(self) -> Refusal | None:
        """The refusal for the status; None if the refusal may disappear with the next attempt."""
        return None if _brief(self.refusal.reason, self.tries) else self.refusal


class DryRun(NamedTuple):
    """The result of a dry run of a revision's workloads and pods."""

    hash: str
    why: str
    """The message with which the API server refused the workloads; "" if it accepted them."""
    tries: int
    next: float
    """Monotonic time after which refused workloads are checked again."""
    unanswered: str = ""
    """The error of the last attempt to repeat the dry run of refused workloads, if that attempt gave no result; ""
    otherwise."""
    remark: str = ""
    """Why the result does not cover every pod; "" if every pod is covered."""
    at: float = 0.0
    """Monotonic time of the result."""

    @property
    def message(self) -> str:
        """The text for the status. A stored refusal is valid until there is another result."""
        return f"{self.why} (a repeated dry run gave no result: {self.unanswered})" if self.unanswered else self.why


class UnansweredDryRun(NamedTuple):
    """Consecutive attempts to check the pods of a revision by a dry run, none of which gave a result."""

    since: float
    """Monotonic time of the first attempt."""
    last: float
    """Monotonic time of the last attempt."""
    error: str


class CapacityAnswer(NamedTuple):
    """The result of a capacity check."""

    why: str
    """The reason why capacity is missing; "" if capacity suffices."""
    tries: int
    until: float
    """Monotonic time until which the result is valid."""


class StartingPods(NamedTuple):
    """The pods of a service that are bound to nodes but have no started container, and the reason."""

    pods: frozenset[str] = frozenset()
    """UIDs of the pods."""
    tries: int = 0
    """Number of times that the Events about the pods were read."""
    at: float = 0.0
    """Monotonic time when the Events about the pods may be read again."""
    reasons: Mapping[str, ReasonedMessage] = {}
    """Maps the UID of a pod to the reason why the pod does not start."""


def retry_delay(tries: int) -> float:
    """Return the seconds before the next attempt, after `tries` failed attempts."""
    return min(LONGEST, STEP * 2.0 ** max(0, min(tries - PATIENCE, 10)))


def _brief(reason: str, tries: int) -> bool:
    """Return whether a failure with the reason `reason` may disappear with the next attempt. `tries` is the number of failed
    attempts.
    """
    return reason in (Reason.CONFLICT, Reason.SERVER_ERROR) and tries < PATIENCE


def _wait(reason: str, tries: int) -> float:
    """Return the seconds before the next attempt at a write that was refused for the reason `reason` (`Refusal.reason`).
    `tries` is the number of failed attempts.
    """
    if _brief(reason, tries):
        return SOON
    return STEP if reason == Reason.WAITING else retry_delay(tries)


def rollout_waited(status: Mapping[str, Any]) -> bool:
    """Return whether a rollout waited for other services or for nodes when the status was written, so that no group had been
    replaced yet.
    """
    reasons = (each.get("reason") for each in status.get("conditions") or () if each.get("type") == ROLLED_OUT)
    return any(reason in (Reason.WAITING_FOR_TURN, Reason.WAITING_FOR_ROOM) for reason in reasons)


@dataclass
class ServiceMemory:
    """Facts about one service, identified by its UID."""

    refused: dict[Key, RefusedWrite] = field(default_factory=dict)
    dry_runs: dict[str, DryRun] = field(default_factory=dict)
    """Maps the key of a check (`Check.revision`) to the result of the dry run."""
    unanswered: dict[str, UnansweredDryRun] = field(default_factory=dict)
    """Maps the key of a check (`Check.revision`) to the attempts to check the pods. None of these attempts has had a
    result."""
    capacity: dict[str, CapacityAnswer] = field(default_factory=dict)
    """Maps the key of a capacity check to its result."""
    second_copy: dict[str, str] = field(default_factory=dict)
    """Maps the key of the last check for a second copy of the service to the reason why the nodes lack the capacity for
    it; "" if they have the capacity."""
    accepted: dict[str, str] = field(default_factory=dict)
    """Maps the UID of an object to the digest of the operator's fields that the API server stored for the last apply.
    Only objects for which this digest differs from the hash annotation are included."""
    warnings: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    missing: dict[Key, float] = field(default_factory=dict)
    """Maps a workload to the monotonic time since which it has had too few pods. The time is reset when the number of
    pods grows."""
    pod_counts: dict[Key, int] = field(default_factory=dict)
    """Maps a workload to the number of its pods when `missing` was set."""
    failures: dict[Key, str] = field(default_factory=dict)
    event_reads: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """Maps a workload to the number of times that its Events were read, and to the monotonic time after which they may be
    read again."""
    starting: StartingPods = field(default_factory=StartingPods)
    coming: str = ""
    """An autoscaler has reported that it creates nodes for pods of the service. If these are the pods of a placement
    attempt, this is the start of the attempt. If a pod replaces a lost rank, this is the time at which the rank was
    lost. Both times are in RFC 3339, as in the status; "" without such a report."""
    secrets: dict[str, float] = field(default_factory=dict)
    """Maps the name of a Secret to the monotonic time after which its creation is attempted again, in case somebody
    deleted it. The attempts are necessary because the operator cannot read Secrets."""
    events: dict[tuple[str, str], float] = field(default_factory=dict)
    """Maps (reason, message) of an Event to the monotonic time when the Event was posted."""
    last_bug: str = ""
    """The last unexpected error of `sync`, whose traceback is logged only once; "" if there was none."""
    status: Written = ("", "")
    """Two digests: of the status that was written last, and of the fields that the server stored for this status."""
    status_at: float = float("-inf")
    """Monotonic time of the last status write."""
    status_turn: float | None = None
    """Monotonic time when a status may be written in which only counts have changed; None if no time is assigned."""
    held_up: bool = False
    """Whether a status that reports Ready has not been written yet, because the service's address or an RBAC right still has
    to be created."""

    def store_refusal(self, key: Key, refusal: Refusal, hash_: str, now: float) -> bool:
        """Store a refusal of a write whose content has the digest `hash_`. Return whether the refusal changes the status."""
        known = self.refused.get(key)
        tries = known.tries + 1 if known and known.hash == hash_ else 1
        self.refused[key] = RefusedWrite(refusal, hash_, tries, now + _wait(refusal.reason, tries))
        return self.refused[key].reported != (known.reported if known else None)

    def refusals(self) -> dict[Key, Refusal]:
        """Return the refusals in the form of `Observed.refusals`."""
        return {key: write.reported for key, write in self.refused.items() if write.reported is not None}

    def valid_checks(self, now: float, *, waits: bool = False) -> dict[str, str]:
        """Return the results of dry runs and capacity checks in the form of `Observed.checks`. Expired results are left out,
        so that the checks are repeated.

        A passed dry run expires only while the service `waits` for other services or for nodes, because such a wait may last
        for days and no pod has been deleted yet. Once pods of the old revision are being deleted, the result stays valid.
        """
        tried = {revision: run.message for revision, run in self.dry_runs.items() if self.is_valid(run, now, waits=waits)}
        return (
            tried | self.second_copy | {asked: answer.why for asked, answer in self.capacity.items() if now < answer.until}
        )

    @staticmethod
    def is_valid(run: DryRun, now: float, *, waits: bool) -> bool:
        """Return whether the result of a dry run is valid. A refusal is valid until `run.next`. A success is valid for
        `PASS_KEPT` seconds while the service `waits`, and otherwise forever.
        """
        return now < run.next if run.why else not waits or now < run.at + PASS_KEPT

    def store_check(self, key: str, run: DryRun) -> None:
        """Store the result of a dry run, and discard the results of all other dry runs. So if a revision becomes the target
        again later, it is checked again.
        """
        self.dry_runs, self.unanswered = {key: run}, {}

    def remarks(self) -> dict[str, str]:
        """Return the remarks about dry runs in the form of `Observed.remarks`."""
        texts = {key: run.remark for key, run in self.dry_runs.items()} | {
            key: each.error for key, each in self.unanswered.items()
        }
        return {key.partition(".")[0]: text for key, text in texts.items() if text}

    def store_capacity(self, key: str, why: str, now: float) -> None:
        """Store the result of a capacity check, and discard older results of other groups or revisions. `why` is the reason
        why capacity is missing; "" if capacity suffices.
        """
        tries = self.capacity[key].tries + 1 if key in self.capacity else 0
        lasts = min(CAPACITY_KEPT * 2.0 ** min(tries, 10), CAPACITY_KEPT_LONGEST) if why else CAPACITY_KEPT
        self.capacity = {key: CapacityAnswer(why, tries, now + lasts)}

    def next_check(self, now: float) -> float | None:
        """Return the seconds until the next stored refusal expires; None if no refusal is stored.

        Every reconciliation calls this method, because the queue stores a single time for the next reconciliation of a
        service: the earliest requested time.
        """
        dates = [run.next for run in self.dry_runs.values() if run.why]
        dates += [answer.until for answer in self.capacity.values() if answer.why]
        return min((date - now for date in dates if date > now), default=None)

    def permit_retry(self, key: Key) -> None:
        """Permit an immediate attempt at a refused write, because an object of the same name has been deleted."""
        if (known := self.refused.get(key)) is not None:
            self.refused[key] = known._replace(next=float("-inf"))

    def count(self, children: Mapping[Key, Child], pods: tuple[Pod, ...], now: float) -> None:
        """Update which workloads lack pods, and discard facts about objects that are gone."""
        have: Counter[Key] = Counter()
        for pod in pods:
            have["StatefulSet", pod.workload] += 1
            have["Deployment", pod.workload.rpartition("-")[0]] += 1  # the workload of a Deployment's pod is its ReplicaSet
        for key, child in children.items():
            if child.kind not in ("StatefulSet", "Deployment"):
                continue
            number = have[key]
            if child.deleting or number >= child.replicas:
                self._forget(key)
            elif key not in self.missing or number > self.pod_counts.get(key, 0):
                self.missing[key], self.pod_counts[key] = now, number
        for key in [key for key in self.missing if key not in children]:
            self._forget(key)
        uids = {child.uid for child in children.values()}
        for uid in [uid for uid in self.accepted if uid not in uids]:
            del self.accepted[uid]

    def _forget(self, key: Key) -> None:
        self.missing.pop(key, None)
        self.pod_counts.pop(key, None)
        self.failures.pop(key, None)
        self.event_reads.pop(key, None)


class Memories:
    """The memory of each service, for as long as the service exists."""

    def __init__(self) -> None:
        self._found: dict[Ref, tuple[str, ServiceMemory]] = {}

    def memory_of(self, resource: Resource) -> ServiceMemory:
        """Return the memory of a service. A new service with the name of a former service starts with an empty memory."""
        uid, memory = self._found.get(resource.ref, ("", ServiceMemory()))
        if uid != resource.uid:
            memory = ServiceMemory()
            self._found[resource.ref] = resource.uid, memory
        return memory

    def forget(self, ref: Ref) -> bool:
        """Discard the memory of a service. Return whether there was one."""
        return self._found.pop(ref, None) is not None

    def child_gone(self, child: Child) -> None:
        """Permit an immediate attempt at a write that was refused because of the existing object `child`, which has been
        deleted.
        """
        _, memory = self._found.get(Ref(SERVICE, child.namespace, child.labels.get(keys.SERVICE) or ""), ("", None))
        if memory is not None:
            memory.permit_retry((child.kind, child.name))
