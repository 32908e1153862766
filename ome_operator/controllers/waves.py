"""Track which services have adopted an edit of a shared object, and which services may begin next (decisions 30).

The state is kept in memory, used by a single thread, and filled by the reports of reconciliations. The cost of a report does
not depend on the number of services, except for the first report of a new edit, which visits all services.
"""

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ome_operator.core.observed.objects import Epoch, Ref
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.waves import status as waves_status
from ome_operator.core.waves.terms import PATIENCE, CurrentWave, WaveTerms, present_wave, wave_of

Service = Ref


class MemberState(StrEnum):
    """The state of a service in the rollout of an edit of a shared object."""

    WAITING = "waiting"
    ROLLING = "rolling"
    """The service was admitted, or its groups are being replaced."""
    BROKEN = "broken"
    """The service adopted the edit completely, and has lost a group since then."""
    FAILED = "failed"
    WHOLE = "whole"
    EQUAL = "equal"
    """The service runs completely, and the edit of the shared object changes nothing in it."""


class Member(NamedTuple):
    """The state of a service, and the details of that state."""

    kind: MemberState
    since: datetime | None = None
    narrow: bool = False
    lacks: datetime | None = None
    """Time since which the service's pods have waited for something that the edit does not concern (`EditStand.lacks`);
    None if they do not wait."""


class _Object:
    """The services that an edit of a shared object concerns, and their states. Each edit has its own instance."""

    def __init__(self, epoch: Epoch, unseen: Iterable[Service]) -> None:
        self.epoch = epoch
        self.unseen = set(unseen)
        """Services that the edit may concern and that have not reported since the edit."""
        self._whole: list[datetime] = []
        """Times since which the services that the edit has changed have been complete, in ascending order."""
        self._proven: list[datetime] = []
        """Times since which services have been complete, in ascending order. Services that the edit does not change are
        included."""
        self._failed: set[Service] = set()
        self._narrow: set[Service] = set()
        self._rolling: set[Service] = set()
        self._lacking: dict[Service, datetime] = {}
        self._places: dict[Service, Member] = {}
        self._counts: Counter[MemberState] = Counter()
        self._queue: list[tuple[int, Service]] = []
        self._tickets: dict[Service, int] = {}

    @property
    def needs_no_record(self) -> bool:
        """Whether this record can be discarded: no service has a state, and no report of a service is awaited."""
        return not self._places and not self.unseen

    @property
    def total(self) -> int:
        """The number of services to which the percentages of waves refer."""
        return len(self._places) - (0 if self._equals_count else self._counts[MemberState.EQUAL])

    @property
    def _equals_count(self) -> bool:
        """Whether services that the edit does not change are counted as proof that the edit works. They are counted only
        while other services still have to reach the same state.
        """
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
        """Return the state of a service; None if the edit does not concern it."""
        return None if (found := self._places.get(service)) is None else found.kind

    def set_member(self, service: Service, after: Member | None) -> bool:
        """Set the state of a service; None removes the service. Return whether the change may affect the status of the
        shared object.
        """
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
        on_way = place.kind in (MemberState.ROLLING, MemberState.BROKEN)
        (self._rolling.add if comes and on_way else self._rolling.discard)(service)
        self._lacking.pop(service, None)
        if comes and on_way and place.lacks is not None:
            self._lacking[service] = place.lacks
        for moments, holds in ((self._whole, place.kind == MemberState.WHOLE), (self._proven, True)):
            if place.since is not None and holds:
                _insert(moments, place.since) if comes else _remove(moments, place.since)

    def count_by_state(self) -> waves_status.StateCounts:
        """Return the number of services in each state."""
        on_way = (self._lacking, self._rolling - self._lacking.keys())
        holding = tuple(itertools.islice(itertools.chain(*(sorted(some) for some in on_way)), waves_status.LISTED))
        waiting = self._counts[MemberState.WAITING]
        return waves_status.StateCounts(len(self._done), self._under_way, waiting, tuple(self._failed), holding)

    def counts(self) -> Mapping[MemberState, int]:
        """Return the number of services by state."""
        return self._counts

    def current_wave(self, terms: WaveTerms, now: datetime) -> CurrentWave | None:
        """Return the current wave of the edit at the time `now` on these terms; None if the edit concerns no service."""
        lacking = sum(now - since >= PATIENCE for since in self._lacking.values())
        return present_wave(terms, self.total, self._done, self._under_way, len(self._failed), now, lacking)

    def seconds_until_recheck(self, now: datetime) -> float | None:
        """Return the seconds until the next service in `_lacking` has lacked something for so long that the wave no longer
        waits for the service; None if there is no such service.
        """
        left = ((since + PATIENCE - now).total_seconds() for since in self._lacking.values())
        return min((seconds for seconds in left if seconds > 0), default=None)

    def position_of(self, service: Service) -> int:
        """Return the position of a service in the order in which all services adopt the edit, from 1."""
        ticket = self._tickets.get(service)
        before = len(self._queue) if ticket is None else bisect.bisect_left(self._queue, (ticket,))
        return self.total - self._counts[MemberState.WAITING] + before + 1

    def ask(self, service: Service, ticket: int | None) -> None:
        """Queue a service behind the services that are queued already. `ticket` is a number that increases with each
        request, and determines the position. If `ticket` is None, remove the service from the queue.
        """
        if ticket is None and (old := self._tickets.pop(service, None)) is not None:
            del self._queue[bisect.bisect_left(self._queue, (old,))]
        elif ticket is not None and service not in self._tickets:
            self._tickets[service] = ticket
            self._queue.append((ticket, service))

    def call(self, most: int) -> Iterator[Service]:
        """Remove up to `most` services from the head of the queue, mark them as admitted, and yield them."""
        for _, service in self._queue[:most]:
            self.ask(service, None)
            self.set_member(service, Member(MemberState.ROLLING, narrow=service in self._narrow))
            yield service


class WaveRegistry:
    """The progressive rollouts of all shared objects.

    `terms` returns the terms on which an object's edits are rolled out. `call` is called with a service that may begin.
    `changed` is called with an object whose status may change.
    """

    def __init__(
        self,
        terms: Callable[[Ref], WaveTerms],
        wall: Callable[[], datetime],
        call: Callable[[Service], None],
        changed: Callable[[Ref], None],
    ) -> None:
        self._terms, self._wall, self._call, self._changed = terms, wall, call, changed
        self._objects: dict[Ref, _Object] = {}
        self._seen: dict[Service, Mapping[Ref, Epoch]] = {}
        """Maps a service to the shared objects in its last report, with their versions."""
        self._unseen: set[Service] = set()
        """Services that existed before this process and have not reported yet."""
        self._tickets = itertools.count()

    def expect(self, services: Iterable[Service]) -> None:
        """Admit no service to any rollout until each of these services has reported its state."""
        self._unseen |= {service for service in services if service not in self._seen}

    def awaited_wave(self, service: Service, pending: Mapping[Ref, Epoch]) -> str:
        """Return a text that names the wave for which a service waits before it rolls out the edits `pending`; "" if the
        service may begin, or if the service has failed and may try again.

        If several objects were edited, the service follows the waves of the first object in `pending`.
        """
        ref, epoch = next(iter(pending.items()))
        shared = self._at(ref, epoch)
        if shared.kind(service) in (MemberState.ROLLING, MemberState.FAILED):
            return ""
        known = shared.kind(service) is not None or service in shared.unseen or service in self._unseen
        total = shared.total + len(shared.unseen) + len(self._unseen) + (not known)
        wave, of = wave_of(self._terms(ref), total, shared.position_of(service))
        where = f" in namespace {ref.namespace}" if ref.namespace else ""
        return (
            f"the service waits for wave {wave} of {of} of {ref.kind} {ref.name}{where}, whose status.rollout shows the "
            "progress"
        )

    def report(self, service: Service, stands: Mapping[Ref, EditStand], *, asks: bool, begun: bool) -> None:
        """Store the state of a service with regard to each shared object that it uses. `asks` is true if the service rolls
        out an edit, or would do so if it were admitted. `begun` is true if the service has begun to replace its groups.
        """
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
        """Remove a service that is gone or no longer reconciled."""
        self.report(service, {}, asks=False, begun=False)
        del self._seen[service]

    def rollout_status(self, ref: Ref, before: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, float | None]:
        """Return `status.rollout` of an object, and the seconds until the status has to be computed again.

        The first value is `before`, the stored value, until all services that the edit concerns have reported.
        """
        shared = self._objects.get(ref)
        if self._unseen or (shared is not None and shared.unseen):
            return before, None
        if shared is None:
            return None, None
        now = self._wall()
        self._settle(ref, now)
        turn = shared.current_wave(self._terms(ref), now)
        if turn is None:
            return None, None
        waits = [wait for wait in (turn.seconds_until_next_wave(now), shared.seconds_until_recheck(now)) if wait is not None]
        return waves_status.status(shared.epoch.generation, turn, shared.count_by_state()), min(waits, default=None)

    def edits(self) -> Mapping[str, int]:
        """Return the number of edits that have not reached all services: `rolling` without a failed service, `stopped` with
        one.
        """
        found = {"rolling": 0, "stopped": 0}
        for counts in (shared.counts() for shared in self._objects.values()):
            if counts.get(MemberState.FAILED):
                found["stopped"] += 1
            elif counts.get(MemberState.WAITING) or counts.get(MemberState.ROLLING):
                found["rolling"] += 1
        return found

    def counts(self) -> Mapping[str, int]:
        """Return the number of services by state, over all edits, without services that the edits do not change."""
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
        """Return the record of the services that this edit of a shared object concerns. If the edit is new, no service has
        reported yet.
        """
        shared = self._objects.get(ref)
        if shared is None or shared.epoch != epoch:
            unseen = (service for service, seen in self._seen.items() if seen.get(ref, epoch) != epoch)
            shared = self._objects[ref] = _Object(epoch, unseen)
        return shared

    def _put(self, ref: Ref, shared: _Object, service: Service, place: Member | None, ticket: int | None = None) -> None:
        news = shared.set_member(service, place)
        shared.ask(service, ticket)
        if service in shared.unseen:
            shared.unseen.discard(service)
            news |= not shared.unseen
        self._settle(ref)
        if shared.needs_no_record:
            del self._objects[ref]
        if news:
            self._changed(ref)

    def _settle(self, ref: Ref, now: datetime | None = None) -> None:
        """Admit as many services as the current wave allows."""
        shared = self._objects[ref]
        if self._unseen or shared.unseen:
            return
        turn = shared.current_wave(self._terms(ref), now or self._wall())
        for service in shared.call(turn.room if turn is not None else 0):
            self._call(service)
            self._changed(ref)


def _insert(moments: list[datetime], moment: datetime) -> None:
    bisect.insort(moments, moment)


def _remove(moments: list[datetime], moment: datetime) -> None:
    del moments[bisect.bisect_left(moments, moment)]


def _place(stand: EditStand, on_its_way: bool) -> Member | None:
    """Return the service's state in the wave; None if the service is not part of it. `on_its_way` is true if the service has
    begun or was admitted.
    """
    if stand.state == EditState.EQUAL:
        return Member(MemberState.EQUAL, stand.since)
    if stand.state == EditState.DONE:
        return Member(MemberState.BROKEN if stand.since is None else MemberState.WHOLE, stand.since)
    if stand.state == EditState.FAILED:
        return Member(MemberState.FAILED, narrow=stand.narrow)
    if stand.state == EditState.PENDING:
        state = MemberState.ROLLING if on_its_way else MemberState.WAITING
        return Member(state, narrow=stand.narrow, lacks=stand.lacks if on_its_way else None)
    return None
