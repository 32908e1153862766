"""Servers that implement the protocols of object stores: Versity's gateway (S3), fake-gcs-server (Google) and Azurite
(Azure).

Only `make soak` builds them, because this takes minutes. Other runs use them if they are in the cache.
"""

import asyncio
import base64
import email.utils
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from ome_local.binaries import ensure
from ome_local.binaries.versions import Tool, this_machine
from ome_operator.errors import UserError
from ome_operator.storage.sources import Access, open_bucket
from release.programs import program
from tests.support.registry import GOMODS

VERSITY = Tool(
    name="versitygw",
    module="versitygw",
    version="1.8.0",
    package="github.com/versity/versitygw/cmd/versitygw",
    gomods=GOMODS,
)
FAKE_GCS = Tool(
    name="fake-gcs-server",
    module="fake-gcs-server",
    version="1.56.1",
    package="github.com/fsouza/fake-gcs-server",
    gomods=GOMODS,
)
AZURITE = "3.35.0"
"""The newest version that runs on the Node.js of Debian and Ubuntu."""
ACCOUNT = "devstoreaccount1"
KEY = base64.b64encode(b"a key of sixty-four bytes, which only this test and Azurite know").decode()
BUCKET = "models"


class BucketPlace(NamedTuple):
    """An existing bucket and its credentials."""

    uri: str
    """URI of the bucket, to which a prefix is appended."""
    parameters: Mapping[str, str]
    secret: Mapping[str, str]
    proof: str
    """The algorithm by which files are verified if they were sent in one piece."""
    upload: str = ""
    """URL to POST an object to, followed by its name, if the agent's own client cannot write to the server."""


def upload_objects(place: BucketPlace, prefix: str, files: Mapping[str, bytes]) -> None:
    """Upload objects below a prefix. A large object is uploaded in parts if the protocol permits it."""
    target = open_bucket(f"{place.uri}/{prefix}", Access(place.parameters, place.secret))
    for name, data in files.items():
        if place.upload:
            urllib.request.urlopen(place.upload + quote(f"{prefix}/{name}", safe=""), data).close()
        else:
            asyncio.run(target.write(name, data))


def _program(tool: Tool) -> Path:
    target = this_machine()
    if not ensure.program_path(tool, target).exists() and not os.environ.get("OME_SOAK"):
        pytest.skip(f"{tool.name} is not built yet, which takes minutes: `make soak` does (OME_SOAK=1)")
    try:
        return program(tool)
    except UserError as error:
        pytest.skip(f"{tool.name} cannot be built: {error}")


def _azurite() -> list[str]:
    """Return the command that runs Azurite. npm downloads Azurite once."""
    folder = ensure.cache_dir() / f"azurite-{AZURITE}"
    script = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Azurite needs Node, which is not installed here")
    if not script.exists():
        if not os.environ.get("OME_SOAK"):
            pytest.skip("Azurite is not fetched yet, which takes a minute: `make soak` does (OME_SOAK=1)")
        command = [npm, "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", f"azurite@{AZURITE}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"Azurite cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
    return [node, str(script)]


@contextmanager
def _running(command: list[str], port: int, folder: Path, **environment: str) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            until = time.monotonic() + 60
            while not _answers(port):
                assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()[-500:]
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def s3(folder: Path, kind: str) -> Iterator[BucketPlace]:
    """Run an S3 server with a bucket. With `oci`, it behaves like Oracle's object storage for an S3 client."""
    port, keys = _port(), {"accessKeyId": "akid", "secretAccessKey": "s3cret"}
    (folder / "data" / BUCKET).mkdir(parents=True)
    root = {"ROOT_ACCESS_KEY": keys["accessKeyId"], "ROOT_SECRET_KEY": keys["secretAccessKey"]}
    command = [str(_program(VERSITY)), "--port", f"127.0.0.1:{port}", "posix", "data"]
    given = {"endpoint": f"http://127.0.0.1:{port}"}
    with _running(command, port, folder, **root):
        yield BucketPlace(f"s3://{BUCKET}" if kind == "s3" else f"oci://n/space/b/{BUCKET}/o", given, keys, "md5")


@contextmanager
def google(folder: Path) -> Iterator[BucketPlace]:
    """Run Google's storage with a bucket. The ETags of this server are MD5s in base64, unlike Google's, so they verify
    nothing.
    """
    port = _port()
    command = [str(_program(FAKE_GCS)), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}"]  # otherwise the server does not recognize requests of the XML interface
    with _running(command, port, folder):
        url = f"http://127.0.0.1:{port}"
        body, kind = json.dumps({"name": BUCKET}).encode(), {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{url}/storage/v1/b?project=x", body, kind)).close()
        upload = f"{url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name="
        key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        yield BucketPlace(f"gs://{BUCKET}", {"endpoint": url}, {"serviceAccountKey": json.dumps(key)}, "size", upload)


@contextmanager
def azure(folder: Path) -> Iterator[BucketPlace]:
    """Run Azure's blob storage with a container."""
    port = _port()
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command = [*_azurite(), *where, "--inMemoryPersistence", "--disableTelemetry"]
    with _running(command, port, folder, AZURITE_ACCOUNTS=f"{ACCOUNT}:{KEY}"):
        url = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _container(url)
        yield BucketPlace(f"az://{BUCKET}", {"account": ACCOUNT, "endpoint": url}, {"accountKey": KEY}, "size")


def _container(url: str) -> None:
    """Create the container. None of our libraries has a client for this, so the Shared Key signature is computed here."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    notes = "".join(f"{key}:{value}\n" for key, value in headers.items())
    text = "PUT" + "\n" * 12 + notes + f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    request = urllib.request.Request(f"{url}/{BUCKET}?restype=container", headers=headers, method="PUT")
    urllib.request.urlopen(request).close()
