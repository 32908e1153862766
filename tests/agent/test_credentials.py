"""Tests of what leaves an agent's process: requests that carry a Secret, or a token for which a Secret was exchanged. Each
such request is compared with an administrator's grant. The tests compare the request as the server receives it, and not the
URI as a user writes it (findings T3 and T4 of the second security review).
"""

import asyncio
import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ome_operator.storage.grants import ModelGrant, SecretGrant, Trust
from ome_operator.storage.listing import SourceError
from ome_operator.storage.sources import Access, open_source
from tests.support.hub import certificate, served

TOKEN = "TOKEN-MADE-OF-THE-SECRET"
PRIVATE_KEY = (
    rsa.generate_private_key(public_exponent=65537, key_size=2048)
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
)


@dataclass
class Request:
    """A request as a server received it."""

    path: str
    query: dict[str, str]
    authorization: str
    cookie: str
    secure: bool


@dataclass
class Recorder:
    """A server that answers as a registry, as its token server, and with 404 to everything else. It keeps all requests."""

    url: str = ""
    challenge: str = ""
    """Value of WWW-Authenticate while a request to `/v2/` carries no token; "" if the server does not ask for any."""
    redirect: str = ""
    """Address to which requests with a token are redirected."""
    cookie: str = ""
    requests: list[Request] = field(default_factory=list)

    def app(self) -> web.Application:
        """Return the web application, which answers every path."""
        made = web.Application()
        made.router.add_get("/{rest:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "")
        cookie = request.headers.get("Cookie", "")
        self.requests.append(Request(request.raw_path.partition("?")[0], dict(request.query), shown, cookie, request.secure))
        headers = {"Set-Cookie": self.cookie} if self.cookie else {}
        if request.path == "/token":
            return web.json_response({"token": TOKEN}, headers=headers)
        if "/team-a/own/" in request.path:
            file = {"rfilename": "config.json", "size": 2, "blobId": "0" * 40}
            return web.json_response({"sha": "0" * 40, "siblings": [file]})
        if self.challenge and not shown:
            return web.Response(status=401, headers={"WWW-Authenticate": self.challenge})
        if self.redirect:
            return web.Response(status=307, headers={"Location": self.redirect})
        return web.Response(status=404)

    @property
    def shown(self) -> list[Request]:
        """Return the requests that carried a credential."""
        return [each for each in self.requests if each.authorization or each.cookie]


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return a TLS context for servers on loopback, whose certificate all clients of the agent trust."""
    made = certificate(tmp_path / "tls")
    ca = str(tmp_path / "tls" / "ca.crt")
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=ca))
    monkeypatch.setenv("SSL_CERT_FILE", ca)
    return made


@pytest.fixture
def real(tls: ssl.SSLContext) -> Iterator[Recorder]:
    """Yield the registry, hub or store that an administrator has listed for the Secret."""
    with served(Recorder(), tls=tls) as made:
        yield made


@pytest.fixture
def evil() -> Iterator[Recorder]:
    """Yield a tenant's server, without TLS."""
    with served(Recorder()) as made:
        yield made


def place(server: Recorder) -> str:
    """Return the host and port of a server, as URIs of artifacts have them."""
    return server.url.partition("://")[2]


def access(uri: str, real: Recorder, *, uris: tuple[str, ...] = (), endpoint: str = "", secret: str = "") -> Access:
    """Return the settings with which an agent downloads a tenant's model. They contain a Secret with credentials of every
    kind, which the tenant's namespace may use for the host of `real` only.
    """
    grant = SecretGrant(name="keys", hosts=(place(real),), namespaces=("team-a",), uris=uris)
    loopback = frozenset({"127.0.0.1", "localhost"})
    trust = Trust(secrets={"keys": grant}, private_hosts=loopback, endpoints=loopback)
    auths = {"auths": {place(real): {"auth": "Y2k6UkVHUEFTUw=="}}}
    keys = {"token": "HF-SECRET", "accessKeyId": "id", "secretAccessKey": "key", "accountKey": "a2V5"}
    service = {"client_email": "a@b.example", "private_key": PRIVATE_KEY, "private_key_id": "1"}
    keys |= {".dockerconfigjson": json.dumps(auths), "serviceAccountKey": json.dumps(service)}
    parameters = {"account": "acc", "verify": "size", **({"endpoint": endpoint} if endpoint else {})}
    return Access(parameters, keys, real.url, ModelGrant(trust, "team-a", "keys", uri))


def ask(uri: str, given: Access, revision: str = "") -> str:
    """Ask for the list of a model's files, and return the message of the error."""

    async def run() -> str:
        try:
            found = open_source(uri, given)
        except SourceError as error:
            return str(error)
        try:
            async with asyncio.timeout(20):
                await found.listing(revision)
        except SourceError as error:
            return str(error)
        finally:
            await found.close()
        return ""

    return asyncio.run(run())


SCOPE = "repository:team-b/secret-model:pull,push"


def bearer(realm: str, scope: str = SCOPE) -> str:
    """Return the challenge of a registry that wants a token."""
    return f'Bearer realm="{realm}",service="x",scope="{scope}"'


@pytest.mark.parametrize("uris", [(), ("oci://HOST/team-a/",)])
def test_t3_no_token_is_requested_for_an_endpoint_without_permission(
    real: Recorder, evil: Recorder, uris: tuple[str, ...]
) -> None:
    """A tenant's endpoint names the real token server as its own. No token is fetched for it with the Secret. Reported: the
    endpoint received such a token.
    """
    evil.challenge = bearer(f"{real.url}/token")
    uri = f"oci://{place(real)}/team-a/anything"
    said = ask(uri, access(uri, real, endpoint=evil.url, uris=tuple(each.replace("HOST", place(real)) for each in uris)))
    assert "is not allowed for host 127.0.0.1" in said
    assert evil.requests and not evil.shown and not real.requests


@pytest.mark.parametrize("realm", ["/token", f"/token?scope={SCOPE}", "/token?a=b#", "/token#?scope=x"])
def test_t3_token_scope_is_the_repository_of_the_model_whatever_the_challenge(real: Recorder, realm: str) -> None:
    real.challenge = bearer(f"{real.url}{realm}")
    uri = f"oci://{place(real)}/team-a/model"
    ask(uri, access(uri, real))
    token, manifest = real.shown
    assert (token.path, token.query["scope"], token.query["service"]) == ("/token", "repository:team-a/model:pull", "x")
    assert SCOPE not in str(token.query)
    assert manifest.authorization == f"Bearer {TOKEN}" and manifest.path == "/v2/team-a/model/manifests/latest"


def test_t3_a_token_without_a_secret_has_the_models_scope_too(evil: Recorder) -> None:
    evil.challenge = bearer(f"{evil.url}/token")
    uri = "oci://registry.example/team-a/model"
    trust = Trust(private_hosts=frozenset({"127.0.0.1"}))
    ask(uri, Access({"endpoint": evil.url}, {}, guard=ModelGrant(trust, "team-a", "", uri)))
    assert [each.query["scope"] for each in evil.requests if each.path == "/token"] == ["repository:team-a/model:pull"]


def test_t3_credentials_follow_no_redirect_and_return_in_no_cookie(real: Recorder, evil: Recorder) -> None:
    real.url = real.url.replace("127.0.0.1", "localhost")  # clients keep no cookies for IP addresses
    real.challenge = bearer(f"{real.url}/token")
    real.cookie = "session=MADE-OF-THE-SECRET; Path=/"
    real.redirect = f"{evil.url.replace('127.0.0.1', 'localhost')}/v2/x"
    uri = f"oci://{place(real)}/team-a/model"
    ask(uri, access(uri, real))
    assert evil.requests and not evil.shown, "a cookie of a host is sent to every port of the host"
    assert not [each for each in real.requests if each.cookie]


OTHERS = "team-b/secret"
REGISTRY = [
    *(f"team-a/{up}/{OTHERS}" for up in ("..", ".", "...", "x/..", "x/../..", "%2e%2e", "..%2f..", "a..", "a/..b")),
    *(f"team-a{up}{OTHERS}" for up in ("//", "/./", "\\..\\", "/..;/", "?/../", "#/../", ":../", "@../", "+oci://HOST/")),
    f"team-a/x:1/../../../{OTHERS}/manifests/1",
    f"team-a-of-others/{OTHERS}",
    OTHERS,
    f"../{OTHERS}",
]
HUB = [
    *(f"team-a/{up}/{OTHERS}" for up in ("..", ".", "x/..", "%2e%2e")),
    *(f"team-a/x@{up}" for up in ("..", "../..", "a/../../..", f"../../../{OTHERS}/revision/main", "%2e%2e/x", ".", "a//b")),
    *(f"team-a/x{mark}hf://{OTHERS}" for mark in ("+", "@r+", "+hf://team-a/y+")),
    *(f"team-a/x+oci://HOST/{OTHERS}", f"team-a/x+s3://{OTHERS}", f"team-a/..?{OTHERS}", f"team-a/x#/../{OTHERS}"),
    f"team-a-of-others/{OTHERS}",
    OTHERS,
    f"/{OTHERS}",
]
BUCKET = [
    *(f"bucket/team-a/{up}/{OTHERS}" for up in ("..", "x/../..", "%2e%2e", ".", "..%2f", "\\..\\..", "..;", "//..")),
    *(f"bucket/team-a{up}{OTHERS}" for up in ("/../", "//../", "@eu-1/../", "?prefix=/", "#/../", "@../../", "@/")),
    *(f"bucket{up}/{OTHERS}" for up in ("@eu-1", "/team-a/..", "/..", "/.", "@../team-a/..", "/team-a@eu-1", "%2f..")),
    *(f"bucket/team-a+{kind}://bucket/{OTHERS}" for kind in ("s3", "gs", "az")),
    f"bucket/team-a+hf://{OTHERS}",
    f"bucket/team-a-of-others/{OTHERS}",
    f"bucket/team-a.others/{OTHERS}",
    f"bucket-of-others/team-a/{OTHERS}",
    f"bucket/{OTHERS}",
    f"../bucket/team-a/../{OTHERS}",
    f"/../bucket/{OTHERS}",
]
WRITTEN = [
    *(("oci", rest) for rest in REGISTRY),
    *(("hf", rest) for rest in HUB),
    *((kind, rest) for kind in ("s3", "gs", "az") for rest in BUCKET),
]
GRANTED = {
    "oci": "oci://HOST/team-a",
    "hf": "hf://team-a",
    "s3": "s3://bucket/team-a",
    "gs": "gs://bucket/team-a",
    "az": "az://bucket/team-a",
}
BELOW = {"oci": ("/v2/team-a/",), "hf": ("/api/models/team-a/", "/team-a/")}
"""Scheme -> the paths below which a server may receive the Secret. For stores, these are the list of a bucket, and objects
in it.
"""


def permitted(kind: str, request: Request) -> bool:
    """Return whether a request asks for something that the grant names, however often its server decodes the path."""
    for path in (request.path, unquote(request.path), unquote(unquote(request.path))):
        if {".", ".."} & set(path.replace("\\", "/").split("/")):
            return False
        if kind in BELOW and not f"{path}/".startswith(BELOW[kind]):
            return False
    if kind in BELOW:
        return True
    what = f"{unquote(request.path)}/{request.query.get('prefix', '')}/"
    return re.fullmatch(r"(/acc)?(/storage/v1/b)?/bucket(/o)?/+team-a/.*", what) is not None and "/../" not in what


@pytest.mark.parametrize(("kind", "rest"), WRITTEN, ids=[f"{kind}://{rest}" for kind, rest in WRITTEN])
@pytest.mark.parametrize("extra", [False, True], ids=["storageUri", "filesFrom"])
def test_t4_secret_is_sent_only_to_paths_below_its_grant(real: Recorder, kind: str, rest: str, extra: bool) -> None:
    """Every request that carries the Secret, or a token that it was exchanged for, is for a path below what the grant
    names.
    """
    host = f"{place(real)}/" if kind == "oci" else ""
    granted = tuple(each.replace("HOST", place(real)) for each in GRANTED.values())
    uri = f"{kind}://{host}{rest}".replace("HOST", place(real))
    if extra:
        uri = f"hf://team-a/own+{uri}"
    real.challenge = bearer(f"{real.url}/token") if kind == "oci" else ""
    endpoint = "" if kind in ("oci", "hf") or extra else real.url
    said = ask(uri, access(uri, real, uris=granted, endpoint=endpoint))
    assert said, "none of the requested files exists"
    tokens = [each for each in real.shown if each.path == "/token"]
    assert all(each.query["scope"].startswith("repository:team-a/") and ".." not in each.query["scope"] for each in tokens)
    others = [each for each in real.shown if each.path != "/token" and not permitted("hf" if extra else kind, each)]
    assert not others, others


@pytest.mark.parametrize(
    ("kind", "rest", "entry"),
    [
        ("hf", "team-a/x", "hf://team-a/"),
        ("hf", "team-a/x@v1", "hf://team-a/x"),
        ("hf", "team-a/x@v1", "hf://team-a/x@v1"),
        ("hf", "team-a/x@refs/pr/1", "hf://team-a/x"),
        ("oci", "team-a/x:1", "oci://HOST/team-a/"),
        ("oci", "team-a/x", "oci://HOST/team-a/x"),
        ("oci", "team-a/x__y/a.b-c--d:1", "oci://HOST"),
        ("s3", "team-a/models", "s3://team-a/models/"),
        ("s3", "team-a@eu-1/models/x", "s3://team-a/models"),
        ("s3", "team-a@eu-1/models/x", "s3://team-a@eu-1/"),
        ("gs", "team-a/models/", "gs://team-a"),
        ("az", "team-a/models", "az://team-a/models"),
    ],
)
def test_t4_secret_is_used_for_requests_that_its_grant_names(real: Recorder, kind: str, rest: str, entry: str) -> None:
    host = f"{place(real)}/" if kind == "oci" else ""
    uri, uris = f"{kind}://{host}{rest}", (entry.replace("HOST", place(real)),)
    real.challenge = bearer(f"{real.url}/token") if kind == "oci" else ""
    said = ask(uri, access(uri, real, uris=uris, endpoint="" if kind in ("oci", "hf") else real.url))
    assert real.shown and all(each.secure for each in real.shown), said


@pytest.mark.parametrize(
    "revision", ["..", "../..", "../../../team-b/secret/manifests/1", "a/../b", "", "sha256:x", "%2e%2e"]
)
def test_t4_revision_reported_by_another_node_cannot_change_the_path(real: Recorder, revision: str) -> None:
    """The revision in a model's status is reported by the first node, which may be under an attacker's control. Whatever it
    contains, the request stays below the paths that the grant names.
    """
    for kind, host in (("oci", f"{place(real)}/"), ("hf", "")):
        real.challenge = bearer(f"{real.url}/token") if kind == "oci" else ""
        real.requests.clear()
        uri = f"{kind}://{host}team-a/x"
        ask(uri, access(uri, real), revision)
        assert all(permitted(kind, each) for each in real.shown if each.path != "/token"), (kind, real.shown)
