"""Keys that can wait, and the share of the loop's time that they get while others have work.

An edit of an object that thousands of keys share makes all of them dirty at once. Each has its run, of groups in turn and
of a group in the order in which they became dirty; a key that is dirty again before its run keeps its place.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SLICE = 0.005
"""Seconds that such runs may go on for before they rest: a timer for each run would cost as much as the run."""


class Share:
    """At most this part of the time, in slices, while somebody else has work; all of it while nobody has."""

    def __init__(self, share: float, piece: float = SLICE) -> None:
        self._rest, self._slice = 1.0 / share - 1.0, piece
        self._spent = 0.0
        self.again = 0.0
        """When more may be spent."""

    def spent(self, now: float, seconds: float, *, alone: bool) -> None:
        """A run has taken so long."""
        self._spent = 0.0 if alone else self._spent + seconds
        if self._spent >= self._slice:
            self.again = now + self._spent * self._rest
            self._spent = 0.0


class Backlog(Generic[K]):
    """Dirty keys by group. A plain dict would look at all that are gone from its front each time."""

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        """Group -> key -> since when it is dirty; the next group and the next key first."""

    def __iter__(self) -> Iterator[K]:
        return (key for keys in self._groups.values() for key in keys)

    def add(self, key: K, now: float) -> None:
        """The key is dirty."""
        group = self._group(key)
        if (keys := self._groups.get(group)) is None:
            keys = self._groups[group] = OrderedDict()
        keys.setdefault(key, now)

    def discard(self, key: K) -> None:
        """The key has its run, or is gone."""
        group = self._group(key)
        if (keys := self._groups.get(group)) is not None and keys.pop(key, None) is not None and not keys:
            del self._groups[group]

    def next(self, fits: Callable[[K], bool]) -> K | None:
        """The key that comes next; a group whose first key does not fit now is passed over."""
        return next((key for key in map(_first, self._groups.values()) if fits(key)), None)

    def take(self, key: K) -> None:
        """The key has its run: its group comes behind the others."""
        self._groups.move_to_end(self._group(key))
        self.discard(key)

    def oldest(self) -> float | None:
        """Since when the key is dirty that is dirty longest; None without any."""
        return min((keys[_first(keys)] for keys in self._groups.values()), default=None)


def _first(keys: OrderedDict[K, float]) -> K:
    return next(iter(keys))
