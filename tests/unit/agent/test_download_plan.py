"""Tests of the parts of a download that remain to be done."""

from pathlib import Path

from ome_operator.agent.download_plan import MARGIN, plan_download, too_full_message
from ome_operator.agent.free_space import FreeSpace, over_budget_message
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import VerifiedFile
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import RemoteFile, make_listing

A, B = RemoteFile("a", 100, Hash("sha256", "aa")), RemoteFile("b", 300, Hash("sha256", "bb"))


def test_verified_files_are_skipped_and_partial_files_are_resumed() -> None:
    todo = plan_download(make_listing([A, B]), {"a": VerifiedFile("a", 100, A.hash, ())}, lambda _: 120)
    assert [(one.file.name, one.bytes_on_disk) for one in todo.fetch] == [("b", 120)]
    assert (todo.bytes_left, todo.total) == (180, 400)


def test_a_file_of_another_hash_is_fetched_again() -> None:
    todo = plan_download(make_listing([A]), {"a": VerifiedFile("a", 100, Hash("sha256", "other"), ())}, lambda _: 0)
    assert todo.bytes_left == 100


def test_the_largest_file_comes_first() -> None:
    assert [one.file.name for one in plan_download(make_listing([A, B]), {}, lambda _: 0).fetch] == ["b", "a"]


def test_too_small_disk_is_reported_before_the_download() -> None:
    assert too_full_message(10 * 1024**3, 10 * 1024**3, "/mnt") == ""
    assert (
        "the files that are still to be downloaded need 10.0 GiB, but only 9.5 GiB are available below /mnt"
        in too_full_message(10 * 1024**3, int(9.5 * 1024**3), "/mnt")
    )
    assert too_full_message(0, -1, "/mnt") == "", "a download of 0 bytes needs no space"


def test_running_downloads_reserve_their_remaining_disk_space(tmp_path: Path) -> None:
    """A download takes into account the disk space that another running download still needs. Previously, each of the two
    downloads measured the free space before the other download had written anything (S9 of the review).
    """
    room, progress = FreeSpace(), Progress()
    progress.start("c1", 8 * 1024**3, 1024**3, 3)
    mine, others = tmp_path / "mine", tmp_path / "others"
    with room.reserve(others, 1, progress):
        assert room.available_bytes(mine, 1, 10 * 1024**3) == 10 * 1024**3 - MARGIN - 7 * 1024**3
        assert room.available_bytes(mine, 2, 10 * 1024**3) == 10 * 1024**3 - MARGIN, "another disk"
        assert room.available_bytes(others, 1, 10 * 1024**3) == 10 * 1024**3 - MARGIN, (
            "a model's own reservation is not subtracted"
        )
    assert room.available_bytes(mine, 1, 10 * 1024**3) == 10 * 1024**3 - MARGIN


def test_namespace_budget_of_a_disk_is_enforced() -> None:
    assert (
        over_budget_message(10, 90, 100, "team-a")
        == ""
        == over_budget_message(10, 90, 0, "team-a")
        == over_budget_message(10, 99, 100, "")
    )
    assert "namespace team-a uses 2.0 GiB of the 3.0 GiB" in over_budget_message(
        2 * 1024**3, 2 * 1024**3, 3 * 1024**3, "team-a"
    )
