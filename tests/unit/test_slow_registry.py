"""Tests of the registry with which the gain of pulling images before rollouts is measured on a real node."""

import hashlib
import io
import json
import tarfile
import time
import urllib.request
from pathlib import Path

from tests.support import slow_registry

SIZE, SECONDS = 2 * 2**20, 0.4
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def archive(folder: Path) -> Path:
    """Return a docker-archive of one layer."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": ["sha256:1"]},
        "history": [{}],
    }
    files = {
        "manifest.json": json.dumps([{"Config": "c.json", "Layers": ["layer.tar"]}]).encode(),
        "c.json": json.dumps(config).encode(),
        "layer.tar": b"a layer",
    }
    made = folder / "image.tar"
    with tarfile.open(made, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made


def test_every_blob_has_its_digest_and_a_limited_speed(tmp_path: Path) -> None:
    with slow_registry.running(archive(tmp_path), SIZE / SECONDS) as made:
        made.add("1", SIZE)
        made.add("2", SIZE)
        assert made.tags["1"] != made.tags["2"]
        base = f"http://127.0.0.1:{made.port}/v2/engine"
        with OPEN(f"{base}/manifests/1") as reply:
            assert reply.headers["Docker-Content-Digest"] == made.tags["1"]
            manifest = json.loads(reply.read())
        began = time.monotonic()
        for part in (manifest["config"], *manifest["layers"]):
            with OPEN(f"{base}/blobs/{part['digest']}") as reply:
                data = reply.read()
            assert len(data) == part["size"] and part["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            if part is manifest["config"]:
                assert len(json.loads(data)["rootfs"]["diff_ids"]) == len(manifest["layers"]) == 2
        assert time.monotonic() - began >= SECONDS
