"""Download files from other nodes that already have them, before contacting the source.

A request contains the hash of the file and a namespace. A node serves only files of that namespace's models and of
cluster-scoped models, because a known hash does not prove that the requester may read the bytes. A file is served as soon as
it is verified, long before its model is complete. Received bytes are verified like bytes from the source; a file that
arrived with a wrong hash is downloaded from the source the next time. All agents share one token, because weights may be
confidential. Requests are signed with the token. A signature is valid for one file, for the agent at one address, and for
two minutes. The token itself is never sent, because the address of an agent that has ended may belong to another pod.
"""

import asyncio
import hmac
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from ome_operator.agent.access import find_homes, proven_files
from ome_operator.storage.addresses import host_and_port
from ome_operator.storage.http import Credential, read_range, session
from ome_operator.storage.listing import Listing, RemoteFile, Source, SourceError

PEERS_ASKED = 8
"""Maximum number of peers that are asked for a file. If there are more peers, a random selection of them is asked."""
UPLOADS = 16
"""Maximum number of files that a node serves at the same time; further requests are answered with status 503."""
PATIENCE = aiohttp.ClientTimeout(total=2.0)
INDEX_S = 2.0
"""Seconds for which the index of files on the disk stays valid."""

AVOID_S = 600.0
"""Seconds for which no file is requested from a peer after the peer did not send all bytes of a file."""
CLOCKS_S = 120.0
"""Maximum difference in seconds between the clocks of two nodes. A signature is valid for this time."""

Find = Callable[[], Awaitable[list[str]]]
"""A function that returns the addresses (`http://host:port`) of other agents."""


def authorization_header(token: str, method: str, address: str, namespace: str, hash: str, at: int) -> str:
    """Return the value of the header Authorization for a request of the file with the hash `hash` and the namespace
    `namespace`. `address` is the address of the agent that receives the request, and `at` is the time of the signature in
    seconds since 1970.
    """
    text = "\n".join((method, address, namespace, hash, str(at)))
    return f"OME-SHA256 {at} {hmac.new(token.encode(), text.encode(), 'sha256').hexdigest()}"


class PeerSource:
    """A source of files. It downloads a file from another agent (a peer) if a peer has the file, and otherwise from the
    original source.
    """

    def __init__(
        self,
        source: Source,
        find: Find,
        token: str,
        chance: random.Random | None = None,
        *,
        namespace: str = "",
        avoided: MutableMapping[str, float] | None = None,
    ) -> None:
        """Initialize the source. `source` is the original source, `find` returns the peers, `token` signs the requests, and
        `namespace` is the model's namespace. `avoided` maps each peer to the monotonic time before which it gets no request;
        the sources of several models share this map.
        """
        self._avoided = {} if avoided is None else avoided
        self._source, self._find, self._token, self._namespace = source, find, token, namespace
        self._chance = chance or random.Random()
        self._session: aiohttp.ClientSession | None = None
        self._suspect: set[str] = set()
        self.fetched = 0
        """Number of bytes that were downloaded from peers."""

    async def listing(self, revision: str) -> Listing:
        """Return the list of files, which always comes from the source itself."""
        return await self._source.listing(revision)

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes of a file. They come from a peer that has the file, or from the source if no peer has the file or
        the peer fails.
        """
        source_only = file.name in self._suspect or file.hash.algorithm == "size" or not file.size
        if peer := "" if source_only else await self._peer(file):
            assert self._session is not None
            url, shown = peer + self._path(file), Credential(self._header("GET", peer, file))
            complete = False
            try:
                async for data in read_range(self._session, url, start, end, file.size, shown, redirects=False):
                    start += len(data)
                    self.fetched += len(data)
                    yield data
                complete = start >= end
                return
            except SourceError:
                pass
            finally:  # also closes the connection if the peer is too slow, because this iterator is then closed
                if not complete:
                    self._avoid(peer)
        async for data in self._source.read(listing, file, start, end):
            yield data

    def report_wrong_hash(self, file: RemoteFile) -> None:
        """Record that a peer has sent this file with a wrong hash. From now on, the file is requested only from the original
        source.
        """
        self._suspect.add(file.name)

    def _avoid(self, peer: str) -> None:
        self._avoided[peer] = time.monotonic() + AVOID_S

    async def close(self) -> None:
        """Close the connections to peers and the original source."""
        await self._source.close()
        if self._session is not None:
            await self._session.close()

    async def _peer(self, file: RemoteFile) -> str:
        """Ask up to PEERS_ASKED peers for the file. Return the URL of the peer that has the file and serves the fewest files
        at present; "" if no peer has the file.
        """
        try:
            peers = await self._find()
        except OSError:  # DNS does not answer now
            return ""
        self._session = self._session or session(proxies=False)
        peers = [peer for peer in peers if self._avoided.get(peer, 0.0) <= time.monotonic()]
        chosen = self._chance.sample(peers, min(PEERS_ASKED, len(peers)))
        answers = await asyncio.gather(*(self._ask(peer, file) for peer in chosen))
        pairs = zip(chosen, answers, strict=True)
        candidates = [(busy, self._chance.random(), peer) for peer, busy in pairs if busy is not None]
        return min(candidates)[2] if candidates else ""

    async def _ask(self, peer: str, file: RemoteFile) -> int | None:
        """Return how many files the peer with the URL `peer` is serving at present; None if the peer does not have the file
        `file` or does not answer.
        """
        assert self._session is not None
        try:
            headers = {"Authorization": self._header("HEAD", peer, file)}
            async with self._session.head(peer + self._path(file), headers=headers, timeout=PATIENCE) as answer:
                return max(0, int(answer.headers.get("X-Busy", "0"))) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    def _path(self, file: RemoteFile) -> str:
        """Return the URL path of a file. Agents of earlier versions do not support namespaces: they respond with 404 to a
        path that contains a namespace, so that they never serve files of other namespaces.
        """
        below = f"/namespaces/{self._namespace}" if self._namespace else ""
        return f"{below}/files/{quote(str(file.hash), safe='')}"

    def _header(self, method: str, peer: str, file: RemoteFile) -> str:
        address = host_and_port(peer)[0]
        return authorization_header(self._token, method, address, self._namespace, str(file.hash), int(time.time()))


class PeerServer:
    """An HTTP server that sends verified files of this disk to agents with the token."""

    def __init__(
        self, roots: Iterable[str], token: str, clock: Callable[[], float] = time.monotonic, *, own_address: str = ""
    ) -> None:
        """Initialize the server. `roots` are the directories below which the agent stores weights. `token` is the token that
        all agents share. `own_address` is the address at which other agents contact the server; "" if it is not known.
        """
        self._roots, self._token, self._clock = [Path(root) for root in roots], token, clock
        self._own_address = own_address
        self._index: dict[tuple[str, str], Path] = {}
        """Maps (namespace, hash) to the path of the file. The namespace is "" for files of cluster-scoped models."""
        self._indexed_at = -1e9
        self.busy = 0
        """Number of files that are being served at present."""
        self.given = 0
        """Number of responses that contained bytes of a file, since the start of the process."""

    def app(self) -> web.Application:
        """Return the web application. It serves GET and HEAD of `/files/<hash>` for cluster-scoped models, and of
        `/namespaces/<namespace>/files/<hash>` for the models of a namespace.
        """
        app = web.Application()
        app.router.add_get("/files/{hash}", self._answer)
        app.router.add_get("/namespaces/{namespace}/files/{hash}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not self._token or not self._is_signed(request):
            return web.Response(status=401)
        path = await self._find(request.match_info["hash"], request.match_info.get("namespace", ""))
        if path is None:
            return web.Response(status=404)
        if request.method == "HEAD":
            return web.Response(headers={"X-Busy": str(self.busy)}, status=200 if self.busy < UPLOADS else 503)
        if self.busy >= UPLOADS:
            return web.Response(status=503)
        return _Counted(self, path)

    def _is_signed(self, request: web.Request) -> bool:
        """Return whether a request was signed with the token, for this file, this agent and the present time."""
        given = request.headers.get("Authorization", "")
        at = given.split(" ")[1] if given.count(" ") == 2 else ""
        if not (at.isascii() and at.isdigit() and len(at) < 20) or abs(time.time() - int(at)) > CLOCKS_S:
            return False
        address, found = self._own_address or host_and_port(f"http://{request.host}")[0], request.match_info
        expected = authorization_header(
            self._token, request.method, address, found.get("namespace", ""), found["hash"], int(at)
        )
        return hmac.compare_digest(given.encode(errors="replace"), expected.encode())

    async def _find(self, text: str, namespace: str = "") -> Path | None:
        keys = dict.fromkeys([(namespace, text), ("", text)])
        if not (self._index.keys() & keys) and self._clock() - self._indexed_at > INDEX_S:
            self._index = await asyncio.to_thread(self._scan)
            self._indexed_at = self._clock()
        return next((path for key in keys if (path := self._index.get(key)) is not None and path.is_file()), None)

    def _scan(self) -> dict[tuple[str, str], Path]:
        """Return a mapping from (namespace, hash) to the path of a verified file. It contains every verified file below the
        roots that has a hash.
        """
        files = (
            file for home in find_homes(self._roots) for file in proven_files(home) if file.verified.hash.algorithm != "size"
        )
        return {(file.namespace, str(file.verified.hash)): file.path for file in files}


class _Counted(web.FileResponse):
    """A response with a file or a range of a file. While the response is being sent, it increases the server's number of
    busy files.
    """

    def __init__(self, server: PeerServer, path: Path) -> None:
        super().__init__(path)
        self._server = server

    async def prepare(self, request: web.BaseRequest) -> Any:
        self._server.busy += 1
        self._server.given += 1
        try:
            return await super().prepare(request)
        finally:
            self._server.busy -= 1


async def serve(server: PeerServer, address: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve files until the returned runner is cleaned up. Return the runner and the port on which it listens."""
    runner = web.AppRunner(server.app(), access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, address or None, port).start()
    return runner, int(runner.addresses[0][1])


def resolver(name: str, port: int, own: str) -> Find:
    """Return a function that resolves the name of a headless Service to the addresses of all agents except the agent at
    the address `own`.
    """

    async def find() -> list[str]:
        addresses = await asyncio.get_running_loop().getaddrinfo(name, port, proto=6)
        hosts = {str(entry[4][0]) for entry in addresses} - {own}
        return [f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host in sorted(hosts)]

    return find
