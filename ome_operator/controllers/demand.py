"""Decide the sizes of the services whose autoscaler has the class Demand (docs/demand.md).

A reconciliation describes the service and its targets (`core/reconcile/demand.py`). Every ten seconds, the summaries of the
routers are evaluated, and the pure function of `core/demand/` decides. The next reconciliation writes the decision into the
status. The following reconciliation applies the decision, so that only stored numbers are applied. A new measurement alone
causes no write: the stored state changes with a decision, and otherwise once an hour.
"""

import logging
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.owned import own_routers, stored_roles
from ome_operator.cache.resources import Resource
from ome_operator.controllers.planned_speeds import SpeedPlanner
from ome_operator.core.demand import days as scaling_days
from ome_operator.core.demand.days import DaySums
from ome_operator.core.demand.estimate import PERIOD, bound_below
from ome_operator.core.demand.facts import (
    COMPONENT_OF,
    DECODE,
    GROUPS,
    KEPT,
    PREFILL,
    STALE,
    WINDOW,
    DemandSample,
    PlannedSpeeds,
    ScalingState,
    SizeDecision,
)
from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.learn import with_start
from ome_operator.core.demand.rest import groups_to_apply, removes_all_groups
from ome_operator.core.demand.stored import from_status, to_status
from ome_operator.core.demand.task import APPLY, DemandTask
from ome_operator.core.observed.demand import LeaderQueue, sample
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.telemetry import RouterReport
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.placement.fit import Needs, combine_needs
from ome_operator.core.rollout.applied import stored_groups
from ome_operator.core.rollout.scheduled_zero import is_stored
from ome_operator.machinery.background import PACER, repeat
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

FIRST = 20.0
"""Seconds from the start of the process until the first decision. By then, the operator has read every router once."""
PAUSE = 60.0
"""Minimum seconds between two changes of the stored state in which the sizes stay the same, and only the reason or a
sentence of `SLOW` differs."""
REPEAT = 3600.0
"""Seconds after which the daily sums and the measurements are stored even if nothing was decided."""
UNUSED = 60.0
"""Maximum seconds for which nodes are reserved for groups that a namespace does not create, for example because of a quota.
After that, no nodes are reserved for the namespace until its seconds in `_unused` have decayed below this limit."""
HALF_LIFE = 300.0
"""Half-life, in seconds, of the time for which a namespace did not use its reserved nodes (`_unused`)."""
STATED = (HoldReason.INVALID, HoldReason.FROZEN, HoldReason.UNDONE)
"""Reasons whose sentences contain no measured number, so that they change only if somebody edits something."""
SLOW = (HoldReason.UNMEASURED,)
"""Reasons whose sentences contain no measured number, but may change back and forth with the lengths of requests."""
SILENT = RouterReport(float("-inf"), 0, 0.0, None, None, {})
"""The report of a router that has not answered."""


@dataclass
class _DemandMemory:
    """The state of a service that is kept between two decisions. Times are in seconds since the epoch."""

    state: ScalingState
    days: tuple[DaySums, ...]
    stored_status: dict[str, Any] | None
    """The value of `status.scaling` that reconciliations read."""
    at: float
    """Time at which the value of `stored_status` was created."""
    samples: list[DemandSample] = field(default_factory=list)
    queues: dict[str, LeaderQueue] = field(default_factory=dict)
    learned_starts: set[str] = field(default_factory=set)
    """UIDs of the leaders whose starts have already been added to the measurements."""
    broken: str = ""
    """The unexpected error of the last decision."""
    zero_decided_at: float = float("-inf")
    """Time of the last decision if the schedule needs no groups according to this decision; otherwise minus infinity."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Maps each role to its number of groups at the last decision; {} if that decision reserved no free nodes."""


class DemandScaler:
    """Decides the sizes of services that are scaled with their demand. `reports` returns the fresh reports of the routers
    among the given pods. `fits_now` returns whether pods of a service fit on the nodes now. `changed` is called with a
    service whose decision has changed.
    """

    def __init__(
        self,
        cluster: ClusterCache,
        reports: Callable[[Iterable[Pod]], Mapping[str, RouterReport]],
        fits_now: Callable[[Ref, Needs, datetime], bool],
        changed: Callable[[Ref], None],
        wall: WallClock,
        interval: float,
    ) -> None:
        self._cluster, self._reports, self._fits_now, self._changed, self._wall = cluster, reports, fits_now, changed, wall
        self._heard = interval > 0
        """Whether the operator requests the summaries of routers."""
        self._tasks: dict[Ref, DemandTask] = {}
        self._followed: dict[str, _DemandMemory] = {}
        """Maps the UID of a service to the state that is kept between its decisions."""
        self._begin = wall().timestamp() + FIRST
        self._unused: dict[str, tuple[float, float]] = {}
        """Maps a namespace to (seconds for which it did not use its reserved nodes, time of the last change)."""
        self._counted = set[str]()
        """Namespaces whose unused time has already been counted in this round, for another of their services."""
        self._planner = SpeedPlanner(cluster)

    async def run(self) -> None:
        """Decide periodically, without end. If the operator requests no summaries of routers, the decisions state this."""
        await repeat("the autoscaler of the class Demand", self.decide_all, lambda: PERIOD)

    def report(self, ref: Ref, task: DemandTask | None) -> None:
        """Store the description of a service, or None if the service is not scaled with its demand."""
        if task is None:
            self._tasks.pop(ref, None)
            return
        self._tasks[ref] = task
        service = self._cluster.find_resource(ref)
        followed = self._followed.get(service.uid) if service is not None else None
        if followed is not None and followed.stored_status is not None and "applied" in followed.stored_status:
            numbers = stored_groups({"scaling": followed.stored_status})
            rests = is_stored(followed.stored_status) and task.back is not None
            numbers = {name: 0 if rests and name != keys.ROUTER else number for name, number in numbers.items()}
            followed.stored_status = {**followed.stored_status, "applied": _within(numbers, task)}

    def scaling_status(self, service: Resource) -> dict[str, Any] | None:
        """Return the value of `status.scaling` after the last decision; before the first decision, the stored value."""
        known = self._followed.get(service.uid)
        stored = service.status.get("scaling")
        return known.stored_status if known is not None else stored if isinstance(stored, dict) else None

    def scales_to_zero(self, service: Resource) -> bool:
        """Return whether this process has decided within the last `STALE` seconds that the service should have no groups."""
        known = self._followed.get(service.uid)
        return known is not None and 0 <= self._wall().timestamp() - known.zero_decided_at <= STALE

    async def decide_all(self) -> None:
        """Decide the size of every service once. Services of higher priority come first."""
        present, taken = set[str](), list[Needs]()
        if self._wall().timestamp() < self._begin:
            return
        self._planner.begin_round(self._tasks.keys())
        self._counted.clear()
        for ref, asked in sorted(self._tasks.items(), key=lambda each: (-each[1].priority, each[0])):
            service = self._cluster.find_resource(ref)
            if service is None or service.deleting:
                self._tasks.pop(ref, None)
                continue
            uid = service.uid
            present.add(uid)
            followed = self._followed.get(uid) or self._restored(service, self._wall().timestamp())
            self._followed[uid] = followed
            planned = await self._planner.predict(ref, asked, followed.state.learned.request)
            # While the planner works, routers are read and services change. From here on, nothing is awaited.
            service, task, now = self._cluster.find_resource(ref), self._tasks.get(ref), self._wall()
            if service is None or service.uid != uid or service.deleting or task is None:
                continue
            try:
                self._decide(service, task, followed, taken, now, planned)
                followed.broken = ""
            except Exception as error:  # a failure affects only this service
                if repr(error) != followed.broken:
                    logger.exception("cannot decide the size of %s/%s", ref.namespace, ref.name)
                followed.broken = repr(error)
            await PACER.yield_if_due()
        known = {service.uid for service in self._cluster.services()} if self._followed.keys() - present else present
        self._followed = {uid: each for uid, each in self._followed.items() if uid in known}

    def _restored(self, service: Resource, now: float) -> _DemandMemory:
        """Return the initial state of a service from its status. The time of the next write depends on the service's UID."""
        scaling = service.status.get("scaling")
        stored = scaling if isinstance(scaling, dict) else None
        at = now - zlib.crc32(service.uid.encode()) % REPEAT
        state = from_status(stored) if stored is not None else ScalingState()
        return _DemandMemory(state, scaling_days.from_status((stored or {}).get("days")), stored, at)

    def _decide(
        self,
        service: Resource,
        task: DemandTask,
        followed: _DemandMemory,
        taken: list[Needs],
        now: datetime,
        planned: PlannedSpeeds,
    ) -> None:
        second, before = now.timestamp(), followed.state
        if (followed.stored_status or {}).get("mode") != task.mode:  # begin with the size that the service has
            before = before._replace(wanted=None)
        before = self._with_starts(before, task, followed)
        newest = self._sample(service.ref, task, followed, second)
        asks = FitQuestions(self, service.ref, task, taken, now)
        heard = self._heard
        made, followed.state = follow(followed.samples, task, before, second, asks.granted, heard=heard, planned=planned)
        followed.days = scaling_days.add_to_days(followed.days, newest, task.fleet, made, PERIOD)
        followed.zero_decided_at = second if removes_all_groups(task, made) else float("-inf")
        if task.mode == APPLY:
            self._reserve(service.ref.namespace, task, followed, made, asks, second)
        self._store(service.ref, task, followed, made, second)

    def _reserve(
        self, namespace: str, task: DemandTask, followed: _DemandMemory, made: SizeDecision, asks: "FitQuestions", now: float
    ) -> None:
        """Reserve free nodes for the groups that a decision adds, so that later decisions about other services treat these
        nodes as used. Nothing is reserved for a namespace that repeatedly did not create such groups.
        """
        have = {role: task.fleet.role(role).existing_groups for role in GROUPS}
        before, at = self._unused.get(namespace, (0.0, now))
        unused = before * 0.5 ** (max(0.0, now - at) / HALF_LIFE)
        idle = followed.reserved and not any(have[role] > followed.reserved[role] for role in GROUPS)
        if idle and namespace not in self._counted:
            self._counted.add(namespace)
            unused += PERIOD
        if unused:
            self._unused[namespace] = unused, now
        more = {role: max(0, made.groups_of(role) - have[role]) for role in GROUPS}
        followed.reserved = have if any(more.values()) and unused < UNUSED else {}
        if followed.reserved:
            asks.take(more)

    def _sample(self, ref: Ref, task: DemandTask, followed: _DemandMemory, now: float) -> DemandSample:
        routers = [pod for pod in own_routers(self._cluster, ref) if pod.ready]
        known = self._reports(routers)
        reports = [known.get(pod.uid, SILENT) for pod in routers]
        bound = bound_below(task.targets.ttft)
        newest, followed.queues = sample(reports, followed.samples, followed.queues, bound, now)
        kept = [one for one in followed.samples if now - KEPT - WINDOW < one.at < now]
        followed.samples = [*kept, newest]
        return newest

    def _with_starts(self, state: ScalingState, task: DemandTask, followed: _DemandMemory) -> ScalingState:
        """Return `state` with the durations of the starts of groups that became ready since the last call. After a restart
        of the operator nothing is added, because the state contains the starts of existing groups already.
        """
        new = sorted((one for one in task.starts if one.leader not in followed.learned_starts), key=lambda one: one.ready)
        again = not followed.learned_starts and bool(state.learned.starts)
        followed.learned_starts = {one.leader for one in task.starts}
        for one in () if again else new:
            state = state._replace(learned=with_start(state.learned, one.seconds))
        return state

    def _store(self, ref: Ref, task: DemandTask, followed: _DemandMemory, made: SizeDecision, now: float) -> None:
        """Let the next reconciliation write the decision `made` if it is new, or if the stored decision is old."""
        before, after = followed.stored_status or {}, _status(task, followed, made)
        moved = any(before.get(name) != after.get(name) for name in ("mode", "wanted", "applied"))
        differs = before.get("why") != after.get("why")
        stated = differs and made.hold in STATED
        other = (differs and made.hold in SLOW) or _reasons(before) != _reasons(after)
        held = other and not 0 <= now - followed.at < PAUSE
        if moved or stated or held or not 0 <= now - followed.at < REPEAT:
            followed.stored_status, followed.at = after, now
            self._changed(ref)
        elif followed.zero_decided_at == now:  # the groups that should be removed still exist
            self._changed(ref)

    def fits(self, ref: Ref, task: DemandTask, more: Mapping[str, int], taken: list[Needs], now: datetime) -> Needs | None:
        """Return the needs of the groups `more` if they fit beside `taken`, the needs of other services; otherwise None."""
        roles = stored_roles(self._cluster, ref, task.revision)
        groups = dict.fromkeys(roles, 0) | {COMPONENT_OF[role]: more[role] for role in GROUPS if COMPONENT_OF[role] in roles}
        asked = revision_needs(roles, groups, ref.namespace, True)
        return asked if self._fits_now(ref, combine_needs(*taken, asked), now) else None


def _reasons(scaling: Mapping[str, Any]) -> list[Any]:
    """Return, from `status.scaling`, the reason of a decision, the sources of its speeds and the measured configurations."""
    learned = scaling.get("learned")
    found = learned.get("configurations") if isinstance(learned, dict) else None
    return [found, *(scaling.get(name) for name in ("hold", "atMaximum", "speeds"))]


def _within(applied: Mapping[str, int], task: DemandTask) -> dict[str, int]:
    """Return the applied numbers, limited to the present bounds, because a change of the bounds applies at once. A number
    that somebody has set by hand is thereby kept even if `ome scale --resume` is run before the next decision.
    """
    role_of = {component: role for role, component in task.roles.items()}
    bounds = task.targets.bounds
    return {
        name: bounds[role].clamp(number) if (role := role_of.get(name, "")) in bounds else number
        for name, number in applied.items()
    }


class FitQuestions:
    """Answers questions about free nodes. `taken` are the needs of the services decided earlier in this round."""

    def __init__(self, scaler: DemandScaler, ref: Ref, task: DemandTask, taken: list[Needs], now: datetime) -> None:
        self._fits: Callable[[Mapping[str, int]], Needs | None] = lambda more: scaler.fits(ref, task, more, taken, now)
        self._taken = taken

    def granted(self, more: Mapping[str, int]) -> Mapping[str, int]:
        """Return how many of the groups `more` fit on the nodes now. Groups of both roles are added alternately."""
        if self._fits(more) is not None:
            return more
        both = min(more[PREFILL], more[DECODE])
        longer = PREFILL if more[PREFILL] > more[DECODE] else DECODE
        order = [*(PREFILL, DECODE) * both, *[longer] * (max(more.values()) - both)]
        fitting = self._most(len(order), lambda count: Counter(order[:count]))
        found = {role: order[:fitting].count(role) for role in GROUPS}
        # The role whose turn is next does not fit any more; the other one may.
        role = DECODE if fitting < len(order) and order[fitting] == PREFILL else PREFILL
        return {
            **found,
            role: found[role] + self._most(more[role] - found[role], lambda count: {**found, role: found[role] + count}),
        }

    def _most(self, most: int, groups: Callable[[int], Mapping[str, int]]) -> int:
        """Return the largest count up to `most` for which `groups(count)` fits on the nodes. If a count does not fit, no
        larger count does.
        """
        return bisect_left(range(1, most + 1), True, key=lambda count: self._fits(groups(count)) is None)

    def take(self, more: Mapping[str, int]) -> None:
        """Reserve the capacity of the groups `more`, so that later decisions about other services treat it as used."""
        if (asked := self._fits(more)) is not None:
            self._taken.append(asked)


def _status(task: DemandTask, followed: _DemandMemory, size_decision: SizeDecision) -> dict[str, Any]:
    """Return the value of `status.scaling` for a decision."""
    before = stored_groups({"scaling": followed.stored_status})
    out = {
        "mode": task.mode,
        "hold": str(size_decision.hold),
        "why": size_decision.why,
        "atMaximum": dict(size_decision.at_maximum),
        "speeds": {role: str(basis) for role, basis in size_decision.basis.items()},
        **to_status(followed.state),
        "days": scaling_days.to_status(followed.days),
    }
    if task.mode == APPLY:
        out["applied"] = groups_to_apply(task, size_decision, followed.state, before)
    return {name: value for name, value in out.items() if value not in ("", [], {}, None)}
