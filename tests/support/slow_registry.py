"""A registry of generated images that takes a given time to send them: a program's image with a layer of random bytes."""

import asyncio
import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.hub import in_thread

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG, LAYER = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"
BLOCK = 1 << 20


@dataclass
class SlowRegistry:
    """A registry that sends `rate` bytes per second to each connection."""

    archive: Path
    """The docker-archive of the program."""
    rate: float
    blobs: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Digest -> media type and content."""
    tags: dict[str, str] = field(default_factory=dict)
    """Tag -> digest of its manifest."""
    port: int = 0

    def add(self, tag: str, size: int) -> None:
        """Add an image with a layer of `size` random bytes that no other image has."""
        with tarfile.open(self.archive) as archive:
            (listed,) = json.loads(_read(archive, "manifest.json"))
            config = json.loads(_read(archive, listed["Config"]))
            layers = [_read(archive, name) for name in listed["Layers"]]
        layers.append(_padding(size))
        config["rootfs"]["diff_ids"].append(_digest(layers[-1]))
        config.pop("history", None)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._keep(CONFIG, json.dumps(config).encode()),
            "layers": [self._keep(LAYER, layer) for layer in layers],
        }
        self.tags[tag] = self._keep(MANIFEST, json.dumps(manifest).encode())["digest"]

    def _keep(self, kind: str, data: bytes) -> dict[str, Any]:
        self.blobs[_digest(data)] = kind, data
        return {"mediaType": kind, "digest": _digest(data), "size": len(data)}

    def app(self) -> web.Application:
        """Return the application: the part of the distribution API that a pull needs."""
        made = web.Application()
        made.router.add_get("/v2/", _version)
        made.router.add_get("/v2/{repository:.+}/{kind:manifests|blobs}/{reference}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = request.match_info["reference"]
        digest = self.tags.get(asked, asked)
        if digest not in self.blobs:
            return web.json_response({"errors": [{"code": "MANIFEST_UNKNOWN"}]}, status=404)
        kind, data = self.blobs[digest]
        headers = {"Content-Type": kind, "Docker-Content-Digest": digest, "Content-Length": str(len(data))}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        if request.method != "HEAD":
            began = time.monotonic()
            for start in range(0, len(data), BLOCK):
                await response.write(data[start : start + BLOCK])
                await _until(began + min(start + BLOCK, len(data)) / self.rate)
        await response.write_eof()
        return response


@contextmanager
def running(archive: Path, rate: float, addresses: tuple[str, ...] = ()) -> Iterator[SlowRegistry]:
    """Run a registry without images that listens without TLS on loopback and on these addresses, on the same port."""
    made = SlowRegistry(archive, rate)
    with in_thread(made.app(), ("127.0.0.1", *addresses)) as port:
        made.port = port
        yield made


async def _version(_: web.Request) -> web.Response:
    return web.json_response({})


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


def _padding(size: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("padding")
        entry.size = size
        archive.addfile(entry, io.BytesIO(os.urandom(size)))
    return out.getvalue()


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
