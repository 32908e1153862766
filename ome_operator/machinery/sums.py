"""Sums of numbers over many owners, updated by differences. The cost of an update depends only on the owner's numbers,
and the cost of reading a sum only on the size of the result.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Labels = tuple[str, ...]
Key = tuple[str, Labels]
"""Name of a metric, and the values of its labels."""


class Sums(Generic[Owner]):
    """The sums of numbers by metric and labels, over all owners. The numbers must be integers, because sums of floats
    would accumulate rounding errors.
    """

    def __init__(self) -> None:
        self._reported: dict[Owner, Mapping[Key, int]] = {}
        self._sums: dict[str, dict[Labels, int]] = {}
        self._owners: Counter[Key] = Counter()
        """Number of owners that report a value (including 0) for the key."""

    def replace(self, owner: Owner, numbers: Mapping[Key, int]) -> None:
        """Replace the numbers of an owner. An empty mapping removes the owner."""
        before = self._reported.pop(owner, {})
        if numbers:
            self._reported[owner] = numbers
        for key in before.keys() | numbers.keys():
            joins = (key in numbers) - (key in before)
            if joins or numbers[key] != before[key]:
                self._add(key, numbers.get(key, 0) - before.get(key, 0), joins)

    def totals(self, name: str) -> Mapping[Labels, int]:
        """Return the sums of a metric by labels."""
        return self._sums.get(name, {})

    def _add(self, key: Key, change: int, joins: int) -> None:
        name, labels = key
        sums = self._sums.setdefault(name, {})
        sums[labels] = sums.get(labels, 0) + change
        self._owners[key] += joins
        if not self._owners[key]:
            del sums[labels], self._owners[key]


class Slots(Generic[Owner]):
    """A limited number of slots for owners that have their own series. An owner keeps its slot until `leave` is called
    for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: set[Owner] = set()
        self._waiting: dict[Owner, None] = {}

    def holds(self, owner: Owner) -> bool:
        """Return whether an owner has a slot. If a slot is free, the owner gets it; otherwise the owner is queued for the
        next free slot.
        """
        if owner in self._held:
            return True
        if len(self._held) < self._most:
            self._held.add(owner)
            return True
        self._waiting.setdefault(owner)
        return False

    def leave(self, owner: Owner) -> Owner | None:
        """Remove an owner. Return the queued owner that gets the slot, or None if no slot was freed or no owner is
        queued.
        """
        self._waiting.pop(owner, None)
        if owner not in self._held:
            return None
        self._held.discard(owner)
        if (follows := next(iter(self._waiting), None)) is not None:
            del self._waiting[follows]
            self._held.add(follows)
        return follows

    @property
    def waiting(self) -> int:
        """Number of owners that are queued for a slot."""
        return len(self._waiting)
