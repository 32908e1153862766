"""Tests of sources that keep an agent waiting on purpose (findings S8 and S23 of the security review)."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from ome_operator.agent.download import Download, DownloadFailed, Limits
from ome_operator.agent.fair_queue import TurnExpired
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Store
from ome_operator.storage.listing import MAX_FILES
from ome_operator.storage.sources import Access, open_source
from tests.agent.conftest import URI, Node
from tests.support.hub import COMMIT, Answer, served


@dataclass
class Blanks:
    """A hub that answers 200 at once, and then keeps sending blanks forever."""

    url: str = ""
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def app(self) -> web.Application:
        """Return the web application, which answers every request in the same way."""
        made = web.Application()
        made.router.add_get("/{rest:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        self.begun.append(request.path)
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b" ")
                await asyncio.sleep(0.05)
        finally:
            self.ended.append(request.path)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another thread changes it
            await asyncio.sleep(0.01)


@pytest.fixture
def blanks() -> Iterator[Blanks]:
    with served(Blanks()) as item:
        yield item


def test_endless_listing_ends_at_its_time_limit_and_frees_its_thread(tmp_path: Path, blanks: Blanks) -> None:
    """A hub sends the listings of ten models without end. Each attempt ends after the time limit for a listing, and its
    thread is free again. Reported: such listings occupied all six threads of the agent, even after the models were
    deleted.
    """
    before = threading.active_count()
    limits = Limits(first=0.001, last=0.01, tries=2, listing=0.3)

    async def item(number: int) -> str:
        found = open_source(URI, Access({}, {}, blanks.url))
        store = Store(tmp_path / "models" / f"m-{number}", "0123abcd")
        try:
            await Download(URI, found, store, limits, Progress()).run()
        except DownloadFailed as error:
            return str(error)
        finally:
            await found.close()
        return ""

    async def all_of_them() -> list[str]:
        said = await asyncio.gather(*map(item, range(10)))
        await until(lambda: len(blanks.ended) == len(blanks.begun))  # each attempt has ended its request
        assert 10 <= len(blanks.begun) <= 20, "on a busy machine, the time of an attempt may end before its request begins"
        return said

    assert set(asyncio.run(all_of_them())) == {"the source did not return the list of its files within 0 s"}
    assert threading.active_count() <= before + 1


def test_listing_of_a_deleted_model_ends(tmp_path: Path, blanks: Blanks) -> None:
    """A model is deleted while its listing still arrives. The listing ends, so that its thread is free for other models.
    Reported: no thread was left for them.
    """
    before = threading.active_count()

    async def pair(number: int) -> None:
        found = [open_source(URI, Access({}, {}, blanks.url)) for _ in range(2)]
        stores = [Store(tmp_path / "models" / f"m-{number}-{place}", "0123abcd") for place in range(2)]
        limits = Limits(listing=60.0)
        made = [Download(URI, *both, limits, Progress()).run() for both in zip(found, stores, strict=True)]
        tasks = [asyncio.create_task(item) for item in made]
        await until(lambda: len(blanks.begun) == 2 * number + 2)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(item, asyncio.CancelledError) for item in done)
        for item in found:
            await item.close()

    async def all_of_them() -> None:
        for number in range(4):
            await pair(number)
        await until(lambda: len(blanks.ended) == 8)
        assert len(blanks.begun) == 8, "the source gets no further requests"
        await asyncio.wait_for(asyncio.to_thread(str), 60)  # Disks have separate threads.

    asyncio.run(all_of_them())
    assert threading.active_count() <= before + 1


def test_a_listing_of_too_many_files_is_refused(node: Node) -> None:
    node.hub.files = {f"{number:06}.txt": b"" for number in range(MAX_FILES + 1)}
    with pytest.raises(DownloadFailed, match=f"more than {MAX_FILES} files"):
        node.fetch()


def test_endless_description_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ome_operator.storage.hub.LIMIT", 1000)
    with pytest.raises(DownloadFailed, match="more than 1000 bytes, although a short response was expected"):
        node.fetch()


def test_repeatedly_failing_model_with_a_long_uri_writes_short_log_lines(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding S23 of docs/security-review.md: each line of the log stays short although the URI of the model has 2,000
    letters and every attempt is logged. The review reported 45 MB of logs in half an hour.
    """
    caplog.set_level("DEBUG", logger="ome_operator")
    name = "n" * 200
    node.hub.files = {name: b"12345" * 100}
    node.hub.fault = lambda number, _: Answer(status=503) if number < 3 else Answer(wrong=True)
    uri = f"{URI}@{'v' * 1990}"

    async def run() -> None:
        found = open_source(URI, Access({}, {}, node.hub.url))
        try:
            await Download(uri, found, node.store, node.limits, node.progress).run()
        finally:
            await found.close()

    with pytest.raises(DownloadFailed, match="differed"):
        asyncio.run(run())
    lines = [found.getMessage() for found in caplog.records if found.name.startswith("ome_operator")]
    assert len(lines) >= 8 and max(map(len, lines)) < 700


@pytest.mark.parametrize("said", [b"[]", b"{", b"{}", b'{"sha": "x", "siblings": [1]}', b"[" * 100_000])
def test_invalid_hub_metadata_is_reported(node: Node, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def small(*_: object) -> bytes:
        return said

    monkeypatch.setattr("ome_operator.storage.hub.read_small", small)
    node.limits = Limits(first=0.001, last=0.01, tries=1)
    with pytest.raises(DownloadFailed, match="sent invalid metadata of org/model"):
        node.fetch()


def test_invalid_hash_in_hub_metadata_is_reported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def small(*_: object) -> bytes:
        files = [{"rfilename": "a", "lfs": {"size": 1, "sha256": "../../etc"}}]
        return json.dumps({"sha": COMMIT, "siblings": files}).encode()

    monkeypatch.setattr("ome_operator.storage.hub.read_small", small)
    node.limits = Limits(first=0.001, last=0.01, tries=1)
    with pytest.raises(DownloadFailed, match="invalid metadata"):
        node.fetch()


def test_download_continues_at_its_last_byte_in_the_next_turn(node: Node) -> None:
    """A download stops when the time slice of its model ends. The next time slice continues at the byte at which the
    previous one stopped, so the model is complete after several slices, and no byte is requested twice.
    """
    turns, node.hub.rate = 0, 4e6
    while turns < 50:
        asked = len(node.hub.sent)

        async def turn(began: int = asked) -> bool:
            found = open_source(URI, Access({}, {}, node.hub.url))
            over = lambda: any(sent.count > 100_000 for sent in node.hub.sent[began:])  # noqa: E731
            try:
                await Download(URI, found, node.store, node.limits, node.progress, over=over).run()
            except TurnExpired:
                return False
            finally:
                await found.close()
            return True

        turns += 1
        if asyncio.run(turn()):
            break
    assert 1 < turns < 50 and node.wrong() == []
    starts = [
        sent.start for sent in node.hub.sent if sent.name == max(node.hub.files, key=lambda name: len(node.hub.files[name]))
    ]
    assert starts == sorted(starts) and starts[-1] > 0, "no byte was requested twice"
