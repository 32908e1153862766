"""The agent is killed (SIGKILL) at random moments. In the end the files are correct, and no byte that was on the disk was
downloaded again.
"""

import asyncio
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

from ome_operator.agent.disk_files import file_size
from ome_operator.agent.download import Download, Limits
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Store
from ome_operator.storage.listing import Listing, RemoteFile
from ome_operator.storage.sources import Access, open_source
from tests.conftest import SOAK
from tests.support.hub import Answer, Hub, model, served
from tests.support.registry import Front, programs, push, running

KILLS = 200 if SOAK else 12
SEED = int(os.environ.get("OME_SEED", "1"))
DIGEST = "0123abcd"
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["ome_operator.agent.download", "ome_operator.storage.hub"])


def agent(uri: str, url: str, path: str) -> None:
    """Run the agent in the process that the test kills."""

    async def run() -> None:
        found = open_source(uri, Access({"endpoint": url}, {}))
        limits = Limits(files=4, piece=400_000, first=0.01, last=0.1)
        await Download(uri, found, Store(Path(path), DIGEST), limits, Progress()).run()
        await found.close()

    asyncio.run(run())


class Origin(NamedTuple):
    """The source of a model."""

    uri: str
    server: Hub | Front
    files: dict[str, bytes]
    """The files that must be visible in the end."""

    def listed(self) -> dict[str, RemoteFile]:
        """Return the files that the source offers, by the name under which the server counts requests."""

        async def run() -> Listing:
            found = open_source(self.uri, Access({"endpoint": self.server.url}, {}))
            try:
                return await found.listing("")
            finally:
                await found.close()

        by_hash = isinstance(self.server, Front)
        return {one.hash.value if by_hash else one.name: one for one in asyncio.run(run()).files}


def on_disk(store: Store, files: dict[str, RemoteFile]) -> dict[str, list[tuple[int, int]]]:
    """Return, for each file, the ranges of its bytes that are on the disk, verified or not. A range is its first byte and
    the byte after its last.
    """
    found, proven = {}, store.files_in_journal()
    for name, file in files.items():
        places = [folder / file.name for folder in (store.root, store.files)]
        whole = file.name in proven or any(one.is_file() and one.stat().st_size == file.size for one in places)
        pieces = store.partial_path(file).parent.glob(f"{store.partial_path(file).name}.[0-9]*")
        spans = [(int(one.suffix[1:]), int(one.suffix[1:]) + file_size(one)) for one in pieces]
        found[name] = [(0, file.size)] if whole else [(0, file_size(store.partial_path(file))), *spans]
    return found


def test_download_completes_after_agent_is_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    kills = rounds = sent = size = 0
    while kills < KILLS:
        rounds += 1
        with served(Hub(model(SEED * 1000 + rounds, [chance.randrange(1, 3_000_000) for _ in range(12)]))) as hub:
            hub.rate = 6_000_000
            hub.fault = lambda number, name: Answer(cut=400_001 if chance.random() < 0.05 else None)
            kills += one_model(tmp_path / str(rounds), Origin("hf://org/model", hub, hub.files), chance, KILLS - kills)
            sent, size = sent + hub.total, size + hub.size
    lost = (sent - size) / kills
    assert lost > 0, "the agent was killed while bytes arrived"
    print(f"\nseed {SEED}: {kills} kills, {rounds} models of {size:,} bytes; {lost:,.0f} bytes were under way at a kill")


def test_download_with_archives_completes_after_the_agent_is_killed(tmp_path: Path) -> None:
    """The model is an artifact in a real registry, with separate files and archives. The agent is killed at random moments,
    even while it unpacks an archive.
    """
    chance = random.Random(SEED)
    kills = rounds = sent = size = 0
    with running(programs()["registry"]) as registry:
        while kills < KILLS // 2:
            rounds += 1
            parts = [(number, model(number, [1_500_000] * 3)) for number in range(6)]
            files = {f"{number}/{name}": data for number, part in parts for name, data in part.items()}
            for name, data in files.items():
                place = tmp_path / f"made-{rounds}" / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            pushed = ("0", "1", "2", "3", *(name for name in files if name[0] in "45"))
            push(programs()["oras"], tmp_path / f"made-{rounds}", f"{registry}/m/kills:{rounds}", *pushed)
            with served(Front(registry, rate=20_000_000)) as front:
                origin = Origin(f"oci://{front.host}/m/kills:{rounds}", front, files)
                kills += one_model(tmp_path / str(rounds), origin, chance, KILLS // 2 - kills)
                sent, size = sent + front.sent_bytes, size + sum(one.size for one in origin.listed().values())
    lost = (sent - size) / kills
    assert lost > 0, "the agent was killed while bytes arrived"
    print(f"\nseed {SEED}: {kills} kills, {rounds} artifacts of {size:,} bytes; {lost:,.0f} bytes were under way at a kill")


def one_model(folder: Path, origin: Origin, chance: random.Random, most: int) -> int:
    """Download one model with at most `most` kills, and return the number of kills."""
    store, kills, files = Store(folder / "m", DIGEST), 0, origin.listed()
    while True:
        before, first = on_disk(store, files), len(origin.server.sent)
        process = _FORKS.Process(target=agent, args=(origin.uri, origin.server.url, str(folder / "m")))
        process.start()
        while chance.random() < 0.998 and process.is_alive() and len(origin.server.sent) == first:
            time.sleep(0.01)  # usually until the first bytes arrive
        process.join(chance.uniform(0.0, 0.5) if kills < min(most, 10) else 60)
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
            time.sleep(0.02)  # The server detects that the client is gone.
        for one in origin.server.sent[first:]:
            there = [span for span in before[one.name] if span[0] <= one.start < span[1]]
            assert not there, f"{one.name}: {there} was there, asked from {one.start}"
        assert process.exitcode in (0, -signal.SIGKILL)
        if store.manifest() is not None:
            wrong = [name for name, data in origin.files.items() if (store.root / name).read_bytes() != data]
            assert wrong == []
        if process.exitcode == 0:
            assert store.manifest() is not None
            return kills
