"""Files from nodes that have them already, before the source itself is asked.

Files are asked for by their hash, for a namespace: a node gives files of that namespace's models and of the whole
cluster's, since a hash is no proof that somebody may have the bytes. A file can be had as soon as it is proven, long
before its model is whole. What comes is checked like everything else; a file that came wrong is fetched from the source
the next time. All agents share one token: weights may be somebody's secret.
"""

import asyncio
import hmac
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from ome_operator.agent.owners import homes, known_files
from ome_operator.storage.http import ranged, session
from ome_operator.storage.listing import Listing, RemoteFile, Source, SourceError

ASKED = 8
"""Peers that are asked for a file; with more nodes a random choice of them."""
UPLOADS = 16
"""Files that a node gives at a time; then it sends askers away."""
PATIENCE = aiohttp.ClientTimeout(total=2.0)
INDEX_S = 2.0
"""Seconds for which a look at the disk counts."""

Find = Callable[[], Awaitable[list[str]]]
"""Addresses (`http://host:port`) of other agents."""


class Swarm:
    """A source with peers before it."""

    def __init__(
        self, source: Source, find: Find, token: str, chance: random.Random | None = None, *, namespace: str = ""
    ) -> None:
        self._source, self._find, self._token, self._namespace = source, find, token, namespace
        self._chance = chance or random.Random()
        self._session: aiohttp.ClientSession | None = None
        self._suspect: set[str] = set()
        self.fetched = 0
        """Bytes that came from peers."""

    async def listing(self, revision: str) -> Listing:
        """What there is says the source alone."""
        return await self._source.listing(revision)

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """From a peer that has it; from the source when there is none, or when the peer fails."""
        alone = file.name in self._suspect or file.hash.algorithm == "size" or not file.size
        if peer := "" if alone else await self._peer(file):
            assert self._session is not None
            try:
                async for data in ranged(self._session, peer + self._path(file), start, end, file.size, self._headers()):
                    start += len(data)
                    self.fetched += len(data)
                    yield data
                return
            except SourceError:
                pass
        async for data in self._source.read(listing, file, start, end):
            yield data

    def suspect(self, file: RemoteFile) -> None:
        """A file came wrong: from now on only the source is asked for it."""
        self._suspect.add(file.name)

    async def close(self) -> None:
        """Close connections."""
        await self._source.close()
        if self._session is not None:
            await self._session.close()

    async def _peer(self, file: RemoteFile) -> str:
        """The least busy of some peers that have a file, "" when none does."""
        try:
            peers = await self._find()
        except OSError:  # names are not resolved now
            return ""
        self._session = self._session or session()
        chosen = self._chance.sample(peers, min(ASKED, len(peers)))
        answers = await asyncio.gather(*(self._ask(one, file) for one in chosen))
        pairs = zip(chosen, answers, strict=True)
        having = [(busy, self._chance.random(), peer) for peer, busy in pairs if busy is not None]
        return min(having)[2] if having else ""

    async def _ask(self, peer: str, file: RemoteFile) -> int | None:
        """How many files a peer gives now if it has this one, else None."""
        assert self._session is not None
        try:
            async with self._session.head(peer + self._path(file), headers=self._headers(), timeout=PATIENCE) as answer:
                return int(answer.headers.get("X-Busy", "0")) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    def _path(self, file: RemoteFile) -> str:
        """Agents of before know no namespaces: they have nothing at the second path, and so give nobody others'
        files.
        """
        below = f"/namespaces/{self._namespace}" if self._namespace else ""
        return f"{below}/files/{quote(str(file.hash), safe='')}"

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}


class Giver:
    """Gives proven files of this disk to agents that show the token."""

    def __init__(self, roots: Iterable[str], token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._roots, self._token, self._clock = [Path(one) for one in roots], token, clock
        self._index: dict[tuple[str, str], Path] = {}
        """By namespace ("" for files of the whole cluster) and hash."""
        self._indexed_at = -1e9
        self.busy = 0
        """Files that it gives now."""
        self.given = 0
        """Answers with bytes so far."""

    def app(self) -> web.Application:
        """GET and HEAD of `/files/<hash>` for models of the whole cluster, below `/namespaces/<namespace>` for others."""
        app = web.Application()
        app.router.add_get("/files/{hash}", self._answer)
        app.router.add_get("/namespaces/{namespace}/files/{hash}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "")
        if not self._token or not hmac.compare_digest(shown.encode(), f"Bearer {self._token}".encode()):
            return web.Response(status=401)
        path = await self._find(request.match_info["hash"], request.match_info.get("namespace", ""))
        if path is None:
            return web.Response(status=404)
        if request.method == "HEAD":
            return web.Response(headers={"X-Busy": str(self.busy)}, status=200 if self.busy < UPLOADS else 503)
        if self.busy >= UPLOADS:
            return web.Response(status=503)
        return _Counted(self, path)

    async def _find(self, text: str, namespace: str = "") -> Path | None:
        mine = dict.fromkeys([(namespace, text), ("", text)])
        if not (self._index.keys() & mine) and self._clock() - self._indexed_at > INDEX_S:
            self._index = await asyncio.to_thread(self._look)
            self._indexed_at = self._clock()
        return next((path for each in mine if (path := self._index.get(each)) is not None and path.is_file()), None)

    def _look(self) -> dict[tuple[str, str], Path]:
        """Every proven file below the roots."""
        found = (file for home in homes(self._roots) for file in known_files(home) if file.proven.hash.algorithm != "size")
        return {(file.namespace, str(file.proven.hash)): file.path for file in found}


class _Counted(web.FileResponse):
    """A file, or a range of it, while the giver counts it."""

    def __init__(self, giver: Giver, path: Path) -> None:
        super().__init__(path)
        self._giver = giver

    async def prepare(self, request: web.BaseRequest) -> Any:
        self._giver.busy += 1
        self._giver.given += 1
        try:
            return await super().prepare(request)
        finally:
            self._giver.busy -= 1


async def serve(giver: Giver, address: str, port: int) -> tuple[web.AppRunner, int]:
    """Give files until the runner is cleaned up; the port that was really taken."""
    runner = web.AppRunner(giver.app(), access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, address or None, port).start()
    return runner, int(runner.addresses[0][1])


def resolver(name: str, port: int, own: str) -> Find:
    """Addresses behind a headless Service's name, without our own."""

    async def find() -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, proto=6)
        hosts = {str(one[4][0]) for one in found} - {own}
        return [f"http://[{one}]:{port}" if ":" in one else f"http://{one}:{port}" for one in sorted(hosts)]

    return find
