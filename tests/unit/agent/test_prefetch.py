"""Tests of reading weights into the page cache: which directories are read when, and what is cached afterwards."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_operator.agent import page_cache
from ome_operator.agent import prefetch as module
from ome_operator.agent.page_cache import BLOCK, CHUNK
from ome_operator.agent.prefetch import CachedWeights, Prefetcher, prefetch
from ome_operator.agent.prefetch_plan import GIB, MIB, RESERVED_SHARE, ContainerMemory, MemoryState
from ome_operator.agent.throttle import Throttle

PLENTY = MemoryState(64 * GIB, 60 * GIB, 60 * GIB, 0)
SIZE = BLOCK + 5 * MIB


def written(folder: Path, sizes: dict[str, int]) -> Path:
    """Write files of these sizes, and drop them from the page cache."""
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.write(os.urandom(min(size, MIB)) * -(-size // MIB))
            stream.truncate(size)
            stream.flush()
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return folder


def cached(path: Path) -> int:
    with page_cache.open_for_reading(path) as descriptor:
        return page_cache.cached_bytes(descriptor, path.stat().st_size)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a file system whose files can be dropped from the page cache, which is not possible on tmpfs. Skip
    the test if this machine has no such file system.
    """
    probe = written(tmp_path / "probe", {"file": MIB}) / "file"
    if cached(probe):
        pytest.skip("the file system of the temporary directory keeps its pages")
    yield tmp_path
    for path in tmp_path.rglob("*.safetensors"):
        path.unlink()


def recorded(reads: Callable[..., int], starts: list[int]) -> Callable[..., int]:
    """Return a `read_block` that adds the offset of each block to `starts`."""

    def read_block(descriptor: int, start: int, *more: Any) -> int:
        starts.append(start)
        return reads(descriptor, start, *more)

    return read_block


def read(
    root: Path, limit: int = 10 * GIB, stop: threading.Event | None = None, rate: float = 0.0, held: int = 0
) -> CachedWeights:
    return prefetch(root, limit, Throttle(rate), stop or threading.Event(), held)


def test_prefetch_reads_uncached_weights_into_the_page_cache(disk: Path) -> None:
    sizes = {"b.safetensors": SIZE, "a.safetensors": SIZE, "config.json": 3, "original/a.pth": 2 * MIB}
    root = written(disk / "m", sizes)
    assert [cached(root / name) for name in sizes] == [0, 0, 0, 0]
    total = 2 * SIZE + 3
    assert read(root) == CachedWeights(total, total)
    assert [cached(root / name) for name in sizes] == [SIZE, SIZE, 3, 0], "the second copy is not read"


def test_prefetch_reads_first_files_up_to_its_limit(disk: Path) -> None:
    root = written(disk / "m", {"a.safetensors": SIZE, "b.safetensors": SIZE})
    outcome = read(root, limit=SIZE + 2 * MIB)
    assert cached(root / "a.safetensors") == SIZE
    ahead = 32 * MIB  # the kernel reads ahead of what was asked
    assert SIZE + 2 * MIB <= outcome.bytes <= SIZE + 2 * MIB + ahead < outcome.total
    assert outcome.message == "agent.prefetchGB permitted only 0.07 GiB"


def test_prefetch_reads_nothing_if_memory_is_short(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written(disk / "m", {"a.safetensors": SIZE})
    for short, said in (
        ({"free": GIB}, "the free memory of this node"),
        ({"container": ContainerMemory(0, 0)}, "the memory limit of the agent's"),
    ):
        monkeypatch.setattr(page_cache, "memory", lambda short=short: PLENTY._replace(**short))
        outcome = read(root)
        assert (outcome.bytes, outcome.total, cached(root / "a.safetensors")) == (0, SIZE, 0)
        assert said in outcome.message


def test_prefetch_stops_when_memory_is_short_or_pods_serve(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written(disk / "m", {"a.safetensors": 3 * BLOCK})
    answers = iter([PLENTY, PLENTY, PLENTY._replace(free=0)])
    monkeypatch.setattr(page_cache, "memory", lambda: next(answers))
    outcome = read(root)
    assert outcome.message == "the free memory of this node has become short" and BLOCK <= outcome.bytes < 3 * BLOCK
    monkeypatch.setattr(page_cache, "memory", lambda: PLENTY)
    stop = threading.Event()
    stop.set()
    root = written(disk / "n", {"a.safetensors": 3 * BLOCK})
    assert read(root, stop=stop) == CachedWeights(0, 3 * BLOCK, "its pods serve, or are gone")


def test_prefetched_inactive_pages_count_as_used(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that were read into the page cache reduce the memory for further blocks. In this test, another program also
    takes the memory of one block, so only two of three blocks are read.
    """
    root, reserve = written(disk / "m", {"a.safetensors": 3 * BLOCK}), int(PLENTY.total * RESERVED_SHARE)
    rooms = iter([3 * BLOCK, 3 * BLOCK, 2 * BLOCK, 2 * BLOCK])
    monkeypatch.setattr(page_cache, "memory", lambda: PLENTY._replace(free=reserve, inactive_file=next(rooms)))
    assert read(root).message == "the free memory of this node has become short"
    assert next(rooms, None) is None, "two blocks were read"


def test_prefetched_pages_of_another_directory_are_kept(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If weights of another directory were read ahead, they stay in the page cache. Their pages are inactive until an
    engine reads the weights, so the pages would otherwise count as free memory.
    """
    root, reserve = written(disk / "m", {"a.safetensors": 2 * BLOCK}), int(PLENTY.total * RESERVED_SHARE)
    monkeypatch.setattr(page_cache, "memory", lambda: PLENTY._replace(free=reserve + BLOCK, inactive_file=3 * BLOCK))
    outcome = read(root, held=3 * BLOCK)
    assert BLOCK <= outcome.bytes < 2 * BLOCK
    assert outcome.message == "the free memory of this node permitted only 0.06 GiB"


def test_cached_blocks_need_no_memory_and_are_not_read_again(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written(disk / "m", {"a.safetensors": 4 * BLOCK})
    with page_cache.open_for_reading(root / "a.safetensors") as descriptor:
        page_cache.read_block(descriptor, 0, 3 * BLOCK, bytearray(CHUNK), lambda _: True)
    already, reserve = cached(root / "a.safetensors"), int(PLENTY.total * RESERVED_SHARE)
    assert 3 * BLOCK <= already < 4 * BLOCK
    monkeypatch.setattr(page_cache, "memory", lambda: PLENTY._replace(free=reserve, inactive_file=BLOCK))
    starts: list[int] = []
    monkeypatch.setattr(page_cache, "read_block", recorded(page_cache.read_block, starts))
    assert read(root) == CachedWeights(4 * BLOCK, 4 * BLOCK)
    assert starts == [3 * BLOCK]


def test_rate_limits_the_bytes_announced_to_the_kernel(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that are announced to the kernel at a time are bounded by the rate, because the kernel reads announced bytes
    at once.
    """
    root = written(disk / "m", {"a.safetensors": 2 * BLOCK})
    monkeypatch.setattr(page_cache, "memory", lambda: PLENTY)
    announced: list[int] = []
    monkeypatch.setattr(page_cache, "request_readahead", lambda _, __, length: announced.append(length))
    stop = threading.Event()

    def stops(*_: Any) -> int:
        stop.set()
        return 0

    monkeypatch.setattr(page_cache, "read_block", stops)
    for rate in (0.0, 40.0 * MIB, 1.0):
        stop.clear()
        read(root, stop=stop, rate=rate)
    assert announced == [2 * BLOCK, 32 * MIB, 2 * CHUNK]


def test_prefetch_stops_if_its_first_block_was_evicted(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops when the block that was read first is no longer in the page cache. Otherwise, on a file system without a
    page cache or at a memory limit, every byte would be read from the disk twice.
    """
    root = written(disk / "m", {"a.safetensors": 3 * BLOCK})
    monkeypatch.setattr(page_cache, "memory", lambda: PLENTY)
    monkeypatch.setattr(page_cache, "cached_bytes", lambda *_: 0)
    outcome = read(root)
    assert outcome.message == "the block that was read first is no longer in the page cache"


def test_unreadable_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m/a.safetensors")
    assert read(tmp_path / "m") == CachedWeights(0, 0), "a pipe is no file"
    with pytest.raises(OSError, match="not a regular file"), page_cache.open_for_reading(tmp_path / "m/a.safetensors"):
        pass
    monkeypatch.setattr(module, "MOST_FILES", 1)
    (tmp_path / "n").mkdir()
    for name in ("a.bin", "b.bin"):
        (tmp_path / "n" / name).write_bytes(b"x")
    assert read(tmp_path / "n").message == "cannot read its files: more than 1 files"
    (tmp_path / "n/b.bin").unlink()

    def fails() -> MemoryState:
        raise PermissionError(13, "no access")

    monkeypatch.setattr(page_cache, "memory", fails)
    assert read(tmp_path / "n") == CachedWeights(0, 1, "cannot read its files: no access")


def test_prefetch_keeps_configured_rate(tmp_path: Path) -> None:
    root = written(tmp_path, {"a.safetensors": 16 * MIB})
    began = time.monotonic()
    assert read(root, rate=32 * MIB).bytes > 15 * MIB  # the kernel may drop a page at once
    assert time.monotonic() - began >= 0.4


def test_container_memory_is_read_from_cgroup_v1_and_v2(tmp_path: Path) -> None:
    assert page_cache.container(tmp_path) is None
    old = tmp_path / "memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text(f"{4 * GIB}\n")
    (old / "memory.usage_in_bytes").write_text(f"{GIB}\n")
    (old / "memory.stat").write_text(f"inactive_file 7\ntotal_inactive_file {MIB}\n")
    assert page_cache.container(tmp_path) == ContainerMemory(3 * GIB - 256 * MIB, MIB)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("5\n")
    (tmp_path / "memory.stat").write_text("inactive_file 7\n")
    assert page_cache.container(tmp_path) is None
    assert page_cache.memory().total > 0, "this machine"


async def settled(prefetcher: Prefetcher) -> None:
    if prefetcher._task is not None:
        await asyncio.wait_for(prefetcher._task, 20)


async def test_each_directory_is_prefetched_once_while_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int]] = []

    def recorded(root: Path, limit: int, throttle: Throttle, stop: threading.Event, held: int) -> CachedWeights:
        calls.append((str(root), limit, held))
        if root.name == "broken":
            raise RuntimeError("no")
        return CachedWeights(30, 30)

    monkeypatch.setattr(module, "prefetch", recorded)
    prefetcher = Prefetcher(100)
    assert prefetcher.status() == {"limit": 100}
    prefetcher.follow(["/m/a", "/m/b", 5, "/etc"], {"/m/a"})
    await settled(prefetcher)
    assert calls == [("/m/a", 100, 0)], "only what is complete, and a model of this node"
    prefetcher.follow(["/m/a", "/m/b"], {"/m/a", "/m/b"})
    await settled(prefetcher)
    assert calls[1:] == [("/m/b", 70, 30)], "the limit is for all directories together, and the first must stay"
    assert prefetcher.status()["directories"] == [
        {"directory": "/m/a", "bytes": 30, "total": 30},
        {"directory": "/m/b", "bytes": 30, "total": 30},
    ]
    prefetcher.follow([], {"/m/a", "/m/b"})
    assert prefetcher.status() == {"limit": 100}
    prefetcher.follow(["/m/a", "/m/broken"], {"/m/a", "/m/broken"})
    await settled(prefetcher)
    assert [call[0] for call in calls[2:]] == ["/m/a", "/m/broken"], "its pods start again"
    assert "internal error (RuntimeError)" in prefetcher.status()["directories"][1]["message"]


async def test_prefetch_ends_with_its_pods_and_with_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(root: Path, limit: int, throttle: Throttle, stop: threading.Event, held: int) -> CachedWeights:
        assert stop.wait(10), "nobody stopped it"
        return CachedWeights(1, 5, "stopped")

    monkeypatch.setattr(module, "prefetch", waits)
    prefetcher = Prefetcher(100)
    prefetcher.follow(["/m/a"], {"/m/a"})
    await asyncio.sleep(0.05)
    prefetcher.follow([], {"/m/a"})
    await settled(prefetcher)
    assert prefetcher.status() == {"limit": 100}
    prefetcher.follow(["/m/a", "/m/b"], {"/m/a", "/m/b"})
    await asyncio.sleep(0.05)
    await prefetcher.close()
    assert prefetcher._task is None and prefetcher.status() == {"limit": 100}


async def test_an_agent_without_a_limit_reads_nothing(tmp_path: Path) -> None:
    prefetcher = Prefetcher(0)
    prefetcher.follow([str(tmp_path)], {str(tmp_path)})
    assert (prefetcher.enabled, prefetcher.status(), prefetcher._task) == (False, {}, None)
