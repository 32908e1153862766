"""Sums of numbers over many owners, updated by differences. The cost of an update depends only on the owner's numbers,
and the cost of reading a sum only on the size of the result.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Labels = tuple[str, ...]
Key = tuple[str, Labels]
"""The name of a metric, and the values of its labels."""


class MetricSums(Generic[Owner]):
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
    """A limited number of slots; each owner with a slot has its own series in the metrics. `group` returns the group of an
    owner.

    An owner keeps its slot until `remove_owner` is called for it, or until another owner takes the slot. Only the largest
    group loses slots in this way, and only to a group that has at least two slots fewer. So nobody can take all slots from
    other groups.
    """

    def __init__(self, most: int, group: Callable[[Owner], str] = lambda _: "") -> None:
        self._most, self._group = most, group
        self._held: dict[str, dict[Owner, None]] = {}
        """Maps a group to its owners that have a slot. The newest owner is the last."""
        self._waiting: dict[Owner, None] = {}
        self._displaced: list[Owner] = []

    def has_slot(self, owner: Owner) -> bool:
        """Return whether an owner has a slot. An owner without a slot gets one if a slot is free, or can be taken from a
        larger group; otherwise the owner is queued for the next free slot.
        """
        group = self._group(owner)
        if owner in self._held.get(group, ()):
            return True
        if sum(map(len, self._held.values())) < self._most or self._displace_for(group):
            self._waiting.pop(owner, None)
            self._held.setdefault(group, {})[owner] = None
            return True
        self._waiting.setdefault(owner)
        return False

    def pop_displaced(self) -> Owner | None:
        """Return an owner that has lost its slot to another owner since the last call; None if no owner has."""
        return self._displaced.pop() if self._displaced else None

    def remove_owner(self, owner: Owner) -> Owner | None:
        """Remove an owner. Return the queued owner that gets the slot; None if no slot was freed, or if no owner is queued.
        The slot goes to an owner of the group with the fewest slots, and among these to the owner that has waited longest.
        """
        self._waiting.pop(owner, None)
        if not self._free(owner):
            return None
        follows = min(self._waiting, key=lambda each: len(self._held.get(self._group(each), ())), default=None)
        if follows is not None:
            del self._waiting[follows]
            self._held.setdefault(self._group(follows), {})[follows] = None
        return follows

    @property
    def queued_count(self) -> int:
        """Number of owners that are queued for a slot."""
        return len(self._waiting)

    def _free(self, owner: Owner) -> bool:
        held = self._held.get(self._group(owner), {})
        if owner not in held:
            return False
        del held[owner]
        if not held:
            del self._held[self._group(owner)]
        return True

    def _displace_for(self, group: str) -> bool:
        """Take the slot of the newest owner of the group with the most slots, if this makes the numbers of slots of the
        groups more even. Return whether a slot is free now.
        """
        largest = max(self._held, key=lambda name: len(self._held[name]), default=group)
        if len(self._held.get(largest, ())) < len(self._held.get(group, ())) + 2:
            return False
        owner = next(reversed(self._held[largest]))
        self._free(owner)
        self._waiting[owner] = None
        self._displaced.append(owner)
        return True
