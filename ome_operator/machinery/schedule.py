"""Decide which key is reconciled when: a level-triggered schedule, as a plain data structure that receives the time as an
argument.

A key is dirty at most once, however many events refer to it, and the earliest of its due times is used. While a key is being
reconciled, `pop` does not return it: events during the reconciliation cause one more reconciliation afterwards.

Keys belong to groups (the namespaces of tenants), which alternate: a group with thousands of due keys delays another group
by one reconciliation, not by thousands.

Reconciliations that are expected to be long (creating all objects of a service) come after the short reconciliations of
their group (reporting a change), and the number of long reconciliations at the same time is limited. Otherwise, with a
hundred new keys, changes would be reported only after the last key was created.

Keys that became dirty by an edit of a shared object can wait (`machinery/backlog.py`). They alternate with the other keys,
the number of their reconciliations at the same time is limited, and while there is other work they get a limited share of
the time.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from ome_operator.machinery.backlog import Backlog, TimeShare

K = TypeVar("K", bound=Hashable)
Entries = deque[tuple[float, K]]
"""Pairs of due time and key, in the order of the due times."""
OUTDATED_ENTRIES = 100
"""Outdated entries are removed when there are more entries than twice the number of dirty keys plus this number."""
IDLE_S = 1.0
"""Seconds after the last reconciliation of a key that cannot wait, during which other work is assumed to exist. The next
event of such a key may arrive at any time."""


class SharedLimits(NamedTuple):
    """The limits for keys that can wait."""

    share: float = 1.0
    """Share (0 to 1) of the time that these keys get while there is other work."""
    runs: float = math.inf
    """Maximum number of these keys that are reconciled at the same time."""


UNLIMITED = SharedLimits()


class Schedule(Generic[K]):
    """A schedule of keys with due times. It has no clock and no tasks: callers pass the time. At most `long_runs` keys for
    which `is_long` returns true are reconciled at the same time. `group` returns the group of a key, and `shared` contains
    the limits for keys that can wait.
    """

    def __init__(
        self,
        is_long: Callable[[K], bool] = lambda _: False,
        long_runs: float = math.inf,
        group: Callable[[K], Hashable] = lambda _: None,
        shared: SharedLimits = UNLIMITED,
    ) -> None:
        self._is_long, self._long_runs, self._group = is_long, long_runs, group
        self._due: dict[K, float] = {}
        self._later: list[tuple[float, int, K]] = []
        self._short: dict[Hashable, Entries[K]] = {}
        self._long: dict[Hashable, Entries[K]] = {}
        self._turns: dict[Hashable, None] = {}
        """Groups that may have a due key, in the order in which `pop` serves them."""
        self._blocked: dict[Hashable, None] = {}
        """Groups whose due keys all need long reconciliations. These groups wait because the maximum number of long
        reconciliations is running."""
        self._order = count()
        self._busy: set[K] = set()
        self._busy_long: set[K] = set()
        self._started: dict[K, float] = {}
        self._backlog, self._share, self._shared_runs = Backlog(group), TimeShare(shared.share), shared.runs
        self._busy_shared: set[K] = set()
        self._last_was_shared = False
        self._rest_at = -math.inf
        """Time at which the last reconciliation of a key that cannot wait began."""

    def __len__(self) -> int:
        return len(self._due)

    @property
    def busy_count(self) -> int:
        """Number of keys that are being reconciled."""
        return len(self._busy)

    def due_count(self, now: float) -> int:
        """Return the number of keys that are due, including keys that became dirty again while they are being reconciled."""
        return len({*(key for key, due in self._due.items() if due <= now), *self._backlog})

    def longest_wait(self, now: float) -> float:
        """Return the seconds for which the oldest due key has waited. Keys that are being reconciled are ignored."""
        since = min((due for key, due in self._due.items() if key not in self._busy), default=now)
        waits = self._backlog.oldest()
        return max(0.0, now - (since if waits is None else min(since, waits)))

    def add(self, key: K, now: float, after: float = 0.0, *, spaced: float = 0.0) -> float:
        """Mark a key as dirty. The key is due after `after` seconds, but not before `spaced` seconds have passed since its
        last reconciliation began. Return the time from which `pop` may return the key because of this call. Return infinity
        if the call has no such effect, because the key is due no later anyway, or is being reconciled.
        """
        due = now + after
        if spaced and (started := self._started.get(key)) is not None:
            due = max(due, started + spaced)
        if due >= self._due.get(key, math.inf):
            return math.inf
        self._due[key] = due
        if key in self._busy:
            return math.inf
        self._push(key, due)
        return due

    def add_shared(self, key: K, now: float) -> None:
        """Mark a key as dirty because of an edit of a shared object. A key with no other reason to be dirty can wait."""
        self._backlog.add(key, now)

    def pop(self, now: float) -> K | None:
        """Return the next key to reconcile; None if no key is due. The key is busy until `finish` is called. Keys that can
        wait alternate with the other keys.
        """
        self._ripen(now)
        key = None if self._last_was_shared else self._take_shared(now)
        if key is None:
            self._last_was_shared = False
            key = self._take_turn(now)
        return self._take_shared(now) if key is None else key

    def record_run(self, now: float, seconds: float) -> None:
        """Record that the key that `pop` returned last has used the event loop for `seconds` seconds."""
        if self._last_was_shared:
            self._share.record_run(
                now, seconds, alone=len(self._busy) == len(self._busy_shared) and now - self._rest_at > IDLE_S
            )

    def _take_shared(self, now: float) -> K | None:
        if now < self._share.again or (key := self._backlog.next(self._fits)) is None:
            return None
        self._backlog.take(key)
        self._busy_shared.add(key)
        if self._is_long(key):
            self._busy_long.add(key)
        self._last_was_shared = True
        return self._begin(key, now)

    def _fits(self, key: K) -> bool:
        """Return whether a key that can wait may be reconciled at this time."""
        return (
            key not in self._busy
            and len(self._busy_shared) < self._shared_runs
            and (len(self._busy_long) < self._long_runs or not self._is_long(key))
        )

    def _begin(self, key: K, now: float) -> K:
        self._due.pop(key, None)
        self._busy.add(key)
        self._started[key] = now
        return key

    def _take_turn(self, now: float) -> K | None:
        """Return the next key of the first group that has a due key; None if there is none. Short reconciliations come
        before long reconciliations.
        """
        while self._turns:
            group = next(iter(self._turns))
            del self._turns[group]
            if (key := self._take(group)) is None:
                continue
            self._turns[group] = None  # the group comes behind the other groups
            self._backlog.discard(key)
            self._rest_at = now
            return self._begin(key, now)
        return None

    def next_due(self) -> float | None:
        """Return the earliest time at which `pop` may return a key; None if `pop` returns no key before another `add` or
        `finish`.
        """
        while self._later and not self._stands(self._later[0][0], self._later[0][2]):
            heapq.heappop(self._later)
        heads = [self._head(self._short, group) or self._head(self._long, group) for group in self._turns]
        found = [head[0] for head in heads if head is not None]
        if self._backlog.next(self._fits) is not None:
            found.append(self._share.again)
        return min((*found, self._later[0][0]) if self._later else found, default=None)

    def finish(self, key: K) -> None:
        """Record that the reconciliation of a key has ended. A key that became dirty during its reconciliation is scheduled
        again.
        """
        self._busy.discard(key)
        self._busy_shared.discard(key)
        if key in self._busy_long:
            self._busy_long.discard(key)
            if group := list(self._blocked)[:1]:
                del self._blocked[group[0]]
                self._turns = {group[0]: None, **self._turns}
        if key in self._due:
            self._push(key, self._due[key])

    def forget(self, key: K) -> None:
        """Remove a key from the schedule. A reconciliation in progress ends as usual."""
        self._due.pop(key, None)
        self._backlog.discard(key)
        self._started.pop(key, None)

    def _push(self, key: K, due: float) -> None:
        if len(self._later) > 2 * len(self._due) + OUTDATED_ENTRIES:  # each reconciliation can leave an outdated entry
            self._later = [entry for entry in self._later if self._stands(entry[0], entry[2])]
            heapq.heapify(self._later)
        heapq.heappush(self._later, (due, next(self._order), key))

    def _stands(self, due: float, key: K) -> bool:
        """Return whether an entry is still valid: its due time is the current due time of the key, and the key is not
        being reconciled.
        """
        return key not in self._busy and self._due.get(key) == due

    def _ripen(self, now: float) -> None:
        """Move keys that are due to the queues of their groups."""
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if not self._stands(due, key):
                continue
            group, long = self._group(key), self._is_long(key)
            (self._long if long else self._short).setdefault(group, deque()).append((due, key))
            if not long:
                self._blocked.pop(group, None)
            if group not in self._blocked:
                self._turns.setdefault(group)

    def _take(self, group: Hashable) -> K | None:
        """Return the next key of a group; None if the group has no due key, or has to wait until a long reconciliation ends.
        The caller has already removed the group from `_turns`.
        """
        if (head := self._head(self._short, group)) is not None:
            self._short[group].popleft()
            return head[1]
        if (head := self._head(self._long, group)) is None:
            return None
        if len(self._busy_long) >= self._long_runs:
            self._blocked[group] = None
            return None
        self._long[group].popleft()
        self._busy_long.add(head[1])
        return head[1]

    def _head(self, kept: dict[Hashable, Entries[K]], group: Hashable) -> tuple[float, K] | None:
        """Return the first valid entry of a group in the queues `kept`, and remove the invalid entries before it. Return
        None if the group has no valid entry.
        """
        entries = kept.get(group)
        while entries:
            if self._stands(*entries[0]):
                return entries[0]
            entries.popleft()
        kept.pop(group, None)
        return None
