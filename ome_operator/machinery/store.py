"""Store the facts about the objects of one kind by UID. The facts come from a watch and from the responses to the
operator's own writes.

The watch alone is not sufficient. The watch lags behind the operator's writes, so the fact from a response is used until the
watch reports the same version or a newer version. A watch can also lose deletions permanently, so a resync removes objects
that a list does not contain. A deleted object stays deleted even if outdated events arrive. Only a newer version restores
the object, for example after its label was removed and added again.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Fact(Protocol):
    """The attributes that every fact must have."""

    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


T = TypeVar("T", bound=Fact)
G = TypeVar("G", bound=Hashable)

TOMBSTONES = 20_000
"""Maximum number of deleted UIDs that are remembered. After this many further deletions, no event about an object is
expected any more."""
TOMBSTONE_SECONDS = 600.0
"""Seconds for which deleted UIDs are remembered: twice the maximum age of a page of a list."""


class Store(Generic[T, G]):
    """The facts by UID, and by the group (owner, name, …) to which they belong.

    `group` returns the group of a fact, and `same` returns whether a change from one fact to another can be ignored. `noted`
    is called with the fact before and the fact after each change. The fact before is None for a new object, and the fact
    after is None for a deleted object. Callers use `noted` to maintain an index.
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
        self._tombstones: dict[str, tuple[int, float]] = {}
        """Maps the UID of a deleted object to a pair: the latest version at which the object is known to be deleted, and
        the monotonic time of the last report of the deletion. The oldest entries come first."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, uid: str) -> T | None:
        """Return the fact about the object with the UID `uid`; None if no fact is stored."""
        return self._items.get(uid)

    def group(self, key: G) -> Iterable[T]:
        """Return all facts of a group, in no particular order."""
        return self._groups.get(key, {}).values()

    def groups(self) -> Iterable[G]:
        """Return all groups that have facts."""
        return self._groups.keys()

    def uids(self) -> set[str]:
        """Return a copy of all UIDs."""
        return set(self._items)

    def is_stale(self, uid: str, version: int) -> bool:
        """Return whether an event of this version contains nothing new: the event repeats one of the operator's writes,
        is outdated, or describes a deleted object.
        """
        if version <= self._gone_since(uid):
            return True
        if (known := self._items.get(uid)) is None:
            return False
        return version == known.version or (version < known.version and uid in self._ahead)

    def store_watched(self, item: T) -> bool:
        """Store a fact that a watch reported. Return whether the fact differs from the stored fact according to `same`."""
        if self.is_stale(item.uid, item.version):
            return False
        self._ahead.discard(item.uid)
        return self._put(item)

    def store_written(self, item: T) -> bool:
        """Store a fact from the response to one of the operator's writes. Return whether this fact is newer than the stored
        fact.
        """
        known = self._items.get(item.uid)
        if item.version <= self._gone_since(item.uid) or (known is not None and known.version >= item.version):
            return False
        self._put(item)
        self._ahead.add(item.uid)
        return True

    def is_ahead(self, uid: str, version: int) -> bool:
        """Return whether the stored fact comes from a response to one of the operator's writes and is newer than this
        version.
        """
        known = self._items.get(uid)
        return known is not None and uid in self._ahead and 0 < version < known.version

    def remove_deleted(self, uid: str, version: int = 0) -> T | None:
        """Remove a deleted object. `version` is the version of the deletion; 0 if unknown. Return the last fact about the
        object; None if no fact was stored.
        """
        self._ahead.discard(uid)
        known = self._items.pop(uid, None)
        since = max(version, known.version if known is not None else 0, self._gone_since(uid), 0)
        self._tombstones.pop(uid, None)
        self._tombstones[uid] = since, self._clock()
        if len(self._tombstones) > TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        if known is not None:
            self._leave(known)
            self._noted(known, None)
        return known

    def tidy(self) -> None:
        """Forget UIDs that were deleted so long ago that no event about them can arrive any more."""
        long_ago = self._clock() - TOMBSTONE_SECONDS
        while self._tombstones and next(iter(self._tombstones.values()))[1] < long_ago:
            del self._tombstones[next(iter(self._tombstones))]

    def _gone_since(self, uid: str) -> int:
        found = self._tombstones.get(uid)
        return -1 if found is None else found[0]

    def _put(self, item: T) -> bool:
        self._tombstones.pop(item.uid, None)
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
