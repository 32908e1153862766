"""Tests of the contents of the store after events, own writes and audits."""

from typing import NamedTuple

from ome_operator.machinery import store
from ome_operator.machinery.store import Store


class Thing(NamedTuple):
    """A record of the kind that the store keeps."""

    uid: str
    version: int
    owner: str = "o"
    value: str = ""


def make() -> Store[Thing, str]:
    return Store(lambda one: one.owner, lambda a, b: a == b._replace(version=a.version))


def test_changed_object_is_reported_but_a_new_version_alone_is_not() -> None:
    s = make()
    assert s.store_watched(Thing("u", 1, value="a"))
    assert not s.store_watched(Thing("u", 2, value="a")), "the status of an autoscaler changes every 15 s"
    assert s.store_watched(Thing("u", 3, value="b"))
    assert s.get("u") == Thing("u", 3, value="b")


def test_own_write_is_used_until_the_watch_has_caught_up() -> None:
    s = make()
    s.store_watched(Thing("u", 1, value="old"))
    assert s.store_written(Thing("u", 5, value="new"))
    assert not s.store_watched(Thing("u", 3, value="between"))
    assert s.get("u") == Thing("u", 5, value="new")
    assert s.is_stale("u", 5), "the event of the operator's own write need not be read"
    assert not s.store_watched(Thing("u", 5, value="new"))
    assert s.store_watched(Thing("u", 7, value="theirs"))


def test_response_older_than_the_event_is_ignored() -> None:
    s = make()
    s.store_watched(Thing("u", 7, value="newer"))
    assert not s.store_written(Thing("u", 5, value="ours"))
    assert s.get("u") == Thing("u", 7, value="newer")


def test_lower_version_from_the_watch_is_accepted_without_own_writes() -> None:
    s = make()
    s.store_watched(Thing("u", 100, value="a"))
    assert s.store_watched(Thing("u", 4, value="b")), "etcd was restored from a backup"


def test_stale_event_or_response_does_not_restore_a_deleted_object() -> None:
    s = make()
    s.store_watched(Thing("u", 1))
    assert s.remove_deleted("u", 4) == Thing("u", 1)
    assert not s.store_watched(Thing("u", 2))
    assert not s.store_written(Thing("u", 3))
    assert (s.get("u"), list(s), s.remove_deleted("u")) == (None, [], None)
    assert not s.store_watched(Thing("u", 4)), "a second report without a version forgets nothing"


def test_object_reappears_after_its_label_was_removed_and_restored() -> None:
    """A watch by label reports DELETED when somebody removes the label. The object still exists, so when the label is added
    again, its next version is accepted.
    """
    s = make()
    s.store_watched(Thing("u", 1))
    s.remove_deleted("u", 4)
    s.store_written(Thing("u", 5))
    assert s.get("u") == Thing("u", 5)
    s.remove_deleted("u", 6)
    assert s.store_watched(Thing("u", 7))


def test_store_groups_follow_changed_owner() -> None:
    s = make()
    s.store_watched(Thing("u", 1, owner="a"))
    s.store_watched(Thing("v", 1, owner="a"))
    s.store_watched(Thing("u", 2, owner="b"))
    assert {one.uid for one in s.group("a")} == {"v"}
    assert {one.uid for one in s.group("b")} == {"u"}
    s.remove_deleted("v")
    assert (list(s.group("a")), list(s.groups()), s.uids(), len(s)) == ([], ["b"], {"u"}, 1)


def test_number_of_tombstones_is_limited() -> None:
    s = make()
    for number in range(store.TOMBSTONES + 10):
        s.remove_deleted(str(number), 5)
    assert not s.is_stale("0", 1)
    assert s.is_stale(str(store.TOMBSTONES), 1)


def test_old_tombstones_are_removed_and_recent_ones_kept() -> None:
    now = 0.0
    s: Store[Thing, str] = Store(lambda thing: thing.owner, lambda a, b: a == b, clock=lambda: now)
    s.remove_deleted("old", 5)
    now = store.TOMBSTONE_SECONDS - 1
    s.remove_deleted("young", 5)
    now = store.TOMBSTONE_SECONDS + 1
    s.tidy()
    assert not s.is_stale("old", 4) and s.is_stale("young", 4)
