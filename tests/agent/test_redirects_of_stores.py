"""Tests of object stores that redirect to another host, and of the proxy through which their clients connect (findings S2
and S15 of the security review).

The review reported that the clients of all three stores followed a 302 to a host that the model does not name, and sent the
session token to it.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from ome_operator.agent.download import Download, DownloadFailed, Limits
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Store
from ome_operator.storage.addresses import host
from ome_operator.storage.grants import ModelGrant, SecretGrant, Trust
from ome_operator.storage.loopback_proxy import LoopbackProxy
from ome_operator.storage.sources import Access, open_source
from tests.support.hub import certificate, served

DATA = b"bytes of a model"
NAME = "config.json"
URIS = {"s3": "s3://models/m", "gs": "gs://models/m", "az": "az://models/m"}
SECRETS = {
    "s3": {"accessKeyId": "akid", "secretAccessKey": "s3cret", "sessionToken": "SESSIONTOKEN"},
    "gs": {"serviceAccountKey": json.dumps(
        {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    )},
    "az": {"accountKey": "a2V5"},
}  # fmt: skip
_WHEN, _HTTP_WHEN = "2026-01-01T00:00:00.000Z", "Thu, 01 Jan 2026 00:00:00 GMT"
_S3 = (
    "<ListBucketResult><Name>models</Name><Prefix>m/</Prefix><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>"
    f'<Contents><Key>m/{NAME}</Key><LastModified>{_WHEN}</LastModified><ETag>"e"</ETag><Size>{len(DATA)}</Size></Contents>'
    "</ListBucketResult>"
)
_AZURE = (
    f"<EnumerationResults><Blobs><Blob><Name>m/{NAME}</Name><Properties><Last-Modified>{_HTTP_WHEN}</Last-Modified>"
    f"<Etag>e</Etag><Content-Length>{len(DATA)}</Content-Length><Content-Type>x</Content-Type>"
    "<ResourceType>file</ResourceType></Properties></Blob></Blobs><NextMarker/></EnumerationResults>"
)


@dataclass
class Bucket:
    """A model with a single file that every kind of client can read."""

    url: str = ""
    lists_at: str = ""
    """The host to which list requests are redirected; if empty, they are answered."""
    reads_at: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> web.Application:
        """Return the web application, which answers every path."""
        made = web.Application()
        made.router.add_get("/{rest:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append({name.lower(): value for name, value in request.headers.items()})
        if there := self.reads_at if request.path.endswith(NAME) else self.lists_at:
            return web.Response(status=302, headers={"Location": f"{there}{request.path_qs}"})
        headers = {"ETag": '"e"', "Last-Modified": _HTTP_WHEN, "x-ms-blob-type": "BlockBlob"}
        if not request.path.endswith(NAME):
            return web.Response(text=_AZURE if "comp" in request.query else _S3, content_type="application/xml")
        if request.headers.get("Range") or request.headers.get("x-ms-range"):
            headers["Content-Range"] = f"bytes 0-{len(DATA) - 1}/{len(DATA)}"
            return web.Response(status=206, body=DATA, headers=headers)
        return web.Response(body=DATA, headers=headers)


@pytest.fixture(params=["https", "http"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bucket, Bucket]]:
    """Yield a store that a model names, and a host that it does not name; the certificates of both are trusted."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    tls = certificate(tmp_path / "tls") if request.param == "https" else None
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "ca.crt"))
    with served(Bucket(), tls=tls) as named, served(Bucket(), tls=tls) as other:
        yield named, other


def access(kind: str, named: Bucket, namespace: str) -> Access:
    """Return the settings with which an agent downloads from the store `named`. The Secret, which is contained only if the
    store uses TLS, is permitted for the host of this store only.
    """
    where, secret = host(named.url), SECRETS[kind] if named.url.startswith("https") else {}
    trust = Trust(
        secrets={"keys": SecretGrant(name="keys", hosts=(where,), namespaces=("team-a",))}, endpoints=frozenset({where})
    )
    parameters = {"endpoint": named.url, "verify": "size", "account": "acc"}
    return Access(parameters, secret, guard=ModelGrant(trust, namespace, "keys", URIS[kind]))


async def fetch(kind: str, given: Access, folder: Path) -> bytes:
    """Return the model's file."""
    store, found = Store(folder / "m", "0123abcd"), open_source(URIS[kind], given)
    try:
        await Download(URIS[kind], found, store, Limits(first=0.001, last=0.01, tries=2), Progress()).run()
    finally:
        await found.close()
    return (store.root / NAME).read_bytes()


@pytest.mark.parametrize("namespace", ["", "team-a"])
@pytest.mark.parametrize("what", ["lists_at", "reads_at"])
@pytest.mark.parametrize("kind", URIS)
def test_redirect_to_another_host_is_refused(
    kind: str, what: str, namespace: str, pair: tuple[Bucket, Bucket], tmp_path: Path
) -> None:
    named, other = pair
    setattr(named, what, other.url)
    with pytest.raises(DownloadFailed, match=f"the object store redirects to '{host(other.url)}', but agents contact only"):
        asyncio.run(fetch(kind, access(kind, named, namespace), tmp_path))
    assert other.asked == [] and named.asked


@pytest.mark.parametrize("kind", URIS)
def test_object_store_without_redirects_is_read(kind: str, pair: tuple[Bucket, Bucket], tmp_path: Path) -> None:
    assert asyncio.run(fetch(kind, access(kind, pair[0], "team-a"), tmp_path)) == DATA
    if kind == "s3" and pair[0].url.startswith("https"):
        assert {asked["x-amz-security-token"] for asked in pair[0].asked} == {"SESSIONTOKEN"}
    assert not any(name.startswith("proxy-") for asked in pair[0].asked for name in asked)


def test_redirect_to_other_host_is_refused_behind_a_proxy(
    pair: tuple[Bucket, Bucket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment names an HTTP proxy, for which another loopback proxy stands in. Requests go through it, and a
    redirect to a host that the model does not name fails before it reaches that proxy.
    """
    named, other = pair
    proxy = LoopbackProxy(named.url)
    reached: list[None] = []

    async def run() -> bytes:
        where = (await proxy.open()).replace("://", "://user:pass@")
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, where)
        monkeypatch.setenv("no_proxy", "")
        reach = proxy._reach

        async def counted() -> object:
            reached.append(None)
            return await reach()

        monkeypatch.setattr(proxy, "_reach", counted)
        try:
            return await fetch("s3", access("s3", named, "team-a"), tmp_path)
        finally:
            await proxy.close()

    assert asyncio.run(run()) == DATA and reached
    named.lists_at = other.url
    proxy.refused = ""
    with pytest.raises(DownloadFailed, match="redirects to"):
        asyncio.run(run())
    assert other.asked == [] and not proxy.refused, "the request does not even reach the proxy"


def test_invalid_proxy_request_is_closed(pair: tuple[Bucket, Bucket]) -> None:
    """The proxy closes a connection that sends no valid request, and answers 403 to requests for hosts that it does not
    serve. It continues to serve other connections.
    """
    named, other = pair

    async def say(where: str, said: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(where.rpartition(":")[2]))
        writer.write(said)
        try:
            return await asyncio.wait_for(reader.read(), 5)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def run() -> None:
        step = LoopbackProxy(named.url)
        where = await step.open()
        for said in (
            b"x\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"CONNECT [ HTTP/1.1\r\n\r\n",
            b"\xff \xff \xff\r\n\r\n",
            b"x" * 200_000,
        ):
            assert b"200" not in await say(where, said)
        for said in (
            f"CONNECT {host(other.url)} HTTP/1.1",
            f"GET {other.url}/x HTTP/1.1",
            f"GET file://{host(named.url)}/x HTTP/1.1",
        ):
            assert (await say(where, f"{said}\r\n\r\n".encode())).startswith(b"HTTP/1.1 403 ")
        await step.close()
        with pytest.raises(OSError):
            await say(where, b"")

    asyncio.run(run())
    assert not named.asked and not other.asked
