"""What is left to do."""

from ome_operator.agent.steps import MARGIN, plan, too_full
from ome_operator.agent.store import Proven
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import RemoteFile, listing

A, B = RemoteFile("a", 100, Hash("sha256", "aa")), RemoteFile("b", 300, Hash("sha256", "bb"))


def test_what_is_proven_is_not_fetched_and_what_is_begun_goes_on() -> None:
    todo = plan(listing([A, B]), {"a": Proven("a", 100, A.hash, ())}, lambda _: 120)
    assert [(one.file.name, one.have) for one in todo.fetch] == [("b", 120)]
    assert (todo.left, todo.total) == (180, 400)


def test_a_file_of_another_hash_is_fetched_again() -> None:
    todo = plan(listing([A]), {"a": Proven("a", 100, Hash("sha256", "other"), ())}, lambda _: 0)
    assert todo.left == 100


def test_the_largest_file_comes_first() -> None:
    assert [one.file.name for one in plan(listing([A, B]), {}, lambda _: 0).fetch] == ["b", "a"]


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched() -> None:
    assert too_full(10 * 1024**3, 11 * 1024**3, "/mnt") == ""
    assert "10.0 GiB are still to come and /mnt has 10.5 GiB free" in too_full(10 * 1024**3, int(10.5 * 1024**3), "/mnt")
    assert too_full(0, MARGIN - 1, "/mnt") == "", "nothing to fetch needs no room"
