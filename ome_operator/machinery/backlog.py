"""A queue of keys whose reconciliation can wait, and a limit on their share of the event loop's time while there is other
work.

An edit of an object that thousands of keys share makes all these keys dirty at once. Each key is reconciled once. The groups
of keys alternate, and within a group the order is that in which the keys became dirty. A key that becomes dirty again before
its reconciliation keeps its position.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SLICE = 0.005
"""Seconds for which reconciliations of waiting keys may continue before they pause. A pause after each reconciliation
would need a timer, which costs as much as the reconciliation."""


class TimeShare:
    """A limit on the share of time that some work may take while there is other work. Without other work, there is no limit.
    The work runs for slices of time, with pauses between them.
    """

    def __init__(self, share: float, piece: float = SLICE) -> None:
        self._rest, self._slice = 1.0 / share - 1.0, piece
        self._spent = 0.0
        self.again = 0.0
        """Time from which the work may continue."""

    def record_run(self, now: float, seconds: float, *, alone: bool) -> None:
        """Record that a run took `seconds`. `alone` is true if there is no other work."""
        self._spent = 0.0 if alone else self._spent + seconds
        if self._spent >= self._slice:
            self.again = now + self._spent * self._rest
            self._spent = 0.0


class Backlog(Generic[K]):
    """The dirty keys of each group, in the order in which they became dirty. The keys are stored in an OrderedDict, which
    finds its first key in constant time; a plain dict would first skip all deleted entries.
    """

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        """Maps a group to a map from keys to the time since which the key is dirty. The next group, and the next key of
        each group, come first."""

    def __iter__(self) -> Iterator[K]:
        return (key for keys in self._groups.values() for key in keys)

    def add(self, key: K, now: float) -> None:
        """Add a dirty key. A key that is already present keeps its position."""
        group = self._group(key)
        if (keys := self._groups.get(group)) is None:
            keys = self._groups[group] = OrderedDict()
        keys.setdefault(key, now)

    def discard(self, key: K) -> None:
        """Remove a key, because it is being reconciled or was deleted. The order of the groups does not change."""
        group = self._group(key)
        if (keys := self._groups.get(group)) is not None and keys.pop(key, None) is not None and not keys:
            del self._groups[group]

    def next(self, fits: Callable[[K], bool]) -> K | None:
        """Return the next key for which `fits` returns true; None if there is no such key. Only the first key of each group
        is checked.
        """
        return next((key for key in map(_first, self._groups.values()) if fits(key)), None)

    def take(self, key: K) -> None:
        """Remove a key that is being reconciled, and move its group behind the other groups."""
        self._groups.move_to_end(self._group(key))
        self.discard(key)

    def oldest(self) -> float | None:
        """Return the time since which the oldest key is dirty; None if there are no keys."""
        return min((keys[_first(keys)] for keys in self._groups.values()), default=None)


def _first(keys: OrderedDict[K, float]) -> K:
    return next(iter(keys))
