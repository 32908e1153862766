"""Sums of what many owners tell, kept by difference: a word costs what it concerns, and a look costs what is to be seen."""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Labels = tuple[str, ...]
Key = tuple[str, Labels]
"""Name of a metric, and the values of its labels."""


class Sums(Generic[Owner]):
    """Numbers by metric and labels, over all owners. Whole numbers only: sums of others would drift."""

    def __init__(self) -> None:
        self._told: dict[Owner, Mapping[Key, int]] = {}
        self._sums: dict[str, dict[Labels, int]] = {}
        self._owners: Counter[Key] = Counter()
        """How many tell a number, be it 0."""

    def tell(self, owner: Owner, numbers: Mapping[Key, int]) -> None:
        """What an owner contributes from now on; nothing forgets it."""
        before = self._told.pop(owner, {})
        if numbers:
            self._told[owner] = numbers
        for key in before.keys() | numbers.keys():
            joins = (key in numbers) - (key in before)
            if joins or numbers[key] != before[key]:
                self._add(key, numbers.get(key, 0) - before.get(key, 0), joins)

    def of(self, name: str) -> Mapping[Labels, int]:
        """The sums of a metric that anybody tells."""
        return self._sums.get(name, {})

    def _add(self, key: Key, change: int, joins: int) -> None:
        name, labels = key
        sums = self._sums.setdefault(name, {})
        sums[labels] = sums.get(labels, 0) + change
        self._owners[key] += joins
        if not self._owners[key]:
            del sums[labels], self._owners[key]


class Slots(Generic[Owner]):
    """Which owners have series of their own: so many, and who has a slot keeps it until it goes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: set[Owner] = set()
        self._waiting: dict[Owner, None] = {}

    def holds(self, owner: Owner) -> bool:
        """Whether an owner has a slot; who has none waits for it from now on."""
        if owner in self._held:
            return True
        if len(self._held) < self._most:
            self._held.add(owner)
            return True
        self._waiting.setdefault(owner)
        return False

    def leave(self, owner: Owner) -> Owner | None:
        """An owner is gone; who has its slot now, if anybody waited."""
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
        """How many have none."""
        return len(self._waiting)
