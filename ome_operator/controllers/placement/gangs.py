"""Admission of gangs over all services: collect the claims of services to nodes, and return the decision to each service
(docs/placement.md).

The claims are kept in memory. After a restart the first reconciliation of each service reports the service's claim again,
from its status. The decision is made for all services at once, and is made again only if something has changed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.placement.free_capacity import FreeCapacity
from ome_operator.core.observed.admission import NO_ADMISSION, GangAdmission
from ome_operator.core.observed.objects import Ref
from ome_operator.core.placement import timing
from ome_operator.core.placement.admission import GangAdmissions, admit, has_capacity
from ome_operator.core.placement.book import ClaimBook
from ome_operator.core.placement.claims import (
    Claim,
    Member,
    is_contested,
    is_overdue,
    keeps_promise,
    may_end_attempt,
    nodes_with_room,
)
from ome_operator.core.placement.fit import Needs, Nodes
from ome_operator.core.placement.messages import describe_awaited_nodes, held_by_services, without_capacity
from ome_operator.core.placement.release import giving_way, may_request_release
from ome_operator.core.reasons import READY, Reason
from ome_operator.core.status import conditions as cond

READ_BATCHES = 10
"""Maximum number of batches of nodes (`foreign_pods.MOST` each) that are read for foreign pods to find nodes with
capacity."""
NOTHING = GangAdmissions({}, {})


class Gangs:
    """The claims of all services to nodes. `wake` is called with each service that should be reconciled because the claims,
    the free capacity or the admission decisions have changed.
    """

    def __init__(self, cluster: ClusterCache, foreign: ForeignPods, wake: Callable[[Ref], None]) -> None:
        self._cluster, self._foreign, self._wake = cluster, foreign, wake
        self._capacity = FreeCapacity(cluster, foreign)
        self._book = ClaimBook(self._capacity.nodes, lambda: self._timeout)
        self._changes = 0
        self._granted: dict[Ref, tuple[str, bool]] = {}
        """Maps an admitted service to a pair: the start of its wait, and whether it probably fits. The same decision is
        returned until the status of the service records the admission."""
        self._stamp: tuple[int, int, int] = (-1, 0, 0)
        self._admissions = NOTHING
        self._texts: dict[Needs, str] = {}
        self._held_at, self._held_texts = -1, dict[tuple[str, Needs], str]()
        """`_held_texts` maps a service and the needs of its pods to the other services whose pods occupy nodes that could
        hold these pods; `_held_at` is the version of the free capacity for which this was computed."""
        self._released, self._decided = dict[str, frozenset[Member]](), 0.0
        """Maps a service to a pair: the groups whose nodes it has to release because the groups do not serve, and the
        time of the last decision about this, in seconds since the epoch."""
        self._read = dict[str, frozenset[Member]]()
        """Maps a service to its groups with a lost rank for which the foreign pods on nodes have been read."""
        self._promised: dict[Ref, Needs] = {}
        """Maps a service to the capacity that was promised to it after a capacity check. The service has no claim to this
        capacity yet, because its serving groups are still terminating."""

    @property
    def _claims(self) -> Mapping[Ref, Claim]:
        return self._book.claims

    @property
    def _timeout(self) -> float:
        return self._cluster.deps().policy.gang_timeout

    def admission_of(self, ref: Ref, status: Mapping[str, Any], now: datetime) -> GangAdmission:
        """Return the admission decision for a service with this status. The decision includes the groups whose nodes the
        service has to release.
        """
        mine = self._claims.get(ref)
        turn = self._decide(ref, status, now)
        if mine is not None:
            self._decide_release(mine, now)
        return (
            turn if mine is None or mine.idle is None else turn._replace(gives_way=self._released.get(mine.key, frozenset()))
        )

    def _decide(self, ref: Ref, status: Mapping[str, Any], now: datetime) -> GangAdmission:
        everybody = self._claims.items()
        mine, waited = self._claims.get(ref), _waited(status)
        worst = self._book.standing_of(ref, now.timestamp())
        rivals = tuple(  # most claims of a large cluster fail the first conditions, which cost the least
            claim
            for other, claim in everybody
            if (not claim.trying or claim.serves or claim.priority_class) and other != ref and claim.standing <= worst
        )
        since, sure = self._granted.get(ref, ("", False))
        if waited and since == waited:
            return GangAdmission(sure, rivals)
        if mine is None:
            return GangAdmission(rivals=rivals) if rivals else NO_ADMISSION
        held = self._held_by(ref, mine) if mine.trying else ""
        if mine.trying and (not mine.since or now.timestamp() - mine.since < self._timeout):
            return GangAdmission(rivals=rivals, held=held)
        found = self._decisions(now)
        if mine.trying or not waited or mine.key not in found.admitted:
            pressed = mine.trying and self._pressed(mine, now.timestamp())
            return GangAdmission(None, rivals, self._why(mine), held, pressed=pressed)
        self._granted[ref] = waited, found.admitted[mine.key]
        return GangAdmission(found.admitted[mine.key], rivals)

    def _pressed(self, mine: Claim, now: float) -> bool:
        """Return whether another gang of at least equal precedence is on no node, and would fit if all gangs whose placement
        has exceeded the time limit released their nodes.
        """
        asked = dict.fromkeys(claim.needs for claim in self._claims.values() if may_end_attempt(claim, mine))
        late = [ref for ref, claim in self._claims.items() if is_overdue(claim, now, self._timeout)]
        free = self._capacity.nodes_without(late, foreign=True) if asked else {}
        return any(has_capacity(needs, (), free) for needs in asked)

    def report_claim(self, ref: Ref, claim: Claim | None, now: datetime, *, moves: bool = False, gone: bool = False) -> None:
        """Store `claim`, the present claim of the service `ref`; None if the service has no claim. A change of the claim may
        admit services that wait.

        `moves`: True if the service may still be freeing nodes for the capacity that was promised to it. `gone`: True if the
        service was deleted.
        """
        if claim is not None or not moves:
            self._promised.pop(ref, None)
        before = self._claims.get(ref)
        if claim is None:
            self._granted.pop(ref, None)
        if before is not None and (claim is None or claim.idle is None):
            self._read.pop(before.key, None)
        if self._book.store_claim(ref, claim, now.timestamp(), gone=gone):
            self._changes += 1
            self.wake_next(ref)
            if claim is not None and _asks(claim) and not (before is not None and _asks(before)):
                self._make_way(claim)

    def wake_next(self, but: Ref | None = None) -> None:
        """Wake one waiting service after a pod has left a node, or after a claim became smaller. The reconciliation of
        that service computes which service is admitted. The service `but` is not woken.
        """
        for ref, claim in self._claims.items():
            if ref != but and not claim.trying:
                self._wake(ref)
                return

    def _make_way(self, claim: Claim) -> None:
        """Wake the services that can yield to `claim`. These are services that are trying to start and have no pod on a
        node yet, and whose pods could use nodes that `claim` asks for.
        """
        nodes, answers = self._cluster.deps().nodes, dict[Needs, bool]()
        for ref, each in self._claims.items():
            if each.trying and not each.serves and not each.since:
                if each.needs not in answers:
                    answers[each.needs] = is_contested(each.needs, [claim], nodes)
                if answers[each.needs]:
                    self._wake(ref)

    def _decide_release(self, mine: Claim, now: datetime) -> None:
        """Decide for all services which groups release their nodes because they do not serve. After a release, the
        decision is not repeated while the released pods are terminating.

        At least `timing.REDECIDE` seconds pass between two decisions. If the wait of `mine` has exceeded the gang timeout
        since the last decision, the decision is made at once.
        """
        second, patience = now.timestamp(), self._timeout
        if mine.idle is None and not may_request_release(mine, second, patience):
            return
        due = not self._released and not mine.trying and self._decided < mine.since + patience <= second
        if 0 <= second - self._decided < (timing.REDECIDE_AFTER_RELEASE if self._released else timing.REDECIDE) and not due:
            return
        asked = [self._as_read(claim) for claim in self._claims.values()]
        if not any(claim.idle for claim in asked):
            return
        keys = giving_way(asked, self._capacity.nodes(), second, patience)
        gives = {ref: claim for ref, claim in self._claims.items() if claim.key in keys}
        self._decided, self._released = second, {claim.key: claim.idle.goes for claim in gives.values() if claim.idle}
        for ref in gives:
            self._wake(ref)

    def _as_read(self, claim: Claim) -> Claim:
        """Return the claim. If it has groups with a lost rank, and the foreign pods have not been read for them yet, these
        groups are left out.
        """
        return claim if claim.idle is None or self._read.get(claim.key) == claim.idle.goes else claim._replace(idle=None)

    async def read_foreign_pods(self, claim: Claim) -> None:
        """Read the foreign pods (docs/placement.md) that decide about a claim. After a failed placement attempt, these are
        the pods on nodes that seemed to have capacity. For a lost rank, these are the pods on nodes that would have capacity
        without foreign pods, if the nodes have not been read recently.

        The result is used until the next read.
        """
        if claim.failed:
            await self._foreign.read_nodes(nodes_with_room(claim.needs, self._capacity.nodes()))
        elif claim.idle is not None:
            known = self._foreign.recently_read_nodes(2 * timing.RECHECK)
            seem = nodes_with_room(claim.needs, self._capacity.nodes_without((), foreign=False))
            await self._foreign.read_nodes(name for name in seem if name not in known)
        if claim.idle is not None:
            self._read[claim.key] = claim.idle.goes

    async def check_capacity(self, ref: Ref, needs: Needs, now: datetime) -> str:
        """Return why the pods of a service do not fit on the nodes, counting capacity that the service's own pods would
        free; "" if they fit. If they fit, the capacity is promised to the service.

        Foreign pods are read live even if a recent result is cached, because they may have terminated.
        """
        free, second = self._capacity.nodes_without([ref], foreign=False), now.timestamp()
        if self._has_capacity(ref, needs, free, second, foreign=False):
            seem = tuple(nodes_with_room(needs, free))
            for _ in range(READ_BATCHES):
                more = await self._foreign.read_nodes(seem)
                free = self._capacity.nodes_without([ref], foreign=True)
                sure = {name: node for name, node in free.items() if name in self._foreign.recently_read_nodes()}
                if not more or has_capacity(needs, (), sure):
                    break
            if self._has_capacity(ref, needs, free, second, foreign=True):
                self._promised[ref] = needs
                return ""
        self._promised.pop(ref, None)
        return without_capacity(
            needs, self._cluster.deps().nodes, free, partial(self._holders, f"{ref.namespace}/{ref.name}")
        )

    async def check_second_copy(self, needs: Needs) -> str:
        """Return why the pods `needs`, a second copy of a service, do not fit beside all existing pods of the cluster, the
        service's own included; "" if they fit. Only nodes whose foreign pods have been read are considered (at most 100).
        """
        free = self._capacity.nodes()
        if has_capacity(needs, (), free):
            await self._foreign.read_nodes(tuple(nodes_with_room(needs, free)))
            free, known = self._capacity.nodes(), self._foreign.recently_read_nodes()
            if has_capacity(needs, (), {name: node for name, node in free.items() if name in known}):
                return ""
        return without_capacity(needs, self._cluster.deps().nodes, free, lambda _: ())

    def has_capacity_now(self, ref: Ref, needs: Needs, now: datetime) -> bool:
        """Return whether additional pods of a service fit on the free capacity of the nodes, as far as it is known without a
        request. If no node is known, the pods are assumed to fit.
        """
        free = self._capacity.nodes()
        return not free or self._has_capacity(ref, needs, free, now.timestamp(), foreign=True)

    def _has_capacity(self, ref: Ref, needs: Needs, free: Nodes, now: float, *, foreign: bool) -> bool:
        """Return whether the pods of a service fit now, and also together with the pods of services that were promised
        capacity. If `foreign` is True, the capacity that foreign pods use is not counted as free.
        """
        claims = [
            claim
            for other, claim in self._claims.items()
            if other != ref and claim.trying and keeps_promise(claim, now, self._timeout)
        ]
        if not has_capacity(needs, claims, free):
            return False
        others = {other: wanted for other, wanted in self._promised.items() if other != ref}
        if not others:
            return True
        claims += [Claim(other.name, wanted, trying=True, serves=True) for other, wanted in others.items()]
        return has_capacity(needs, claims, self._capacity.nodes_without([ref, *others], foreign=foreign))

    def _decisions(self, now: datetime) -> GangAdmissions:
        """Return the admission decisions, and wake the services that are admitted."""
        if all(claim.trying for claim in self._claims.values()):
            return NOTHING
        free = self._capacity.nodes()
        stamp = self._changes, self._capacity.version, int(now.timestamp()) // timing.REDECIDE
        if stamp != self._stamp:
            self._stamp, self._texts = stamp, {}
            self._book.review(now.timestamp())
            self._admissions = admit(self._claims.values(), self._cluster.deps().nodes, free, now, self._timeout)
            for ref, claim in self._claims.items():
                if not claim.trying and claim.key in self._admissions.admitted:
                    self._wake(ref)
        return self._admissions

    def _why(self, claim: Claim) -> str:
        """Return what a claim waits for. The text is computed only once for claims with equal needs."""
        nodes, free = self._cluster.deps().nodes, self._capacity.nodes()
        if claim.trying:
            return describe_awaited_nodes(claim.needs, nodes, free, partial(self._holders, claim.key))
        if claim.needs not in self._texts:
            self._texts[claim.needs] = describe_awaited_nodes(claim.needs, nodes, free, partial(self._holders, ""))
        besides = self._admissions.waits.get(claim.key, "")
        return f"{self._texts[claim.needs]}{f'; {besides}' if besides else ''}"

    def _held_by(self, ref: Ref, claim: Claim) -> str:
        """Return which other services hold nodes that the pods of a claim could take, if some of these pods find no node.

        Only the operator's own pods are known without a request, so pods that do not belong to services are left out.
        """
        if all(pod.node or pod.reason != Reason.UNSCHEDULABLE for pod in self._cluster.pods_of(ref.namespace, ref.name)):
            return ""
        nodes, free = self._cluster.deps().nodes, self._capacity.nodes()
        if self._capacity.version != self._held_at:
            self._held_at, self._held_texts = self._capacity.version, {}
        key = claim.key, claim.promise
        if key not in self._held_texts:
            self._held_texts[key] = held_by_services(claim.promise, nodes, free, partial(self._others, claim.key))
        return self._held_texts[key]

    def _others(self, mine: str, node: str) -> list[str]:
        """Return the services with pods on a node, except `mine`."""
        return [name for name in self._holders(mine, node) if name != _MINE]

    def _holders(self, mine: str, node: str) -> list[str]:
        """Return the services with pods on a node, in descending order of the number of pods. `mine` is the service whose
        placement attempt is ending; "" if none is ending.
        """
        pods: Counter[tuple[str, str]] = Counter()
        for made, count in self._cluster.occupancy.pods_on(node).items():
            pods[made.namespace, made.service] += count
        return [self._called(space, name, mine) for (space, name), _ in pods.most_common()]

    def _called(self, namespace: str, name: str, mine: str) -> str:
        key = f"{namespace}/{name}"
        if key == mine:
            return _MINE
        return f"{key}, which is serving" if self._serves(namespace, name) else key

    def _serves(self, namespace: str, name: str) -> bool:
        resource = self._cluster.find_resource(Ref(SERVICE, namespace, name))
        return resource is not None and cond.is_true(READY, resource.status)


_MINE = "this service, which is releasing them"


def _asks(claim: Claim) -> bool:
    """Return whether services whose pods are on no node yet have to yield to the claim `claim`."""
    return claim.serves or not claim.trying


def _waited(status: Mapping[str, Any]) -> str:
    """Return the time since which a service has waited for admission, from its status; "" if it does not wait."""
    stored = status.get("placement") or {}
    return "" if stored.get("trying") else str(stored.get("since") or "")
