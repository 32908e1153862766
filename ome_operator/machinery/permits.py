"""Who may do something that only so many may do at the same time, per place. Serial, in memory."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=Hashable)


class Permits(Generic[K, P]):
    """At most `limit` holders per place; those who were refused are told when it becomes free."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: dict[P, dict[K, None]] = {}
        self._waiting: dict[P, dict[K, None]] = {}

    def ahead(self, key: K, place: P) -> tuple[K, ...]:
        """Who holds every permit of the place; () when the key holds one or could take one now."""
        holders = self._holders.get(place, {})
        return () if key in holders or len(holders) < self._limit else tuple(holders)

    def take(self, key: K, place: P) -> tuple[K, ...]:
        """The key holds a permit, also above the limit: what has begun cannot be un-begun; who should try now."""
        if key in self._holders.get(place, {}):
            return ()
        woken = self.leave(key)
        self._holders.setdefault(place, {})[key] = None
        return woken

    def wait(self, key: K, place: P) -> None:
        """The key wants a permit and got none."""
        self._waiting.setdefault(place, {})[key] = None

    def leave(self, key: K) -> tuple[K, ...]:
        """The key neither holds nor wants a permit; who should try now."""
        woken: dict[K, None] = {}
        for place in [place for place, holders in self._holders.items() if key in holders]:
            del self._holders[place][key]
            woken |= self._waiting.pop(place, {})
            if not self._holders[place]:
                del self._holders[place]
        for place in [place for place, waiting in self._waiting.items() if key in waiting]:
            del self._waiting[place][key]
        woken.pop(key, None)
        return tuple(woken)
