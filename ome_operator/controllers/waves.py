"""Which services an edit of a shared object has reached, and whose turn it is (decisions 30).

Serial and in memory: it is filled by what passes over services tell. What a service tells costs the same however many
there are; only the first that is told of an edit looks through all services, once.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Any, NamedTuple

from ome_operator.core.observed.objects import Epoch, Ref
from ome_operator.core.reconcile.plan import EditState, Stand
from ome_operator.core.waves import status as waves_status
from ome_operator.core.waves.terms import CurrentWave, Terms, decide, wave_of

Service = Ref


class MemberState(StrEnum):
    """How a service counts."""

    WAITING = "waiting"
    ROLLING = "rolling"
    """It was called, or is being replaced."""
    BROKEN = "broken"
    """It has lost a group since it was whole."""
    FAILED = "failed"
    WHOLE = "whole"
    EQUAL = "equal"
    """It is whole with the object as it is, and need not do anything for that."""


class Member(NamedTuple):
    """How a service counts, and what goes with it."""

    kind: MemberState
    since: datetime | None = None
    narrow: bool = False


class _Object:
    """The services of a shared object, between two of its edits."""

    def __init__(self, epoch: Epoch, unseen: Iterable[Service]) -> None:
        self.epoch = epoch
        self.unseen = set(unseen)
        """Those that may be concerned and have told nothing since the edit."""
        self._whole: list[datetime] = []
        """Since when those are whole that became so by the edit, sorted."""
        self._proven: list[datetime] = []
        """The same with those that are equal."""
        self._failed: set[Service] = set()
        self._narrow: set[Service] = set()
        self._places: dict[Service, Member] = {}
        self._counts: Counter[MemberState] = Counter()
        self._queue: list[tuple[int, Service]] = []
        self._tickets: dict[Service, int] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody counts."""
        return not self._places and not self.unseen

    @property
    def total(self) -> int:
        """How many there are whose share a wave is."""
        return len(self._places) - (0 if self._equals_count else self._counts[MemberState.EQUAL])

    @property
    def _equals_count(self) -> bool:
        """Whether those that are equal prove something: while others are to become so, in everything that it says."""
        counts = self._counts
        return (
            not self._narrow and counts[MemberState.WAITING] + counts[MemberState.ROLLING] + counts[MemberState.FAILED] > 0
        )

    @property
    def _done(self) -> list[datetime]:
        return self._proven if self._equals_count else self._whole

    @property
    def _under_way(self) -> int:
        return self._counts[MemberState.ROLLING] + self._counts[MemberState.BROKEN]

    def kind(self, service: Service) -> MemberState | None:
        """How a service counts; None where it does not."""
        return None if (found := self._places.get(service)) is None else found.kind

    def put(self, service: Service, after: Member | None) -> bool:
        """A service counts so from now on; whether that is news."""
        before = self._places.pop(service, None)
        if before is not None:
            self._count(service, before, -1)
        if after is not None:
            self._places[service] = after
            self._count(service, after, 1)
        return any(place is not None and place.kind != MemberState.EQUAL for place in (before, after)) and before != after

    def _count(self, service: Service, place: Member, change: int) -> None:
        comes = change > 0
        self._counts[place.kind] += change
        for named, holds in ((self._failed, place.kind == MemberState.FAILED), (self._narrow, place.narrow)):
            if holds:
                (named.add if comes else named.discard)(service)
        for moments, holds in ((self._whole, place.kind == MemberState.WHOLE), (self._proven, True)):
            if place.since is not None and holds:
                _insert(moments, place.since) if comes else _remove(moments, place.since)

    def tally(self) -> waves_status.Tally:
        """How many there are of each kind."""
        return waves_status.Tally(len(self._done), self._under_way, self._counts[MemberState.WAITING], tuple(self._failed))

    def counts(self) -> Mapping[MemberState, int]:
        """How many services count how."""
        return self._counts

    def turn(self, terms: Terms, now: datetime) -> CurrentWave | None:
        """Which wave it is."""
        return decide(terms, self.total, self._done, self._under_way, len(self._failed), now)

    def order(self, service: Service) -> int:
        """Where in the order of all a service comes, from 1."""
        ticket = self._tickets.get(service)
        before = len(self._queue) if ticket is None else bisect.bisect_left(self._queue, (ticket,))
        return self.total - self._counts[MemberState.WAITING] + before + 1

    def ask(self, service: Service, ticket: int | None) -> None:
        """A service wants to be called, behind those that do already; without a ticket it does not any more."""
        if ticket is None and (old := self._tickets.pop(service, None)) is not None:
            del self._queue[bisect.bisect_left(self._queue, (old,))]
        elif ticket is not None and service not in self._tickets:
            self._tickets[service] = ticket
            self._queue.append((ticket, service))

    def call(self, most: int) -> Iterator[Service]:
        """The first of those that want to be called, which do not wait any more."""
        for _, service in self._queue[:most]:
            self.ask(service, None)
            self.put(service, Member(MemberState.ROLLING, narrow=service in self._narrow))
            yield service


class WaveRegistry:
    """Who waits for whom. `terms`: how an object's edits go on. `call`: somebody's turn has come. `changed`: the status of
    an object may tell something else.
    """

    def __init__(
        self,
        terms: Callable[[Ref], Terms],
        wall: Callable[[], datetime],
        call: Callable[[Service], None],
        changed: Callable[[Ref], None],
    ) -> None:
        self._terms, self._wall, self._call, self._changed = terms, wall, call, changed
        self._objects: dict[Ref, _Object] = {}
        self._seen: dict[Service, Mapping[Ref, Epoch]] = {}
        """What each service told of last."""
        self._unseen: set[Service] = set()
        """Services that existed before us and have told nothing yet."""
        self._tickets = count()

    def expect(self, services: Iterable[Service]) -> None:
        """Nobody begins before these have told how they stand."""
        self._unseen |= {service for service in services if service not in self._seen}

    def ahead(self, service: Service, pending: Mapping[Ref, Epoch]) -> str:
        """What a service waits for that is to roll out edits of these objects; "" when it may begin, or has failed and is
        tried again. It follows the waves of the first.
        """
        ref, epoch = next(iter(pending.items()))
        shared = self._at(ref, epoch)
        if shared.kind(service) in (MemberState.ROLLING, MemberState.FAILED):
            return ""
        known = shared.kind(service) is not None or service in shared.unseen or service in self._unseen
        total = shared.total + len(shared.unseen) + len(self._unseen) + (not known)
        wave, of = wave_of(self._terms(ref), total, shared.order(service))
        where = f" in namespace {ref.namespace}" if ref.namespace else ""
        return f"waits for wave {wave} of {of} of {ref.kind} {ref.name}{where}, whose status.rollout says how far it is"

    def tell(self, service: Service, stands: Mapping[Ref, Stand], *, asks: bool, begun: bool) -> None:
        """How a service stands. `asks`: it rolls out an edit, or would if it were its turn; `begun`: it has begun."""
        first = next((ref for ref, stand in stands.items() if stand.state == EditState.PENDING), None)
        called = first is not None and self._kind(service, first, stands[first].epoch) in (
            MemberState.ROLLING,
            MemberState.FAILED,
        )
        left = self._seen.get(service, {}).keys() - stands.keys()
        self._seen[service] = {ref: stand.epoch for ref, stand in stands.items()}
        late = service in self._unseen
        self._unseen.discard(service)
        for ref in left:
            if (shared := self._objects.get(ref)) is not None:
                self._put(ref, shared, service, None)
        for ref, stand in stands.items():
            if stand.state == EditState.IDLE and ref not in self._objects:
                continue
            shared = self._at(ref, stand.epoch)
            place = _place(stand, asks and (begun or called))
            wants = ref == first and asks and place is not None and place.kind == MemberState.WAITING
            self._put(ref, shared, service, place, next(self._tickets) if wants else None)
        if late and not self._unseen:
            for ref in list(self._objects):
                self._settle(ref)

    def forget(self, service: Service) -> None:
        """A service is gone, or nothing is done for it any more."""
        self.tell(service, {}, asks=False, begun=False)
        del self._seen[service]

    def look(self, ref: Ref, before: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, float | None]:
        """`status.rollout` of an object, and seconds until it has to be looked at again. While not all of its services were
        seen it stays as it was `before`.
        """
        shared = self._objects.get(ref)
        if self._unseen or (shared is not None and shared.unseen):
            return before, None
        if shared is None:
            return None, None
        now = self._wall()
        self._settle(ref, now)
        turn = shared.turn(self._terms(ref), now)
        if turn is None:
            return None, None
        return waves_status.status(shared.epoch.generation, turn, shared.tally()), turn.again(now)

    def edits(self) -> Mapping[str, int]:
        """Edits that are not everywhere: on their way, and those with which a service failed."""
        found = {"rolling": 0, "stopped": 0}
        for counts in (shared.counts() for shared in self._objects.values()):
            if counts.get(MemberState.FAILED):
                found["stopped"] += 1
            elif counts.get(MemberState.WAITING) or counts.get(MemberState.ROLLING):
                found["rolling"] += 1
        return found

    def counts(self) -> Mapping[str, int]:
        """Services by how they count, over all edits; without those that need not do anything."""
        found = {str(kind): 0 for kind in MemberState if kind != MemberState.EQUAL}
        for shared in self._objects.values():
            for kind, number in shared.counts().items():
                if kind != MemberState.EQUAL:
                    found[str(kind)] += number
        return found

    def _kind(self, service: Service, ref: Ref, epoch: Epoch) -> MemberState | None:
        shared = self._objects.get(ref)
        return None if shared is None or shared.epoch != epoch else shared.kind(service)

    def _at(self, ref: Ref, epoch: Epoch) -> _Object:
        """The services of an object; they have told nothing yet of an edit that is new."""
        shared = self._objects.get(ref)
        if shared is None or shared.epoch != epoch:
            unseen = (service for service, seen in self._seen.items() if seen.get(ref, epoch) != epoch)
            shared = self._objects[ref] = _Object(epoch, unseen)
        return shared

    def _put(self, ref: Ref, shared: _Object, service: Service, place: Member | None, ticket: int | None = None) -> None:
        news = shared.put(service, place)
        shared.ask(service, ticket)
        if service in shared.unseen:
            shared.unseen.discard(service)
            news |= not shared.unseen
        self._settle(ref)
        if shared.idle:
            del self._objects[ref]
        if news:
            self._changed(ref)

    def _settle(self, ref: Ref, now: datetime | None = None) -> None:
        """Call as many as there is room for."""
        shared = self._objects[ref]
        if self._unseen or shared.unseen:
            return
        turn = shared.turn(self._terms(ref), now or self._wall())
        for service in shared.call(turn.room if turn is not None else 0):
            self._call(service)
            self._changed(ref)


def _insert(moments: list[datetime], moment: datetime) -> None:
    bisect.insort(moments, moment)


def _remove(moments: list[datetime], moment: datetime) -> None:
    del moments[bisect.bisect_left(moments, moment)]


def _place(stand: Stand, on_its_way: bool) -> Member | None:
    """How a service counts that stands so."""
    if stand.state == EditState.EQUAL:
        return Member(MemberState.EQUAL, stand.since)
    if stand.state == EditState.DONE:
        return Member(MemberState.BROKEN if stand.since is None else MemberState.WHOLE, stand.since)
    if stand.state == EditState.FAILED:
        return Member(MemberState.FAILED, narrow=stand.narrow)
    if stand.state == EditState.PENDING:
        return Member(MemberState.ROLLING if on_its_way else MemberState.WAITING, narrow=stand.narrow)
    return None
