"""A hub on loopback that implements the requests of huggingface_hub and of the agent. It also lists objects like S3 and like
the XML interface of Google's storage.

Tests can inject faults. The hub counts every byte that it sends, and records where every response began.
"""

import asyncio
import hashlib
import random
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar
from xml.sax.saxutils import escape

from aiohttp import web

from ome_local.pki import Authority

COMMIT = "c0ffee" + "0" * 34
ORIGINALS = "0ddba11" + "0" * 33


@dataclass
class Answer:
    """The fault with which the hub answers one request for the bytes of a file."""

    status: int = 0
    """Status that is returned instead of bytes."""
    cut: int | None = None
    """Number of bytes after which the connection is closed."""
    wrong: bool = False
    """Whether the hub corrupts the file: it changes the value of one byte that it sends."""
    whole: bool = False
    """Whether the hub ignores the requested range and sends the complete file."""


@dataclass
class Sent:
    """A response that the hub has sent."""

    name: str
    start: int
    count: int = 0


@dataclass
class Hub:
    """A fake hub with one model, `org/model`, at one commit. Tests change `files` or `fault` between requests."""

    files: dict[str, bytes]
    original: dict[str, bytes] = field(default_factory=dict)
    """Files of another model, `org/original`, at its own commit. They are smaller than `lfs_from`."""
    lfs_from: int = 1024
    """Minimum size of LFS objects, which have a SHA-256 and are served through a redirect."""
    rate: float = 0.0
    """Bytes per second of one response; 0 for no limit."""
    token: str = ""
    fault: Callable[[int, str], Answer] = lambda number, name: Answer()
    """Called with the number of the request for bytes and the name of the file."""
    sent: list[Sent] = field(default_factory=list)
    listings: list[str] = field(default_factory=list)
    """Revisions that were requested."""
    tokens: list[tuple[str, str]] = field(default_factory=list)
    """(path, Authorization) of every request."""
    url: str = ""
    etag: Callable[[bytes], str] = lambda data: hashlib.md5(data).hexdigest()
    """Returns the ETag of an object in the bucket."""
    cdn: str = "localhost"
    """Host that large files are redirected to. It differs from the hub's own 127.0.0.1."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))

    @property
    def total(self) -> int:
        """Bytes sent so far."""
        return sum(one.count for one in self.sent)

    def app(self) -> web.Application:
        """Return the web application with all routes."""
        app = web.Application(middlewares=[self._seen])
        app.router.add_get("/api/models/org/{repo:model|original}/revision/{revision}", self._model)
        app.router.add_get("/api/models/org/model/tree/{revision}", self._tree)
        app.router.add_get("/org/{repo:model|original}/resolve/{revision}/{name:.+}", self._resolve)
        app.router.add_get("/cdn/{name:.+}", self._bytes)
        app.router.add_get("/bucket", self._list)
        app.router.add_get("/bucket/{name:.+}", self._bytes)
        return app

    @web.middleware
    async def _seen(self, request: web.Request, handler: Callable) -> web.StreamResponse:  # type: ignore[type-arg]
        self.tokens.append((request.path, request.headers.get("Authorization", "")))
        asks_hub = request.path.startswith(("/api/", "/org/"))
        if self.token and asks_hub and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": "Invalid username or password."}, status=401)
        return await handler(request)

    async def _model(self, request: web.Request) -> web.StreamResponse:
        revision = request.match_info["revision"]
        self.listings.append(revision)
        files, commit = self._repository(request)
        if revision not in ("main", "v1", commit):
            headers = {"X-Error-Code": "RevisionNotFound"}
            return web.json_response({"error": f"Invalid rev id: {revision}"}, status=404, headers=headers)
        siblings = [self.sibling(name, data) for name, data in files.items()]
        return web.json_response({"id": "org/model", "modelId": "org/model", "sha": commit, "siblings": siblings})

    def _repository(self, request: web.Request) -> tuple[dict[str, bytes], str]:
        """Return files and commit of the requested model."""
        return (self.original, ORIGINALS) if request.match_info.get("repo") == "original" else (self.files, COMMIT)

    async def _tree(self, request: web.Request) -> web.StreamResponse:
        """Return the list that snapshot_download requests. The agent does not use it."""
        entries = []
        for name, data in self.files.items():
            entry = {"type": "file", "path": name, "size": len(data), "oid": blob(data)}
            if len(data) >= self.lfs_from:
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            entries.append(entry)
        return web.json_response(entries)

    def sibling(self, name: str, data: bytes) -> dict[str, Any]:
        """Return a file's entry in the description of the model."""
        entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob(data)}
        if len(data) >= self.lfs_from:
            entry["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
        return entry

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        files, commit = self._repository(request)
        data = files.get(name)
        if data is None or request.match_info["revision"] not in (commit, "main"):
            return web.json_response({"error": "Entry not found"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
        big = len(data) >= self.lfs_from
        etag = hashlib.sha256(data).hexdigest() if big else blob(data)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if big:
            where = f"{request.scheme}://{self.cdn}:{request.url.port}/cdn/{name}?signature=secret"
            headers |= {"X-Linked-ETag": f'"{etag}"', "X-Linked-Size": str(len(data)), "Location": where}
            return web.Response(status=302, headers=headers)
        if request.method == "HEAD":
            return web.Response(headers=headers | {"Content-Length": str(len(data))})
        return await self._bytes(request, headers)

    async def _bytes(self, request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
        name = request.match_info["name"]
        data = self._repository(request)[0].get(name)
        if data is None:
            return web.Response(status=404)
        if request.method == "HEAD":
            return web.Response(headers={"Content-Length": str(len(data)), "Accept-Ranges": "bytes"})
        fault = self.fault(len(self.sent), name)
        start, end = _range(request.headers.get("Range", ""), len(data))
        if fault.whole:
            start, end = 0, len(data)
        told = Sent(name, start)
        self.sent.append(told)
        if fault.status:
            return web.Response(status=fault.status, headers={"Retry-After": "0"})
        body = bytearray(data[start:end])
        if fault.wrong and body:
            body[len(body) // 2] ^= 1
        partial = "Range" in request.headers and not fault.whole
        response = web.StreamResponse(status=206 if partial else 200, headers=headers or {})
        etag = self.etag(data)
        response.headers.update({"ETag": response.headers.get("ETag", f'"{etag}"'), "Last-Modified": DATE})
        if partial:
            response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        response.content_length = len(body)
        with suppress(ConnectionError):  # the client was killed meanwhile
            await response.prepare(request)
            await pour(request, response, body, fault.cut, told, self.rate)
        return response

    async def _list(self, request: web.Request) -> web.StreamResponse:
        prefix = request.query.get("prefix", "")
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{self.etag(data)}&quot;</ETag></Contents>"
            for name, data in self.files.items()
            if name.startswith(prefix)
        )
        text = f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>'
        return web.Response(text=text, content_type="application/xml")


async def pour(
    request: web.Request, response: web.StreamResponse, body: bytes | bytearray, cut: int | None, sent: Sent, rate: float
) -> None:
    """Send a body at `rate` bytes per second (0 for no limit), and add the number of sent bytes to `sent`. If `cut` is not
    None, the connection is closed after this number of bytes.
    """
    step = 64 * 1024
    for at in range(0, len(body), step):
        piece = bytes(body[at : at + step]) if cut is None else bytes(body[at : min(at + step, max(cut, 0))])
        if piece:
            sent.count += len(
                piece
            )  # counted before it is sent, so that the count is complete when the client has the bytes
            await response.write(piece)
        if cut is not None and at + step >= cut:
            assert request.transport is not None
            request.transport.abort() if cut % 2 else request.transport.close()
            return
        if rate:
            await asyncio.sleep(len(piece) / rate)


DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


def blob(data: bytes) -> str:
    """Return Git's ID of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _range(text: str, size: int) -> tuple[int, int]:
    if not text.startswith("bytes="):
        return 0, size
    start, _, end = text.removeprefix("bytes=").partition("-")
    return int(start), min(size, int(end) + 1) if end else size


def model(seed: int, sizes: list[int]) -> dict[str, bytes]:
    """Return the files of a model: a configuration, and weights of these sizes."""
    chance = random.Random(seed)
    config = b'{"architectures": ["DeepseekV3ForCausalLM"]}'
    files = {"config.json": config, "empty.txt": b"", "tokenizer/vocab.txt": b"a\nb\n"}
    for number, size in enumerate(sizes, 1):
        files[f"model-{number:05}-of-{len(sizes):05}.safetensors"] = chance.randbytes(size)
    return files


class Server(Protocol):
    """A server that can be run in a thread."""

    url: str

    def app(self) -> web.Application:
        """Return the web application."""


S = TypeVar("S", bound=Server)


@contextmanager
def served(hub: S, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[S]:
    """Run the server in its own thread, at an address of this machine."""
    with in_thread(hub.app(), (address,), tls) as port:
        hub.url = f"{'https' if tls else 'http'}://{address}:{port}"
        yield hub


def certificate(folder: Path, addresses: Sequence[str] = ()) -> ssl.SSLContext:
    """Write a certificate for a server on loopback and at these addresses. `<folder>/ca.crt` is the authority for
    SSL_CERT_FILE.
    """
    folder.mkdir(exist_ok=True)
    Authority(folder).server("server", addresses)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


@contextmanager
def in_thread(app: web.Application, addresses: Sequence[str], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run the server in its own thread at these addresses of this machine. Yields the port, which is the same at each
    address.
    """
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        for address in addresses:
            await web.TCPSite(runner, address, ports[0] if ports else 0, ssl_context=context).start()
            ports.append(runner.addresses[0][1])
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.call_soon(ready.set)  # or else a test without any request would stop the loop before it runs
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
