"""Fixtures: a release host on loopback, and a separate file of digests."""

import hashlib
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_local.binaries import digests, releases
from ome_local.binaries.versions import TOOLS


def sha(content: bytes) -> str:
    """Return the SHA-256 of the content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


class Host:
    """A release host: the content of each path, and the paths that were requested."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.pauses: dict[str, float] = {}
        """Path → seconds before the body."""

    def release(self, path: str, content: bytes) -> None:
        """Serve this file, and record its digest."""
        self.files[path] = content
        digests.write(digests.read_digests() | {path.removeprefix("/"): sha(content)})


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Host]:
    """Yield a server to which the base addresses of all tools point. The cache is empty, and no digest is known."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            content = found.files.get(self.path)
            self.send_response(404 if content is None else 200)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            time.sleep(found.pauses.get(self.path, 0.0))
            self.wfile.write(b"<html>nothing here</html>" if content is None else content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Host(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for tool in TOOLS.values():
        if tool.base_env:
            monkeypatch.setenv(tool.base_env, found.address + "/")
    known = tmp_path / "known" / "checksums.txt"
    known.parent.mkdir()
    known.touch()
    monkeypatch.setattr(digests, "FILE", known)
    monkeypatch.setenv("OME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_SILENT", {})
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return an empty folder."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"
