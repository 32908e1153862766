"""Which key is due when: a level-triggered schedule, as a plain data structure that is told the time.

A key is dirty at most once, however many events name it, and the earliest wish wins. A key that is being worked on is
not handed out again before it is done: whatever happens meanwhile becomes one more run afterwards.

Keys have groups (the namespaces of tenants), which take turns: a group with thousands of keys that are due keeps another
group waiting for a run, and not for thousands.

Runs that are expected to be long (make everything) go behind the others of their group (tell what changed), and only so many
at once: with a hundred new keys, what is ready would otherwise be told only after the last of them was made.

Keys that an edit made dirty which others share can wait (`machinery/backlog.py`): they take turns with the rest, only
so many at once, and while the rest has work they get a share of the time.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from ome_operator.machinery.backlog import Backlog, Share

K = TypeVar("K", bound=Hashable)
Entries = deque[tuple[float, K]]
"""Due times and keys, those that are due longest first."""
FEW = 100
"""Entries that are not worth tidying."""
ALONE = 1.0
"""Seconds after its last run for which the rest counts as having work: what it waits for may come any moment."""


class Shared(NamedTuple):
    """What keys get that can wait."""

    share: float = 1.0
    """Of the time, while the rest has work."""
    runs: float = math.inf
    """At once."""


EVERYTHING = Shared()


class Schedule(Generic[K]):
    """Keys with due times; no clock, no tasks. At most `long_runs` keys are busy that `is_long` was true of."""

    def __init__(
        self,
        is_long: Callable[[K], bool] = lambda _: False,
        long_runs: float = math.inf,
        group: Callable[[K], Hashable] = lambda _: None,
        shared: Shared = EVERYTHING,
    ) -> None:
        self._is_long, self._long_runs, self._group = is_long, long_runs, group
        self._due: dict[K, float] = {}
        self._later: list[tuple[float, int, K]] = []
        self._short: dict[Hashable, Entries[K]] = {}
        self._long: dict[Hashable, Entries[K]] = {}
        self._turns: dict[Hashable, None] = {}
        """Groups that may have a key for now, the next first."""
        self._blocked: dict[Hashable, None] = {}
        """Groups that have long runs alone, while there are enough of these."""
        self._order = count()
        self._busy: set[K] = set()
        self._busy_long: set[K] = set()
        self._started: dict[K, float] = {}
        self._backlog, self._share, self._shared_runs = Backlog(group), Share(shared.share), shared.runs
        self._busy_shared: set[K] = set()
        self._last_was_shared = False
        self._rest_at = -math.inf
        """When the last run began of those that cannot wait."""

    def __len__(self) -> int:
        return len(self._due)

    @property
    def busy(self) -> int:
        """How many keys are being worked on."""
        return len(self._busy)

    def ready(self, now: float) -> int:
        """How many keys wait although they are due."""
        return len({*(key for key, due in self._due.items() if due <= now), *self._backlog})

    def late(self, now: float) -> float:
        """Seconds for which the key that waits longest has been due; keys that are being worked on wait for nothing yet."""
        since = min((due for key, due in self._due.items() if key not in self._busy), default=now)
        waits = self._backlog.oldest()
        return max(0.0, now - (since if waits is None else min(since, waits)))

    def add(self, key: K, now: float, after: float = 0.0, *, spaced: float = 0.0) -> None:
        """The key is dirty, to be worked on after so many seconds, and `spaced` seconds after its last run began."""
        due = now + after
        if spaced and (started := self._started.get(key)) is not None:
            due = max(due, started + spaced)
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        if key not in self._busy:
            self._push(key, due)

    def add_shared(self, key: K, now: float) -> None:
        """The key is dirty, and can wait."""
        self._backlog.add(key, now)

    def pop(self, now: float) -> K | None:
        """The next key, busy until `done`. Keys that can wait and all others take turns."""
        self._ripen(now)
        key = None if self._last_was_shared else self._take_shared(now)
        if key is None:
            self._last_was_shared = False
            key = self._take_turn(now)
        return self._take_shared(now) if key is None else key

    def spent(self, now: float, seconds: float) -> None:
        """The key that was handed out last has kept the loop for so long."""
        if self._last_was_shared:
            self._share.spent(now, seconds, alone=len(self._busy) == len(self._busy_shared) and now - self._rest_at > ALONE)

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
        """Whether a key that can wait may run now."""
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
        """The key of the next group that is due longest, of the short runs or else of the long ones."""
        while self._turns:
            group = next(iter(self._turns))
            del self._turns[group]
            if (key := self._take(group)) is None:
                continue
            self._turns[group] = None  # behind the others
            self._backlog.discard(key)
            self._rest_at = now
            return self._begin(key, now)
        return None

    def next_due(self) -> float | None:
        """When `pop` may give something; None: not before another `add` or `done`."""
        while self._later and not self._stands(self._later[0][0], self._later[0][2]):
            heapq.heappop(self._later)
        heads = [self._head(self._short, group) or self._head(self._long, group) for group in self._turns]
        found = [head[0] for head in heads if head is not None]
        if self._backlog.next(self._fits) is not None:
            found.append(self._share.again)
        return min((*found, self._later[0][0]) if self._later else found, default=None)

    def done(self, key: K) -> None:
        """The run is over; wishes that came meanwhile count now."""
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
        """Nothing is known of the key any more; a run in progress ends as usual."""
        self._due.pop(key, None)
        self._backlog.discard(key)
        self._started.pop(key, None)

    def _push(self, key: K, due: float) -> None:
        if len(self._later) > 2 * len(self._due) + FEW:  # each run leaves a wish that the next edit overtakes
            self._later = [entry for entry in self._later if self._stands(entry[0], entry[2])]
            heapq.heapify(self._later)
        heapq.heappush(self._later, (due, next(self._order), key))

    def _stands(self, due: float, key: K) -> bool:
        """Whether no other wish for the key has overtaken this."""
        return key not in self._busy and self._due.get(key) == due

    def _ripen(self, now: float) -> None:
        """What is due from now on waits in its group."""
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
        """The next key of a group, which is not among the turns now."""
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
        """The first entry that no other wish has overtaken."""
        entries = kept.get(group)
        while entries:
            if self._stands(*entries[0]):
                return entries[0]
            entries.popleft()
        kept.pop(group, None)
        return None
