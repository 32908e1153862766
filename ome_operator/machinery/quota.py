"""Which members of a group are beyond the number that a group may have: the oldest are within it."""

from bisect import bisect_left
from typing import NamedTuple


class Entry(NamedTuple):
    """A member in the order of its group."""

    created: str
    """RFC 3339, which compares as text."""
    name: str
    key: str


class Quota:
    """Groups of members that come and go. A change moves a single member across the border, whatever the group's size."""

    def __init__(self, most: int) -> None:
        self.most = most
        """Of a group; 0: any number."""
        self._groups: dict[str, list[Entry]] = {}
        self._where: dict[str, tuple[str, Entry]] = {}

    def see(self, group: str, entry: Entry) -> list[str]:
        """A member is there; the keys of others that are within or beyond the number by that."""
        if self._where.get(entry.key) == (group, entry):
            return []
        changed = self.gone(entry.key)
        members = self._groups.setdefault(group, [])
        place = bisect_left(members, entry)
        members.insert(place, entry)
        self._where[entry.key] = group, entry
        pushed = [members[self.most].key] if 0 < self.most < len(members) and place < self.most else []
        return changed + pushed

    def gone(self, key: str) -> list[str]:
        """A member is gone; the keys of members that are within the number since."""
        if (found := self._where.pop(key, None)) is None:
            return []
        group, entry = found
        members = self._groups[group]
        place = bisect_left(members, entry)
        del members[place]
        if not members:
            del self._groups[group]
        return [members[self.most - 1].key] if 0 < self.most <= len(members) and place < self.most else []

    def beyond(self, key: str) -> bool:
        """Whether a member comes after the number that its group may have."""
        if not self.most or (found := self._where.get(key)) is None:
            return False
        group, entry = found
        return bisect_left(self._groups[group], entry) >= self.most
