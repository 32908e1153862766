"""Simulates a cluster in memory in which some tenants request nodes that they can never use, because quotas deny their pods
or their volumes are never attached. The simulated operator calls the same pure functions as the controllers.
"""

import random
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ome_operator.core.observed.objects import Node, Ref
from ome_operator.core.placement.admission import admit, has_capacity
from ome_operator.core.placement.attempts import Record, SeenGroups, advance, has_rested
from ome_operator.core.placement.book import ClaimBook
from ome_operator.core.placement.claims import Claim, is_contested, is_overdue, may_end_attempt, subtract_held
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.fit import Needs, Nodes, find_unplaced
from ome_operator.core.placement.need import Need
from ome_operator.core.placement.timing import TRY_ON_DEMAND

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT = 60.0
GPU = "nvidia.com/gpu"
STEP = 5
NOTICED = 10.0
"""Seconds after which the operator learns that pods could not be created."""
STARTS = 10.0
"""Seconds from the binding of the last pod until the service serves."""


@dataclass
class Pod:
    """A pod of a gang. `ends` is the time at which a deleted pod is gone."""

    node: str = ""
    ends: float | None = None


@dataclass
class Gang:
    """A service with one group, whose pods are placed together or not at all. Each pod needs a node of its own."""

    team: str
    name: str
    size: int
    comes: float = 0.0
    lives: float = 1e9
    """Seconds for which the service serves before its user deletes it."""
    stuck: int = 0
    """Number of pods that the scheduler never binds, because of a volume."""
    on_demand: bool = False
    """Whether the service has the annotation `ome.io/ignore-fit`, with which attempts last 20 minutes."""
    record: Record | None = None
    pods: list[Pod] = field(default_factory=list)
    refused_since: float | None = None
    placed_at: float | None = None
    gone: bool = False
    fits_since: float | None = None
    half_since: float | None = None
    longest: float = 0.0
    """Longest time in seconds for which the gang waited although it would have fitted on free nodes."""

    def __post_init__(self) -> None:
        self.ref = Ref("InferenceService", self.team, self.name)

    @property
    def bound(self) -> int:
        """Return the number of pods that are on nodes and are not being deleted."""
        return sum(bool(pod.node) and pod.ends is None for pod in self.pods)

    def needs(self, pods: int) -> Needs:
        """Return what this number of the gang's pods requests from nodes: 8 GPUs each."""
        return (Need(("engine",), "engine", Demand(requests=((GPU, 8),)), pods),)

    def served(self, now: float) -> bool:
        """Return whether the service serves, which takes STARTS seconds after its last pod was bound."""
        return self.placed_at is not None and now - self.placed_at >= STARTS

    def seen(self, now: float) -> SeenGroups:
        """Return what a reconciliation observes."""
        whole, served = int(self.bound == self.size), int(self.served(now))
        return SeenGroups({"engine": 1}, {"engine": whole}, {"engine": served}, half=self.bound > 0 and not whole)

    def claim(self, failed: bool, now: datetime) -> Claim | None:
        """Return the claim of the service on nodes. It is None before the first reconciliation of the service, and while
        all of its pods are on nodes. `failed` is whether an attempt to place the pods failed in this reconciliation.
        """
        if self.record is None or self.bound == self.size:
            return None
        record, refused = self.record, self.refused_since
        here = refused is not None and now.timestamp() - START.timestamp() - refused >= NOTICED
        trying = record.trying
        return Claim(
            f"{self.team}/{self.name}", self.needs(self.size), trying, first=_seconds(record.first),
            since=_seconds(record.since), rested=has_rested(record, now), failed=failed,
            missing=self.needs(self.size - self.bound) if trying and self.bound else (),
            refused=here if trying else bool(record.refused),
        )  # fmt: skip


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


class FairnessCluster:
    """A simulated cluster: nodes, gangs of several teams, and a clock. `quotas` maps a team to the number of pods that it
    may have.
    """

    def __init__(self, nodes: int, gangs: list[Gang], quotas: Mapping[str, int], seed: int = 1) -> None:
        self.nodes = {f"n{at}": Node(f"n{at}", 1, {}, True, 8, room=((GPU, 8),)) for at in range(nodes)}
        self.gangs, self.quotas, self.chance, self.second = gangs, quotas, random.Random(seed), 0.0
        self.book = ClaimBook(self.free, lambda: TIMEOUT)
        self._decided: tuple[float, Mapping[str, bool]] = (-1.0, {})

    @property
    def now(self) -> datetime:
        """Return the current time."""
        return START + timedelta(seconds=self.second)

    def alive(self) -> list[Gang]:
        """Return the services that exist."""
        return [gang for gang in self.gangs if gang.comes <= self.second and not gang.gone]

    def free(self, without: Container[Ref] = ()) -> Nodes:
        """Return the nodes with their free capacity, computed as if the pods of these services were gone."""
        held = Counter(pod.node for gang in self.gangs if gang.ref not in without for pod in gang.pods if pod.node)
        return {name: subtract_held(node, {GPU: 8 * held[name]}) for name, node in self.nodes.items()}

    def step(self) -> None:
        """Advance the clock by a few seconds. Reconciliations, bindings and other events of this time happen in random
        order.
        """
        acts = [self._schedule, self._create, *(lambda gang=gang: self._pass(gang) for gang in self.alive())]
        self._waiting = [(ref, claim) for ref, claim in self.book.claims.items() if not claim.trying]
        self.chance.shuffle(acts)
        for act in [*acts, self._create, self._schedule]:
            act()
        self.second += STEP
        self._end()
        self._look()

    def _granted(self) -> Mapping[str, bool]:
        if self._decided[0] != self.second:
            self.book.review(self.now.timestamp())
            claims = self.book.claims.values()
            self._decided = self.second, admit(claims, self.nodes, self.free(), self.now, TIMEOUT).admitted
        return self._decided[1]

    def _pass(self, gang: Gang) -> None:
        """Reconcile the service of a gang."""
        mine, now = self.book.standing_of(gang.ref, self.now.timestamp()), self.now.timestamp()
        waiting = [one for ref, one in self._waiting if ref != gang.ref and one.standing <= mine]
        tries = gang.record is not None and gang.record.trying
        new = gang.record is None and not gang.pods
        rivals = [one for one in waiting if not (new and find_unplaced(one.needs, self.nodes))]
        blocked = (new or (tries and not gang.bound)) and is_contested(gang.needs(gang.size), rivals, self.nodes)
        timeout = TRY_ON_DEMAND if gang.on_demand else TIMEOUT
        mine_now = self.book.claims.get(gang.ref)
        if gang.on_demand and mine_now is not None and is_overdue(mine_now, now, TIMEOUT):
            late = {ref for ref, one in self.book.claims.items() if is_overdue(one, now, TIMEOUT)}
            asked = {one.needs for one in self.book.claims.values() if may_end_attempt(one, mine_now)}
            room = self.free(late) if asked else {}
            timeout = TIMEOUT if any(has_capacity(needs, (), room) for needs in asked) else timeout
        ending = any(pod.ends is not None for pod in gang.pods)
        turn = None if ending or gang.record is None or tries else self._granted().get(f"{gang.team}/{gang.name}")
        decision = advance(gang.record, gang.seen(self.second), turn=turn, contested=blocked, timeout=timeout, now=self.now)
        gang.record = decision.record
        if decision.failed and decision.record is not None:
            gang.record = decision.record._replace(refused="quota" if gang.refused_since is not None else "")
        claim = (
            None if ending and gang.record is not None and not gang.record.trying else gang.claim(decision.failed, self.now)
        )
        self.book.store_claim(gang.ref, claim, now)
        if gang.record is not None and not gang.record.trying:
            for pod in gang.pods:
                pod.ends = pod.ends if pod.ends is not None else self.second + 1

    def _create(self) -> None:
        """Create missing pods, as far as quotas permit."""
        gangs = self.alive()
        self.chance.shuffle(gangs)
        used = Counter(dict.fromkeys(self.quotas, 0))
        for gang in self.gangs:
            used[gang.team] += len(gang.pods)
        for gang in gangs:
            if gang.record is not None and not gang.record.trying:
                gang.refused_since = None
                continue
            if len(gang.pods) == gang.size:
                continue
            lacking = gang.size - sum(pod.ends is None for pod in gang.pods)
            may = max(0, min(lacking, self.quotas.get(gang.team, 10**6) - used[gang.team]))
            gang.pods += [Pod() for _ in range(may)]
            used[gang.team] += may
            if may == lacking:
                gang.refused_since = None
            elif gang.refused_since is None:
                gang.refused_since = self.second

    def _schedule(self) -> None:
        """Bind pending pods to free nodes in any order."""
        taken = {pod.node for gang in self.gangs for pod in gang.pods}
        free = [name for name in self.nodes if name not in taken]
        pending = []
        for gang in self.alive():
            waiting = [pod for pod in gang.pods if not pod.node and pod.ends is None]
            pending += waiting[: max(0, gang.size - gang.stuck - gang.bound)]
        self.chance.shuffle(pending)
        for pod, node in zip(pending, free, strict=False):
            pod.node = node

    def _end(self) -> None:
        for gang in self.gangs:
            gang.pods = [pod for pod in gang.pods if pod.ends is None or pod.ends > self.second]
            if gang.bound == gang.size and gang.placed_at is None:
                gang.placed_at = self.second
            if gang.placed_at is not None and self.second - gang.placed_at >= gang.lives:
                self.delete(gang)

    def delete(self, gang: Gang) -> None:
        """Delete a service as its user."""
        gang.gone, gang.pods = True, []
        self.book.store_claim(gang.ref, None, self.now.timestamp(), gone=True)

    def _look(self) -> None:
        """Record for how long each gang has waited although it would have fitted. Check that no gang stays partly placed for
        too long.
        """
        free = len(self.nodes) - len({pod.node for gang in self.gangs for pod in gang.pods if pod.node})
        used = Counter[str]()
        for gang in self.gangs:
            used[gang.team] += len(gang.pods)
        for gang in self.alive():
            fits = not gang.stuck and gang.placed_at is None and free + gang.bound >= gang.size
            fits = fits and gang.size + used[gang.team] - len(gang.pods) <= self.quotas.get(gang.team, 10**6)
            gang.fits_since = (gang.fits_since if gang.fits_since is not None else self.second) if fits else None
            if gang.fits_since is not None:
                gang.longest = max(gang.longest, self.second - gang.fits_since)
            half = 0 < gang.bound < gang.size and gang.placed_at is None
            gang.half_since = (gang.half_since if gang.half_since is not None else self.second) if half else None
            if gang.half_since is not None and not gang.on_demand:
                assert self.second - gang.half_since <= 1.5 * TIMEOUT, f"{gang.name} holds a partial gang for too long"
