"""The agent is killed (SIGKILL) at random moments: files end right, and no byte that reached the disk is asked for again."""

import asyncio
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

from ome_operator.agent.download import Download, Limits
from ome_operator.agent.hashes import Hash
from ome_operator.agent.listing import RemoteFile
from ome_operator.agent.progress import Progress
from ome_operator.agent.sources import Access, source
from ome_operator.agent.store import Store
from tests.support.hub import Answer, Hub, model, served

KILLS = 200 if os.environ.get("OME_SOAK") else 20
SEED = int(os.environ.get("OME_SEED", "1"))
URI, DIGEST = "hf://org/model", "0123abcd"
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["huggingface_hub.hf_api", "ome_operator.agent.download", "ome_operator.agent.sources.hub"])


def agent(url: str, path: str) -> None:
    """What the process does that is killed."""

    async def run() -> None:
        found = source(URI, Access({}, {}, url))
        limits = Limits(files=4, first=0.01, last=0.1)
        await Download(URI, found, Store(Path(path), DIGEST), limits, Progress()).run()
        await found.close()

    asyncio.run(run())


def on_disk(store: Store, hub: Hub) -> dict[str, int]:
    """Bytes of every file that are on the disk, proven or on their way."""
    found = {}
    for name, data in hub.files.items():
        entry = hub.sibling(name, data)
        proof = Hash("sha256", entry["lfs"]["sha256"]) if "lfs" in entry else Hash("git", str(entry["blobId"]))  # type: ignore[index]
        places = [folder / name for folder in (store.root, store.files)]
        whole = any(one.is_file() and one.stat().st_size == len(data) for one in places)
        found[name] = len(data) if whole else store.have(RemoteFile(name, len(data), proof))
    return found


def test_kills_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    kills = rounds = sent = size = 0
    while kills < KILLS:
        rounds += 1
        with served(Hub(model(SEED * 1000 + rounds, [chance.randrange(1, 3_000_000) for _ in range(12)]))) as hub:
            hub.rate = 6_000_000
            hub.fault = lambda number, name: Answer(cut=400_001 if chance.random() < 0.05 else None)
            kills += one_model(tmp_path / str(rounds), hub, chance, KILLS - kills)
            sent, size = sent + hub.total, size + hub.size
    lost = (sent - size) / kills
    print(f"\nseed {SEED}: {kills} kills, {rounds} models of {size:,} bytes; {lost:,.0f} bytes were under way at a kill")


def one_model(folder: Path, hub: Hub, chance: random.Random, most: int) -> int:
    """Fetch one model with kills in between; how many there were."""
    store, kills, folder_path = Store(folder / "m", DIGEST), 0, str(folder / "m")
    while True:
        before, first = on_disk(store, hub), len(hub.sent)
        process = _FORKS.Process(target=agent, args=(hub.url, folder_path))
        process.start()
        process.join(chance.uniform(0.05, 0.6) if kills < min(most, 10) else 60)
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
            time.sleep(0.02)  # the hub notices that nobody reads
        for one in hub.sent[first:]:
            assert one.start >= before[one.name], f"{one.name}: {before[one.name]} bytes were there, asked from {one.start}"
        assert process.exitcode in (0, -signal.SIGKILL)
        if store.manifest() is not None:
            wrong = [name for name, data in hub.files.items() if (store.root / name).read_bytes() != data]
            assert wrong == []
        if process.exitcode == 0:
            assert store.manifest() is not None
            return kills
