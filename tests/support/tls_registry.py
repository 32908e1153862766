"""A registry behind TLS, as users have it: a server in front of the registry has a certificate of its own authority, and can
refuse requests.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.support import registry
from tests.support.hub import certificate, in_thread

_PASSED_ON = ("Content-Type", "Content-Range", "Content-Length", "Accept", "Range")
_PASSED_BACK = ("Content-Type", "Content-Range", "Content-Length", "Location", "Range", "Docker-Content-Digest")


@dataclass
class Front:
    """A server that receives requests over TLS and forwards them to the registry."""

    behind: str
    """host:port of the registry."""
    authority: Path
    """The certificate that SSL_CERT_FILE names."""
    refuse: Callable[[str, str], int] = lambda method, path: 0
    """Returns the status with which a request (method, path) is refused; 0 to forward it."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    host: str = ""
    """The host in names of images: 127.0.0.1:port."""
    port: int = 0

    def app(self) -> web.Application:
        """Return the application, which forwards all routes to the registry."""
        made = web.Application(client_max_size=0)
        made.router.add_route("*", "/{rest:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if status := self.refuse(request.method, request.path):
            return web.json_response({"errors": [{"code": "DENIED", "message": "not yours"}]}, status=status)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        body = request.content if request.can_read_body else None
        timeout = aiohttp.ClientTimeout(total=600)
        if request.method == "DELETE":
            self._forget(request.path)
        async with (
            aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session,
            session.request(
                request.method, f"http://{self.behind}{request.path_qs}", headers=headers, data=body, allow_redirects=False
            ) as answer,
        ):
            kept = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            if request.method != "HEAD":
                async for block in answer.content.iter_chunked(1 << 20):
                    await response.write(block)
            await response.write_eof()
            return response

    def _forget(self, path: str) -> None:
        """Delete the tags of a deleted manifest, because this registry would keep them."""
        repository, _, digest = path.removeprefix("/v2/").partition("/manifests/")
        for tag in self.tags(repository):
            place = f"http://{self.behind}/v2/{repository}/manifests/{tag}"
            with urllib.request.urlopen(place, timeout=10) as reply:
                found = reply.headers["Docker-Content-Digest"]
            if found == digest:
                urllib.request.urlopen(urllib.request.Request(place, method="DELETE"), timeout=10).close()

    def tags(self, repository: str) -> list[str]:
        """Return the tags in a repository; [] if it does not exist."""
        try:
            with urllib.request.urlopen(f"http://{self.behind}/v2/{repository}/tags/list", timeout=10) as reply:
                return list(json.load(reply)["tags"] or [])
        except urllib.error.HTTPError:
            return []


@contextmanager
def running(folder: Path, addresses: Sequence[str] = ()) -> Iterator[Front]:
    """Run a registry that listens on loopback and on these addresses, on the same port."""
    context = certificate(folder, addresses)
    with registry.running(registry.programs()["registry"]) as behind:
        front = Front(behind, folder / "ca.crt")
        with in_thread(front.app(), ("127.0.0.1", *addresses), context) as port:
            front.port, front.host = port, f"127.0.0.1:{port}"
            yield front
