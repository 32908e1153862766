"""Tests of the limit on the members of a group, such as the models of a namespace: the oldest ones are within the limit,
whatever is added and removed.
"""

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.machinery.quota import Entry, Quota

CHANGES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab"), st.integers(0, 3)), max_size=60)


@given(CHANGES, st.integers(0, 4))
def test_quota_change_returns_members_that_crossed_the_limit(changes: list[tuple[int, str, int]], most: int) -> None:
    """When a member is added or removed, the quota returns the other members that are now within the limit or outside it.
    The result is compared with a sorted list. Each member is added by the first of its changes, and removed by the next.
    """
    quota, there = Quota(most), dict[str, tuple[str, Entry]]()
    beyond: set[str] = set()
    for number, group, day in changes:
        key = str(number)
        if key in there:
            told = quota.remove_member(key)
            del there[key]
        else:
            there[key] = group, Entry(f"2026-01-0{day}", key, key)
            told = quota.update_member(*there[key])
            assert quota.update_member(*there[key]) == []
        before, beyond = beyond, set()
        for name in "ab":
            members = sorted(entry for each, entry in there.values() if each == name)
            beyond |= {entry.key for entry in members[most:]} if most else set()
        assert {item for item in there if quota.is_beyond_limit(item)} == beyond
        crossed = {item for item in before ^ beyond if item in there and item != key}
        assert set(told) == crossed and len(told) <= 1
