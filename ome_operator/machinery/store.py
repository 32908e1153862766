"""Facts of one kind of object by UID, fed by a watch and by our own writes.

The watch alone is not the truth. It lags behind our own writes, so a written fact counts until the watch shows the same
version or a newer one. And it may lose deletions for good, so an audit removes what a list did not show. What is gone
stays gone whatever stale event still arrives; only a newer version brings it back (an object whose label was taken off
and put on again).
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Fact(Protocol):
    """What every fact must have."""

    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


T = TypeVar("T", bound=Fact)
G = TypeVar("G", bound=Hashable)

TOMBS = 20_000
"""UIDs that are remembered as gone; events older than the last so many deletions are not in flight any more."""
BURIED = 600.0
"""Seconds for which they are: twice as long as a page of a list may be old."""


class Store(Generic[T, G]):
    """Facts by UID and by the group (owner, name, …) that they belong to.

    `noted` is told of each fact before and after a change, for whoever keeps an index of its own.
    """

    def __init__(
        self,
        group: Callable[[T], G],
        same: Callable[[T, T], bool],
        noted: Callable[[T | None, T | None], None] = lambda old, new: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group_of, self._same, self._noted, self._clock = group, same, noted, clock
        self._items: dict[str, T] = {}
        self._groups: dict[G, dict[str, T]] = {}
        self._ahead: set[str] = set()
        self._tombs: dict[str, tuple[int, float]] = {}
        """UID -> the version since which it is gone, and when that was told last: the oldest first."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, uid: str) -> T | None:
        """The fact of a UID."""
        return self._items.get(uid)

    def group(self, key: G) -> Iterable[T]:
        """All facts of a group, in no order that means anything."""
        return self._groups.get(key, {}).values()

    def groups(self) -> Iterable[G]:
        """All groups that have facts."""
        return self._groups.keys()

    def uids(self) -> set[str]:
        """A copy of all UIDs."""
        return set(self._items)

    def stale(self, uid: str, version: int) -> bool:
        """Whether an event of this version tells nothing: it is the echo of our own write, older, or of a ghost."""
        if version <= self._gone_since(uid):
            return True
        if (known := self._items.get(uid)) is None:
            return False
        return version == known.version or (version < known.version and uid in self._ahead)

    def see(self, item: T) -> bool:
        """A watch showed the object; whether that changes anything that matters."""
        if self.stale(item.uid, item.version):
            return False
        self._ahead.discard(item.uid)
        return self._put(item)

    def wrote(self, item: T) -> bool:
        """The answer to our own write; whether it is newer than what was known."""
        known = self._items.get(item.uid)
        if item.version <= self._gone_since(item.uid) or (known is not None and known.version >= item.version):
            return False
        self._put(item)
        self._ahead.add(item.uid)
        return True

    def ahead(self, uid: str, version: int) -> bool:
        """Whether an answer to our own write is newer than this version of an object."""
        known = self._items.get(uid)
        return known is not None and uid in self._ahead and 0 < version < known.version

    def gone(self, uid: str, version: int = 0) -> T | None:
        """The object does not exist any more, since this version as far as that is known; what was known of it."""
        self._ahead.discard(uid)
        known = self._items.pop(uid, None)
        since = max(version, known.version if known is not None else 0, self._gone_since(uid), 0)
        self._tombs.pop(uid, None)
        self._tombs[uid] = since, self._clock()
        if len(self._tombs) > TOMBS:
            del self._tombs[next(iter(self._tombs))]
        if known is not None:
            self._leave(known)
            self._noted(known, None)
        return known

    def tidy(self) -> None:
        """Forget what has been gone for so long that no event of it is in flight."""
        long_ago = self._clock() - BURIED
        while self._tombs and next(iter(self._tombs.values()))[1] < long_ago:
            del self._tombs[next(iter(self._tombs))]

    def _gone_since(self, uid: str) -> int:
        found = self._tombs.get(uid)
        return -1 if found is None else found[0]

    def _put(self, item: T) -> bool:
        self._tombs.pop(item.uid, None)
        known = self._items.get(item.uid)
        if known is not None and self._group_of(known) != self._group_of(item):
            self._leave(known)
        self._items[item.uid] = item
        self._groups.setdefault(self._group_of(item), {})[item.uid] = item
        self._noted(known, item)
        return known is None or not self._same(known, item)

    def _leave(self, item: T) -> None:
        key = self._group_of(item)
        members = self._groups.get(key, {})
        members.pop(item.uid, None)
        if not members:
            self._groups.pop(key, None)
