"""Tests of the limits of a download, with the real Download and Agent (findings S8 and S9 of the security review).

The limits have their own unit tests; these tests fail if a limit is not applied.
"""

import asyncio
import contextlib
import gzip
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ome_operator.agent import download
from ome_operator.agent.download import Download, DownloadFailed, Limits
from ome_operator.agent.download_plan import MARGIN
from ome_operator.agent.fair_queue import TurnCheck, TurnExpired
from ome_operator.agent.loop import Agent
from ome_operator.agent.manifest import VerifiedFile
from ome_operator.agent.minimum_speed import MinimumSpeed
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Store
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.settings.agent import AgentPolicy
from ome_operator.storage.grants import Trust
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import Listing, RemoteFile, RequestRefused, make_listing
from tests.agent.conftest import Node
from tests.support import yamls
from tests.support.fake_api import Call, FakeApi
from tests.support.hub import Hub, served
from tests.support.hub import model as files
from tests.unit.agent.test_unpack import member, tar

MB = 1024 * 1024


class Given:
    """A source with a single file in memory, which sends no byte until `go` is set."""

    def __init__(self, data: bytes, unpack: bool = False) -> None:
        self.data, self.asked, self.go = data, asyncio.Event(), asyncio.Event()
        self.go.set()
        self.file = RemoteFile("model.bin", len(data), Hash("sha256", hashlib.sha256(data).hexdigest()), unpack)

    async def listing(self, revision: str) -> Listing:
        """Return the listing with the file."""
        return make_listing([self.file], "r")

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes of the file."""
        self.asked.set()
        await self.go.wait()
        yield self.data[start:end]

    def report_wrong_hash(self, file: RemoteFile) -> None:
        """Do nothing, because there is no other source."""

    async def close(self) -> None:
        """Do nothing, because there is nothing to close."""


def fetching(
    folder: Path,
    source: Given,
    limits: Limits | None = None,
    *,
    name: str = "m",
    namespace: str = "",
    over: TurnCheck | None = None,
) -> Download:
    """Return a download of the source into a directory on this disk."""
    store = Store(folder / "models" / name, {"m": "0123abcd", "n": "4567ef01"}[name])
    limits = limits or Limits(first=0.001, last=0.01, tries=2)
    return Download("x://y", source, store, limits, Progress(), namespace=namespace, over=over or (lambda: False))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets how many bytes of the disk are free beyond the margin that the agent leaves free."""
    return lambda count: monkeypatch.setattr(Store, "free_bytes", lambda self: MARGIN + count)


def test_source_below_the_minimum_speed_is_interrupted(node: Node) -> None:
    node.hub.rate = 1e6
    node.limits = Limits(first=0.001, last=0.01, tries=2, minimum_speed=MinimumSpeed(50e6, 0.3))
    with pytest.raises(DownloadFailed, match=r"the source sends .* KiB/s, less than the minimum"):
        node.fetch()
    assert node.hub.total < node.hub.size, "the source is not read to its end"


async def test_namespace_disk_budget_is_enforced(tmp_path: Path) -> None:
    limits = Limits(namespace_bytes=3 * MB)
    await fetching(tmp_path, Given(bytes(2 * MB)), limits, namespace="team-a").run()
    with pytest.raises(
        DownloadFailed, match=r"namespace team-a uses 2\.0 MiB of the 3\.0 MiB that agent\.namespaceGB permits"
    ):
        await fetching(tmp_path, Given(b"n" * 2 * MB), limits, name="n", namespace="team-a").run()
    await fetching(tmp_path, Given(b"n" * 2 * MB), limits, name="n").run()


async def test_concurrent_downloads_reserve_disk_space(tmp_path: Path, free: Callable[[int], None]) -> None:
    free(3 * MB)
    limits, first = Limits(), Given(bytes(2 * MB))
    first.go.clear()
    running = asyncio.create_task(fetching(tmp_path, first, limits).run())
    await asyncio.wait_for(first.asked.wait(), 10)
    other = fetching(tmp_path, Given(b"n" * 2 * MB), limits, name="n")
    with pytest.raises(DownloadFailed, match=r"need 2\.0 MiB, but only 1\.0 MiB are available below"):
        await other.run()
    first.go.set()
    await running
    await other.run()


async def test_archive_needs_space_for_itself_and_its_files(tmp_path: Path, free: Callable[[int], None]) -> None:
    """Finding S9 of docs/security-review.md: an archive needs room for itself and for the files that it contains. If the
    disk has less, the download fails before its first byte is requested.
    """
    given = Given(tar(member(size=4 * MB)), unpack=True)
    free(6 * MB)
    with pytest.raises(DownloadFailed, match=r"need 8\.0 MiB, but only 6\.0 MiB are available below"):
        await fetching(tmp_path, given).run()
    assert not given.asked.is_set()
    free(9 * MB)
    await fetching(tmp_path, given).run()


async def test_archive_larger_than_the_free_space_leaves_no_file(tmp_path: Path, free: Callable[[int], None]) -> None:
    """Finding S9 of docs/security-review.md: an archive of less than 20 kB unpacks to 8 MiB, and the disk has 1 MiB.
    Unpacking stops with an error, and no unpacked file remains.
    """
    given = Given(tar(member(size=8 * MB), zipped=True), unpack=True)
    assert len(given.data) < 20_000
    free(MB)
    made = fetching(tmp_path, given)
    with pytest.raises(DownloadFailed, match=r"the archive contains 8\.0 MiB, but only"):
        await made.run()
    assert not list((tmp_path / "models").rglob("*/files/model.bin"))


class Unpacking:
    """A replacement for `unpack` that runs until its time is over, but for at most `seconds`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: float, seconds: float) -> None:
        self.begun = self.expired = self.ended = False
        self._seconds = seconds
        monkeypatch.setattr(download, "unpack", self)
        monkeypatch.setattr(download, "UNPACKED", rate)
        monkeypatch.setattr(download, "POLL_SECONDS", 0.01)

    def __call__(self, archive: Path, into: Path, room: int, over: TurnCheck) -> list[VerifiedFile]:
        """Run in place of `unpack`, in its thread. Raise TurnExpired once `over` returns True, and else RequestRefused after
        `seconds`.
        """
        self.begun, until = True, time.monotonic() + self._seconds
        try:
            while time.monotonic() < until:
                if over():
                    self.expired = True
                    raise TurnExpired
                time.sleep(0.01)
            raise RequestRefused("it ended by itself")
        finally:
            self.ended = True


@pytest.mark.parametrize(("rate", "seconds", "said"), [(1e12, 60.0, TurnExpired), (1.0, 0.5, DownloadFailed)])
async def test_unpacking_is_stopped_after_its_time_limit(
    rate: float, seconds: float, said: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While `unpack` runs, the time slice of the model ends. Unpacking is stopped after the time that the size of the
    archive permits and not before, because unpacking that was stopped starts from the beginning.
    """
    given, unpacking = Given(gzip.compress(b"x"), unpack=True), Unpacking(monkeypatch, rate, seconds)
    with pytest.raises(said):
        await fetching(tmp_path, given, over=lambda: unpacking.begun).run()
    assert unpacking.ended


async def test_cancelled_model_stops_its_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacking = Unpacking(monkeypatch, 1.0, 60.0)
    task = asyncio.create_task(fetching(tmp_path, Given(gzip.compress(b"x"), unpack=True)).run())
    while not unpacking.begun:  # noqa: ASYNC110 - a thread begins it
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert unpacking.expired and unpacking.ended, "no thread continues afterwards"


async def test_archive_is_unpacked_after_an_expired_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(tar(member(), member("other.bin")), unpack=True)
    with monkeypatch.context() as patched:
        unpacking = Unpacking(patched, 1e12, 60.0)
        with pytest.raises(TurnExpired):
            await fetching(tmp_path, given, over=lambda: unpacking.begun).run()
    given.asked.clear()
    made = await fetching(tmp_path, given).run()
    assert {item.name for item in made.files} == {"model.bin", "other.bin"} and not given.asked.is_set()


async def test_namespaces_take_turns_in_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding S8 of docs/security-review.md: if an agent downloads one model at a time, the models of two namespaces
    alternate, so that each waits for at most one time slice of the other.
    """
    running: list[str] = []
    order: list[str] = []
    run = Work.run

    async def counted(self: Work, over: TurnCheck = lambda: False) -> None:
        running.append(self.model.namespace)
        order.append(self.model.namespace)
        assert len(running) == 1, "a single download at a time"
        try:
            await run(self, over)
        finally:
            running.remove(self.model.namespace)

    monkeypatch.setattr(Work, "run", counted)
    monkeypatch.setattr("ome_operator.agent.loop.TICK", 0.02)

    def get(call: Call) -> dict[str, Any]:
        return {"metadata": {"uid": "u", "labels": {}}}

    with served(Hub(files(1, [3_000_000, 200_000]))) as hub:
        hub.rate = 4e6
        trust = Trust(private_hosts=frozenset({"localhost"}))
        settings = AgentSettings(
            trust=trust,
            node="n",
            roots=(str(tmp_path),),
            endpoint=hub.url,
            policy=AgentPolicy(models=1, turn=0.2),
            limits=Limits(first=0.001, last=0.01),
        )
        agent = Agent(settings, FakeApi({"get": get, "apply": {}, "list_metadata": []}))
        for namespace in ("team-a", "team-b"):
            body = yamls.model()
            metadata = {**body["metadata"], "uid": namespace, "namespace": namespace, "name": "m"}
            storage = {"storageUri": "hf://org/model", "path": f"{tmp_path}/m"}
            agent.handle_object("BaseModel", {**body, "metadata": metadata, "spec": {"storage": storage}})
        task = asyncio.create_task(agent.run(asyncio.Event()))
        try:
            async with asyncio.timeout(30):
                while [work.report().state for work in agent._works.values()] != ["Ready", "Ready"]:
                    assert not task.done() and not agent._broken
                    await asyncio.sleep(0.02)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await agent.close()
    first = order.index("team-b" if order[0] == "team-a" else "team-a")
    assert first <= 2 and order[0] in order[first:], f"the namespaces must alternate: {order}"
