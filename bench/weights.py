"""Measures the download of weights: the agent against huggingface_hub's own downloader, and against `cp` and `sha256sum` of
the same files.

All sides download from one hub on loopback, which sends files by sendfile, to the same disk, alternately. All sides end with
the same files. cp with sha256sum is the limit of the disk and one core, and huggingface_hub does not verify hashes at all.
"""

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.results import Fetched, SharedDownload
from ome_operator.agent.download import Download, Limits
from ome_operator.agent.peers import PeerServer, PeerSource, serve
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Store
from ome_operator.agent.throttle import Throttle
from ome_operator.core.weights.mount import Weights
from ome_operator.storage.sources import Access, open_source

COMMIT = "c0ffee" + "0" * 34
COUNTS = (1, 8, 64)
TOTAL = 512 * 1024 * 1024
NODES, SHARED_FILES, SHARED_TOTAL = 8, 32, 64 * 1024 * 1024
HUB_RATE = 40e6
"""Bytes per second that the throttled hub sends to all nodes together."""
TOKEN = "bench"
_HUB = """
import sys
from bench.weights import run_hub
run_hub(sys.argv[1], float(sys.argv[2]))
"""
_SIDES = {
    "agent": """
import asyncio, sys, time
from pathlib import Path
from bench.weights import fetch
began = time.monotonic()
asyncio.run(fetch(sys.argv[1], Path(sys.argv[2])))
print(time.monotonic() - began)
""",
    "huggingface_hub": """
import sys, time
from huggingface_hub import snapshot_download
began = time.monotonic()
snapshot_download("org/model", local_dir=sys.argv[2], endpoint=sys.argv[1], token=False)
print(time.monotonic() - began)
""",
    "cp": """
import subprocess, sys, time
began = time.monotonic()
subprocess.run(f"cp -r {sys.argv[3]}/. {sys.argv[2]} && cd {sys.argv[2]} && sha256sum *.safetensors >/dev/null && sync -f .",
    shell=True, check=True)
print(time.monotonic() - began)
""",
}


def measure(repeat: int) -> tuple[list[Fetched], SharedDownload]:
    """Return the results of both parts: `repeat` downloads by each side, and one by several nodes at the same time."""
    with tempfile.TemporaryDirectory(prefix="ome-bench-") as folder:
        found = [item for count in COUNTS for item in _counts(Path(folder), count, repeat)]
        return found, asyncio.run(_shared(Path(folder)))


def _counts(folder: Path, count: int, repeat: int) -> Iterator[Fetched]:
    files = _files(folder / f"files-{count}", count, TOTAL)
    with _hub(files) as url:
        for repetition in range(repeat):
            for side in sorted(_SIDES, reverse=bool(repetition % 2)):
                place = folder / "place"
                place.mkdir()
                yield Fetched(side, count, TOTAL, _timed(side, url, place, files))
                shutil.rmtree(place)
    shutil.rmtree(files)


def _timed(side: str, url: str, place: Path, files: Path) -> float:
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(place.parent / "hf")}
    argv = [sys.executable, "-c", _SIDES[side], url, str(place), str(files)]
    done = subprocess.run(argv, env={**os.environ, **quiet}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{side}: {done.stderr.splitlines()[-1:]}")
    return float(done.stdout)


async def fetch(url: str, folder: Path, swarm: list[str] | None = None, node: str = "") -> None:
    """Download a model into `folder` as the agent of the node `node` does. `swarm` has the addresses of other nodes from
    which files can be downloaded; if it is None, all files come from the hub.
    """

    async def find() -> list[str]:
        return swarm or []

    found = open_source("hf://org/model", Access({}, {}, url))
    whole = PeerSource(found, find, TOKEN) if swarm is not None else found
    limits = Limits(files=2 if swarm is not None else 8)
    try:
        mine = Weights("ClusterBaseModel", "", "bench", "hf://org/model", str(folder / "m"))
        store = Store(folder / "m", mine.digest, identity=mine._asdict())
        await Download(mine.uri, whole, store, limits, Progress(), node=node).run()
    finally:
        await whole.close()


async def _shared(folder: Path) -> SharedDownload:
    """Download the same model to all nodes at once from a throttled hub, without and with peers."""
    files = _files(folder / "shared", SHARED_FILES, SHARED_TOTAL)
    seconds, sent = [], []
    for peers in (False, True):
        with _hub(files, HUB_RATE) as url:
            nodes = [folder / f"node-{number}" for number in range(NODES)]
            runners = [await serve(PeerServer([str(item)], TOKEN), "127.0.0.1", 0) for item in nodes]
            addresses = [f"http://127.0.0.1:{port}" for _, port in runners]
            began = time.monotonic()
            others = [[item for item in addresses if item != own] if peers else [] for own in addresses]
            await asyncio.gather(*(fetch(url, node, near, node.name) for node, near in zip(nodes, others, strict=True)))
            seconds.append(time.monotonic() - began)
            sent.append(await _sent(url))
            for runner, _ in runners:
                await runner.cleanup()
            for node in nodes:
                shutil.rmtree(node)
    return SharedDownload(NODES, SHARED_TOTAL, HUB_RATE, seconds[0], seconds[1], sent[0], sent[1])


def _files(folder: Path, count: int, total: int) -> Path:
    """Create random files of equal size."""
    folder.mkdir()
    for number in range(count):
        (folder / f"model-{number:05}.safetensors").write_bytes(os.urandom(total // count))
    return folder


@contextmanager
def _hub(files: Path, rate: float = 0.0) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", _HUB, str(files), str(rate)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


async def _sent(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/sent") as answer:
        return int(await answer.text())


class _Hub:
    """A hub that serves the files of a folder."""

    def __init__(self, folder: Path, rate: float) -> None:
        self._folder, self._throttle = folder, Throttle(rate) if rate else None
        self._sent = 0
        found = sorted(folder.iterdir())
        self._files = {item.name: (item.stat().st_size, hashlib.sha256(item.read_bytes()).hexdigest()) for item in found}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/models/org/model/revision/{revision}", self._model)
        app.router.add_get("/api/models/org/model/tree/{revision}", self._tree)
        app.router.add_get("/org/model/resolve/{revision}/{name}", self._give)
        app.router.add_get("/sent", self._told)
        return app

    async def _model(self, _: web.Request) -> web.StreamResponse:
        files = [
            {"rfilename": name, "size": size, "blobId": "0" * 40, "lfs": {"size": size, "sha256": sha, "pointerSize": 1}}
            for name, (size, sha) in self._files.items()
        ]
        return web.json_response({"id": "org/model", "modelId": "org/model", "sha": COMMIT, "siblings": files})

    async def _tree(self, _: web.Request) -> web.StreamResponse:
        common = {"type": "file", "oid": "0" * 40}
        files = [
            {**common, "path": name, "size": size, "lfs": {"oid": sha, "size": size, "pointerSize": 1}}
            for name, (size, sha) in self._files.items()
        ]
        return web.json_response(files)

    async def _told(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=str(self._sent))

    async def _give(self, request: web.Request) -> web.StreamResponse:
        path = self._folder / request.match_info["name"]
        size, sha = self._files[path.name]
        headers = {"X-Repo-Commit": COMMIT, "X-Linked-ETag": f'"{sha}"', "X-Linked-Size": str(size)}
        if request.method == "HEAD" or self._throttle is None:
            return web.FileResponse(path, headers=headers)
        start = int((request.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        response.content_length = size - start
        await response.prepare(request)
        data = path.read_bytes()
        for at in range(start, size, 65536):
            piece = data[at : at + 65536]
            await self._throttle.take(len(piece))
            await response.write(piece)
            self._sent += len(piece)
        return response


def run_hub(folder: str, rate: float) -> None:
    """Run a hub with these files until it is killed. Prints its address."""

    async def start() -> None:
        runner = web.AppRunner(_Hub(Path(folder), rate).app(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(start())
