"""Find the members of a group that exceed the group's quota. The oldest members are within the quota."""

from bisect import bisect_left
from typing import NamedTuple


class Entry(NamedTuple):
    """A member of a group. Entries are sorted by creation timestamp, then by name, then by key."""

    created: str
    """Creation timestamp in RFC 3339; such timestamps are sorted as text."""
    name: str
    key: str


class Quota:
    """The members of all groups. Adding or removing a member moves at most one other member across the limit, whatever
    the size of the group.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        """Maximum number of members of a group; 0 means no limit."""
        self._groups: dict[str, list[Entry]] = {}
        self._where: dict[str, tuple[str, Entry]] = {}

    def update_member(self, group: str, entry: Entry) -> list[str]:
        """Add or update a member. Return the keys of the other members that the change moves across the limit of their
        group, in either direction.
        """
        if self._where.get(entry.key) == (group, entry):
            return []
        changed = self.remove_member(entry.key)
        members = self._groups.setdefault(group, [])
        place = bisect_left(members, entry)
        members.insert(place, entry)
        self._where[entry.key] = group, entry
        pushed = [members[self.most].key] if 0 < self.most < len(members) and place < self.most else []
        return changed + pushed

    def remove_member(self, key: str) -> list[str]:
        """Remove a member. Return the keys of the members that exceeded the quota and are within the quota after the
        removal.
        """
        if (found := self._where.pop(key, None)) is None:
            return []
        group, entry = found
        members = self._groups[group]
        place = bisect_left(members, entry)
        del members[place]
        if not members:
            del self._groups[group]
        return [members[self.most - 1].key] if 0 < self.most <= len(members) and place < self.most else []

    def is_beyond_limit(self, key: str) -> bool:
        """Return whether a member is beyond the limit of its group."""
        if not self.most or (found := self._where.get(key)) is None:
            return False
        group, entry = found
        return bisect_left(self._groups[group], entry) >= self.most
