"""Sets of node names that take little memory: a set stores a byte for each known node. The sets contain the nodes that have
a label. A fleet of 5,000 nodes with 200 models has 200 such sets, and dicts of the names would take 20 times the memory.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import compress


class NodeNumbers:
    """Numbers of the known nodes. The number of a node that is gone is given to another node later."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """The name of the node with each number; "" for numbers that no node has."""
        self._numbers: dict[str, int] = {}
        self._free: set[int] = set()

    def get(self, name: object) -> int | None:
        """Return the number of a node; None if the node has no number."""
        return self._numbers.get(name)  # type: ignore[call-overload, no-any-return]

    def give(self, name: str) -> int:
        """Return the number of a node. A node without a number gets one."""
        if (number := self._numbers.get(name)) is not None:
            return number
        if self._free:
            number = self._free.pop()
            self.names[number] = name
        else:
            number = len(self.names)
            self.names.append(name)
        self._numbers[name] = number
        return number

    def free(self, name: str) -> None:
        """Free the number of a node that is gone, for another node. No set may contain the node any more."""
        if (number := self._numbers.pop(name, None)) is not None:
            self.names[number] = ""
            self._free.add(number)
        while self.names and not self.names[-1]:
            self.names.pop()
            self._free.discard(len(self.names))


class NodeSet(AbstractSet[str]):
    """A set of names of nodes. Only the cache changes the set."""

    __slots__ = ("_count", "_flags", "_numbers")

    def __init__(self, numbers: NodeNumbers) -> None:
        self._numbers, self._flags, self._count = numbers, bytearray(), 0

    def add(self, name: str) -> None:
        """Add a node that is not in the set."""
        number = self._numbers.give(name)
        if number >= len(self._flags):
            self._flags.extend(bytes(len(self._numbers.names) - len(self._flags)))
        self._flags[number] = 1
        self._count += 1

    def remove(self, name: str) -> None:
        """Remove a node that is in the set."""
        self._flags[self._numbers.give(name)] = 0
        self._count -= 1

    def __contains__(self, name: object) -> bool:
        number = self._numbers.get(name)
        return number is not None and number < len(self._flags) and self._flags[number] == 1

    def __iter__(self) -> Iterator[str]:
        return compress(self._numbers.names, self._flags)

    def __len__(self) -> int:
        return self._count

    @classmethod
    def _from_iterable(cls, it: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(it)
