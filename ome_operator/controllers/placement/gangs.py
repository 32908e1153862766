"""What all services want of the nodes, and what each of them is told about its turn (docs/placement.md).

Kept between passes; after a restart the first pass over each service says it again, from what its status has. Whose turn it
is, is decided for all services at once, and again only when something has changed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.placement.free_capacity import FreeRoom
from ome_operator.core.observed.objects import NO_TURN, Ref, Turn
from ome_operator.core.placement import timing
from ome_operator.core.placement.admission import Claim, Member, Turns, contested, has_room, roomy, turns
from ome_operator.core.placement.fit import Needs, Nodes
from ome_operator.core.placement.messages import awaited, without_room
from ome_operator.core.placement.release import giving_way, waits
from ome_operator.core.reasons import READY
from ome_operator.core.status import conditions as cond

LOOKS = 10
"""So often strangers are read on further nodes (`foreign_pods.MOST` each), until those that were read have room."""
NOTHING = Turns({}, {})


class Gangs:
    """Claims of services; `wake` is called with those whose turn has come since another claim changed."""

    def __init__(self, cluster: ClusterCache, foreign: ForeignPods, wake: Callable[[Ref], None]) -> None:
        self._cluster, self._foreign, self._wake = cluster, foreign, wake
        self._room = FreeRoom(cluster, foreign)
        self._claims: dict[Ref, Claim] = {}
        self._told = 0
        self._granted: dict[Ref, tuple[str, bool]] = {}
        """Since when who got a turn had waited, and what it was told: it may be asked for again, until its status tells."""
        self._stamp: tuple[int, int, int] = (-1, 0, 0)
        self._found = NOTHING
        self._words: dict[Needs, str] = {}
        self._gives, self._decided = dict[str, frozenset[Member]](), 0.0
        """What services give back of what they hold for nobody, and when that was decided."""
        self._read = dict[str, frozenset[Member]]()
        """For which groups that have lost a rank strangers were read."""
        self._going: dict[Ref, Needs] = {}
        """What services were told that there is room for, and have no claim to yet: what serves there is still going."""

    def turn(self, ref: Ref, status: Mapping[str, Any], now: datetime) -> Turn:
        """What a service with this status is told."""
        mine = self._claims.get(ref)
        told = self._turn(ref, status, now)
        if mine is not None:
            self._decide_giving(mine, now)
        return told if mine is None or mine.idle is None else told._replace(gives_way=self._gives.get(mine.key, frozenset()))

    def _turn(self, ref: Ref, status: Mapping[str, Any], now: datetime) -> Turn:
        everybody = self._claims.items()
        rivals = tuple(claim for other, claim in everybody if other != ref and (_asks(claim) or claim.priority_class))
        mine, waited = self._claims.get(ref), _waited(status)
        since, sure = self._granted.get(ref, ("", False))
        if waited and since == waited:
            return Turn(sure, rivals)
        if mine is None:
            return Turn(rivals=rivals) if rivals else NO_TURN
        if mine.trying and (not mine.since or now.timestamp() - mine.since < self._cluster.deps().policy.gang_timeout):
            return Turn(rivals=rivals)
        found = self._turns(now)
        if mine.trying or not waited or mine.key not in found.granted:
            return Turn(None, rivals, self._why(mine))
        self._granted[ref] = waited, found.granted[mine.key]
        return Turn(found.granted[mine.key], rivals)

    def tell(self, ref: Ref, claim: Claim | None, *, moves: bool = False) -> None:
        """What a service wants now. Another claim, or none any more, may be the turn of those that wait. `moves`: whether
        it may still be making room for what it was told that there is room for.
        """
        if claim is not None or not moves:
            self._going.pop(ref, None)
        before = self._claims.pop(ref, None)
        if claim is not None:
            self._claims[ref] = claim
        else:
            self._granted.pop(ref, None)
        if before is not None and (claim is None or claim.idle is None):
            self._read.pop(before.key, None)
        if before != claim:
            self._told += 1
            self.freed(ref)
            if claim is not None and _asks(claim) and not (before is not None and _asks(before)):
                self._make_way(claim)

    def freed(self, but: Ref | None = None) -> None:
        """Something left a node, or wants less: a single service that waits looks again, and finds whose turn it is."""
        for ref, claim in self._claims.items():
            if ref != but and not claim.trying:
                self._wake(ref)
                return

    def _make_way(self, claim: Claim) -> None:
        """Wake those that hold no node, and have pods only to be seen: another asks for nodes that they may go on."""
        nodes, answers = self._cluster.deps().nodes, dict[Needs, bool]()
        for ref, each in self._claims.items():
            if each.trying and not each.serves and not each.since:
                if each.needs not in answers:
                    answers[each.needs] = contested(each.needs, [claim], nodes)
                if answers[each.needs]:
                    self._wake(ref)

    def _decide_giving(self, mine: Claim, now: datetime) -> None:
        """Who gives back what it holds for nobody: for all at once, and not again while what was given back ends. Who has
        waited for long enough since the last decision waits for no tick.
        """
        second, patience = now.timestamp(), self._cluster.deps().policy.gang_timeout
        if mine.idle is None and not waits(mine, second, patience):
            return
        due = not self._gives and not mine.trying and self._decided < mine.since + patience <= second
        if 0 <= second - self._decided < (timing.REDECIDE_AFTER_RELEASE if self._gives else timing.REDECIDE) and not due:
            return
        asked = [self._as_read(claim) for claim in self._claims.values()]
        if not any(claim.idle for claim in asked):
            return
        keys = giving_way(asked, self._room.nodes(), second, patience)
        gives = {ref: claim for ref, claim in self._claims.items() if claim.key in keys}
        self._decided, self._gives = second, {claim.key: claim.idle.goes for claim in gives.values() if claim.idle}
        for ref in gives:
            self._wake(ref)

    def _as_read(self, claim: Claim) -> Claim:
        """Without its question, before what strangers hold on its nodes was read."""
        return claim if claim.idle is None or self._read.get(claim.key) == claim.idle.goes else claim._replace(idle=None)

    async def look(self, claim: Claim) -> None:
        """Read what strangers hold on nodes that seemed to have room for a try that failed, or would have room for a lost
        rank without them: there that is known until the next look.
        """
        if claim.failed:
            await self._foreign.read(roomy(claim.needs, self._room.nodes()))
        elif claim.idle is not None:
            known = self._foreign.known(2 * timing.RECHECK)
            seem = roomy(claim.needs, self._room.without((), strangers=False))
            await self._foreign.read(name for name in seem if name not in known)
        if claim.idle is not None:
            self._read[claim.key] = claim.idle.goes

    async def room(self, ref: Ref, needs: Needs) -> str:
        """What keeps pods of a service from room on nodes, with what its own pods would give up; "" where nothing does. What
        strangers hold is read live, also where it is remembered: they may have gone.
        """
        free = self._room.without([ref], strangers=False)
        if self._has_room(ref, needs, free, strangers=False):
            seem = tuple(roomy(needs, free))
            for _ in range(LOOKS):
                more = await self._foreign.read(seem)
                free = self._room.without([ref], strangers=True)
                sure = {name: node for name, node in free.items() if name in self._foreign.known()}
                if not more or has_room(needs, (), sure):
                    break
            if self._has_room(ref, needs, free, strangers=True):
                self._going[ref] = needs
                return ""
        self._going.pop(ref, None)
        return without_room(needs, self._cluster.deps().nodes, free, partial(self._holders, f"{ref.namespace}/{ref.name}"))

    def _has_room(self, ref: Ref, needs: Needs, free: Nodes, *, strangers: bool) -> bool:
        """Whether pods of a service find room as it is, and beside what others go to, as it will be when these have gone."""
        claims = [claim for other, claim in self._claims.items() if other != ref]
        if not has_room(needs, claims, free):
            return False
        others = {other: wanted for other, wanted in self._going.items() if other != ref}
        if not others:
            return True
        claims += [Claim(other.name, wanted, trying=True, serves=True) for other, wanted in others.items()]
        return has_room(needs, claims, self._room.without([ref, *others], strangers=strangers))

    def _turns(self, now: datetime) -> Turns:
        """Whose turn it is; who has it is woken."""
        if all(claim.trying for claim in self._claims.values()):
            return NOTHING
        free = self._room.nodes()
        stamp = self._told, self._room.version, int(now.timestamp()) // timing.REDECIDE
        if stamp != self._stamp:
            self._stamp, self._words = stamp, {}
            self._found = turns(self._claims.values(), self._cluster.deps().nodes, free, now)
            for ref, claim in self._claims.items():
                if not claim.trying and claim.key in self._found.granted:
                    self._wake(ref)
        return self._found

    def _why(self, claim: Claim) -> str:
        """For what it waits; services that want the same share the answer."""
        nodes, free = self._cluster.deps().nodes, self._room.nodes()
        if claim.trying:
            return awaited(claim.needs, nodes, free, partial(self._holders, claim.key))
        if claim.needs not in self._words:
            self._words[claim.needs] = awaited(claim.needs, nodes, free, partial(self._holders, ""))
        besides = self._found.waits.get(claim.key, "")
        return f"{self._words[claim.needs]}{f'; {besides}' if besides else ''}"

    def _holders(self, mine: str, node: str) -> list[str]:
        """Services with pods on a node, who has most first. `mine`: of whose try this is the end."""
        pods: Counter[tuple[str, str]] = Counter()
        for made, count in self._cluster.occupancy.on(node).items():
            pods[made.namespace, made.service] += count
        return [self._called(space, name, mine) for (space, name), _ in pods.most_common()]

    def _called(self, namespace: str, name: str, mine: str) -> str:
        key = f"{namespace}/{name}"
        if key == mine:
            return "this service, which gives back"
        return f"{key}, which serves" if self._serves(namespace, name) else key

    def _serves(self, namespace: str, name: str) -> bool:
        resource = self._cluster.find(Ref(SERVICE, namespace, name))
        return resource is not None and cond.is_true(READY, resource.status)


def _asks(claim: Claim) -> bool:
    """Whether those that hold no node make way for it."""
    return claim.serves or not claim.trying


def _waited(status: Mapping[str, Any]) -> str:
    """Since when a service waits for its turn, by its status; "" where it does not."""
    stored = status.get("placement") or {}
    return "" if stored.get("trying") else str(stored.get("since") or "")
