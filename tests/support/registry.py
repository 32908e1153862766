"""A real OCI registry, the program `oras` that pushes to it, and a server in front of it that delays, breaks or protects its
answers.
"""

import base64
import os
import re
import secrets
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from ome_local.binaries import ensure
from ome_operator.errors import UserError
from release.programs import ORAS, REGISTRY
from tests.support.hub import Answer, Sent, pour

GOMODS = Path(__file__).parent / "gomods"


def programs() -> dict[str, Path]:
    """Return the paths of the registry and of oras, which are built once. Skips the test if that is not possible."""
    try:
        return ensure.provide([REGISTRY, ORAS])
    except UserError as error:
        pytest.skip(f"no registry to test with: {error}")


@contextmanager
def running(program: Path) -> Iterator[str]:
    """Run an empty registry, and yield its address (host:port)."""
    process = subprocess.Popen([program, "-port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"port (\d+)", process.stderr.readline())
        assert found is not None
        # It logs every request, and would block forever after 64 KiB of unread output.
        threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
        yield f"localhost:{found[1]}"
    finally:
        process.terminate()
        process.wait()


def push(program: Path, folder: Path, reference: str, *files: str) -> str:
    """Push files (`path[:type]`) below a folder with oras, and return the digest of the artifact."""
    done = subprocess.run(
        [program, "push", "--plain-http", reference, *files],
        cwd=folder, env={**os.environ, "DOCKER_CONFIG": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.search(r"Digest: (sha256:\w+)", done.stdout)
    assert found is not None
    return found[1]


@dataclass
class Front:
    """A server in front of the registry that forwards requests."""

    registry: str
    """Address (host:port) of the registry."""
    scheme: str = ""
    """Required authentication: basic or bearer; "" for none."""
    user: str = "puller:s3cret"
    uses: int = 1000
    """Number of requests for which a token is valid."""
    rate: float = 0.0
    fault: Callable[[int, str], Answer] = lambda number, name: Answer()
    """Called with the number of the request for a blob and the SHA-256 of the blob."""
    sent: list[Sent] = field(default_factory=list)
    refused: int = 0
    url: str = ""
    _tokens: dict[str, int] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Return the host as it is written in a URI."""
        return self.url.removeprefix("http://")

    @property
    def sent_bytes(self) -> int:
        """Return the bytes of blobs sent so far."""
        return sum(one.count for one in self.sent)

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application()
        app.router.add_get("/token", self._token)
        app.router.add_get("/v2/{rest:.+}", self._answer)
        return app

    async def _token(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != self._basic() or not re.fullmatch(
            r"repository:[a-z0-9/]+:pull", request.query.get("scope", "")
        ):
            return web.Response(status=401)
        token = secrets.token_hex(8)
        self._tokens[token] = self.uses
        return web.json_response({"token": token})

    def _basic(self) -> str:
        return f"Basic {base64.b64encode(self.user.encode()).decode()}"

    def _open(self, shown: str) -> bool:
        if self.scheme == "bearer":
            token = shown.removeprefix("Bearer ")
            self._tokens[token] = self._tokens.get(token, 0) - 1
            return self._tokens[token] >= 0
        return not self.scheme or shown == self._basic()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not self._open(request.headers.get("Authorization", "")):
            self.refused += 1
            bearer = f'Bearer realm="{self.url}/token",service="test",scope="repository:pull"'
            asked = {"bearer": bearer, "basic": 'Basic realm="test"'}[self.scheme]
            return web.Response(status=401, headers={"WWW-Authenticate": asked})
        wanted = {key: request.headers[key] for key in ("Accept", "Range") if key in request.headers}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.get(f"http://{self.registry}{request.path}", headers=wanted) as answer,
        ):
            status, headers, body = answer.status, answer.headers, bytearray(await answer.read())
        kept = {key: headers[key] for key in ("Content-Type", "Content-Range", "Docker-Content-Digest") if key in headers}
        if "/blobs/" not in request.path:
            return web.Response(status=status, headers=kept, body=bytes(body))
        return await self._blob(request, status, kept, body)

    async def _blob(self, request: web.Request, status: int, headers: dict[str, str], body: bytearray) -> web.StreamResponse:
        name = request.path.rpartition(":")[2]
        fault = self.fault(len(self.sent), name)
        start = re.match(r"bytes=(\d+)", request.headers.get("Range", ""))
        told = Sent(name, int(start[1]) if start else 0)
        self.sent.append(told)
        if fault.status:
            return web.Response(status=fault.status)
        if fault.wrong and body:
            body[len(body) // 2] ^= 1
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(body)
        with suppress(ConnectionError):  # the client was killed
            await response.prepare(request)
            await pour(request, response, body, fault.cut, told, self.rate)
        return response
