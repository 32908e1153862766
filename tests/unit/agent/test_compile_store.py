"""Tests of the sealed compile caches on a disk: only complete archives are kept, within a budget, and a cache with which
engines do not start is withdrawn.
"""

import hashlib
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_operator.agent import compile_store
from ome_operator.agent.compile_store import ENTRIES, LOADS, WITHDRAWN, CachePlace, CacheRefused, CompileStore

HERE, OTHER = "a" * 32, "b" * 32
"""Digests of two kinds of hardware."""
DAY = 86400.0


class Disk:
    """A store with a clock that tests set."""

    def __init__(self, root: Path, budget: int = 1000) -> None:
        self.root, self.now = root, 1_800_000_000.0
        self.store = CompileStore([str(root)], budget, clock=lambda: self.now)

    def place(self, namespace: str = "team", number: int = 0) -> CachePlace:
        """Create the directory that the kubelet mounts into pods."""
        place = CachePlace(str(self.root), namespace, f"{number:032x}")
        place.path.mkdir(parents=True, exist_ok=True)
        return place

    def receive(self, place: CachePlace, data: bytes, hardware: str = HERE) -> int:
        """Pass an archive to the store in parts of 7 bytes, as a pod hands it over."""
        parts = iter([data[at : at + 7] for at in range(0, len(data), 7)])
        return self.store.receive(place, hardware, lambda _: next(parts, b""))

    def load(self, place: CachePlace, hardware: str = HERE) -> bytes:
        """Return the archive that a pod at this place receives from the store."""
        self.now += 60
        with self.store.load(place, hardware) as (file, size):
            data = file.read()
        assert len(data) == size
        return data


def sealed(text: bytes = b"code") -> bytes:
    """Return bytes that end with their hash."""
    return text + hashlib.sha256(text).digest()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield an empty disk. After the test, check that no incomplete archive remains on the disk."""
    made = Disk(tmp_path)
    yield made
    assert not list(tmp_path.rglob(".new-*"))


def test_cache_is_served_only_for_its_directory_and_hardware(disk: Disk) -> None:
    mine, theirs, beside = disk.place(), disk.place("other"), disk.place(number=1)
    assert disk.store.served(mine, HERE) and disk.receive(mine, sealed()) == 36
    assert disk.load(mine) == sealed()
    for place, hardware in ((theirs, HERE), (beside, HERE), (mine, OTHER)):
        with pytest.raises(CacheRefused, match="the node has no sealed compile cache"):
            disk.load(place, hardware)


@pytest.mark.parametrize("data", [b"", b"x" * 31, sealed()[:-1], sealed() + b"x", b"x" + sealed()], ids=len)
def test_archive_that_does_not_end_with_its_hash_is_refused(disk: Disk, data: bytes) -> None:
    with pytest.raises(CacheRefused, match="did not arrive completely"):
        disk.receive(disk.place(), data)
    assert disk.store.served(disk.place(), HERE), "so one is still wanted"


def test_a_damaged_archive_is_removed(disk: Disk) -> None:
    place = disk.place()
    disk.receive(place, sealed())
    (path,) = place.path.glob("*.cache")
    path.write_bytes(b"c0de" + path.read_bytes()[4:])
    with pytest.raises(CacheRefused, match="damaged"):
        disk.load(place)
    assert not path.exists() and disk.store.served(place, HERE)


def test_a_link_in_place_of_an_archive_is_not_followed(disk: Disk, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(sealed())
    (disk.place().path / f"{HERE}.cache").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        disk.load(disk.place())


def test_symlinked_directories_are_not_cache_places(disk: Disk, tmp_path: Path) -> None:
    place = disk.place()
    (tmp_path / ".namespaces/linked").symlink_to(tmp_path / ".namespaces/team")
    (place.path.parent / OTHER).symlink_to(place.path)
    (place.path.parent / "not-a-digest").mkdir()
    disk.place(".former")
    assert disk.store.places() == [place]


@pytest.mark.parametrize("hardware", ["", "../x", "A" * 32, "a" * 31, "a" * 32 + "\n"])
def test_only_a_valid_hardware_digest_names_an_archive(disk: Disk, hardware: str) -> None:
    for step in (disk.load, disk.store.served):
        with pytest.raises(CacheRefused, match="names no hardware"):
            step(disk.place(), hardware)
    with pytest.raises(CacheRefused, match="names no hardware"):
        disk.receive(disk.place(), sealed(), hardware)


def test_a_cache_with_which_no_engine_serves_is_withdrawn_for_days(disk: Disk) -> None:
    place = disk.place()
    disk.receive(place, sealed())
    for _ in range(LOADS):
        disk.load(place)
    with pytest.raises(CacheRefused, match="did not serve"):
        disk.load(place)
    with pytest.raises(CacheRefused, match="the agent stores no compile cache"):
        disk.store.served(place, HERE)
    disk.now += WITHDRAWN
    assert disk.store.served(place, HERE)


def test_loads_followed_by_serving_are_not_counted(disk: Disk) -> None:
    place = disk.place()
    disk.receive(place, sealed())
    for _ in range(3 * LOADS):
        disk.load(place)
        assert not disk.store.served(place, HERE)


def test_the_ranks_of_a_group_count_once(disk: Disk) -> None:
    place = disk.place()
    disk.receive(place, sealed())
    for _ in range(3 * LOADS):
        disk.load(place)
        disk.now -= 59
    disk.now += 60
    assert disk.load(place) == sealed()


def test_largest_namespace_loses_its_least_recently_used_cache(disk: Disk) -> None:
    small, first, second = disk.place("small"), disk.place("large", 1), disk.place("large", 2)
    for place, size in ((small, 200), (first, 300), (second, 300)):
        disk.receive(place, sealed(b"x" * size))
        disk.now += 60
    disk.load(first)
    disk.receive(disk.place("new"), sealed(b"x" * 300))
    assert disk.load(small) and disk.load(first)
    with pytest.raises(CacheRefused, match="the node has no sealed compile cache"):
        disk.load(second)


def test_namespace_cannot_evict_caches_of_another(disk: Disk) -> None:
    small = disk.place("small")
    disk.receive(small, sealed(b"x" * 100))
    for number in range(20):
        disk.receive(disk.place("flood", number), sealed(b"x" * 400))
        disk.now += 1
    assert disk.load(small)


def test_an_archive_above_the_limit_is_refused(disk: Disk) -> None:
    with pytest.raises(CacheRefused, match="more than 1000 bytes"):
        disk.receive(disk.place(), sealed(b"x" * 1000))


def test_full_disk_refuses_caches(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, compile_store.MARGIN - 1))
    with pytest.raises(CacheRefused, match="too little free space"):
        disk.receive(disk.place(), sealed())


def test_disk_error_while_receiving_leaves_no_file(disk: Disk) -> None:
    def broken(_: int) -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        disk.store.receive(disk.place(), HERE, broken)


def test_old_caches_and_leftovers_and_caches_of_deleted_namespaces_are_removed(disk: Disk) -> None:
    place, former = disk.place(), disk.root / ".namespaces/.former/team.uid/.compile/x"
    former.mkdir(parents=True)
    disk.receive(place, sealed())
    (place.path / ".new-1").touch()
    (place.path / "agent.sock").touch()
    disk.now = (place.path / ".new-1").stat().st_mtime + 60
    disk.store.clean()
    assert (place.path / ".new-1").exists(), "it may still be written"
    disk.now += DAY
    disk.store.clean()
    assert not former.parent.exists() and not (place.path / ".new-1").exists()
    disk.now += 1e9
    disk.store.clean()
    assert [path.name for path in place.path.iterdir()] == ["agent.sock"]


def test_number_of_cache_directories_per_namespace_is_limited(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_store, "PLACES", 3)
    for number in range(5):
        disk.place(number=number)
    disk.place("other")
    disk.store.clean()
    assert [sum(place.namespace == space for place in disk.store.places()) for space in ("team", "other")] == [3, 1]


def test_caches_are_removed_if_the_budget_is_zero(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.receive(disk.place(), sealed())
    off = CompileStore([str(tmp_path)], 0)
    off.clean()
    assert not list(tmp_path.rglob("*.cache")) and off.limit == 0


def test_directory_named_like_an_archive_does_not_prevent_cleaning_of_others(disk: Disk) -> None:
    odd, good = disk.place("odd"), disk.place("good")
    for number in range(3):
        (odd.path / f"{number:032x}.cache").mkdir()
    for number in range(30):
        disk.receive(disk.place("good", number), sealed(b"x" * 100))
    disk.now += 60 * DAY
    disk.store.clean()
    assert not list(good.path.glob("*.cache")), "others are cleaned"


def test_number_of_hardware_kinds_per_directory_is_limited(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 10_000)
    place = disk.place()
    for number in range(ENTRIES + 1):
        disk.receive(place, sealed(b""), f"{number:032x}")
    with pytest.raises(CacheRefused, match="too many kinds of hardware"):
        disk.store.served(place, HERE)
    assert not disk.store.served(place, f"{0:032x}"), "a cache that exists is still served"


def test_simultaneously_received_caches_fit_into_the_budget(tmp_path: Path) -> None:
    store = CompileStore([str(tmp_path)], 6 << 30)
    store._arriving = (6 << 30) - 100  # what other pods are sending
    place = CachePlace(str(tmp_path), "team", "0" * 32)
    place.path.mkdir(parents=True)
    parts = iter([b"x" * 50, b"x" * 51])
    with pytest.raises(CacheRefused, match="arrive at the same time"):
        store.receive(place, HERE, lambda _: next(parts, b""))
    assert store._arriving == (6 << 30) - 100 and not list(place.path.iterdir())
