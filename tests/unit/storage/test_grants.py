"""Tests of which servers receive the credentials in a Secret or the identity of a node, and of which addresses are contacted
(docs/tenancy.md). S2 and S15 are findings in docs/security-review.md.
"""

import asyncio
import ipaddress
import json
import socket
from collections.abc import Mapping

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ome_operator.errors import UserError
from ome_operator.storage import private_addresses
from ome_operator.storage.addresses import HostRules, host_and_port, host_listed, source_address
from ome_operator.storage.grants import ModelGrant, SecretGrant, Trust, parse_grant
from ome_operator.storage.http import session
from ome_operator.storage.listing import RequestRefused
from ome_operator.storage.sources import Access, open_bucket, open_source
from tests.support.hub import served

TOKEN = SecretGrant(name="hf-token", hosts=("huggingface.co",), namespaces=("team-a",))
TRUST = Trust(secrets={"hf-token": TOKEN})


def guard(namespace: str = "team-a", key: str = "hf-token", uri: str = "hf://org/model", trust: Trust = TRUST) -> ModelGrant:
    return ModelGrant(trust, namespace, key, uri)


def test_secret_is_sent_to_permitted_hosts() -> None:
    guard().check_secret("https://huggingface.co")
    guard("").check_secret("https://huggingface.co:443".removesuffix(":443"))


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        (guard(), "https://evil.example", "not allowed for host evil.example"),
        (guard(), "https://huggingface.co.evil.example", "not allowed for host huggingface.co.evil.example"),
        (guard(), "https://huggingface.co@evil.example", "not allowed for host evil.example"),
        (guard(), "http://huggingface.co", "never sent over plain HTTP"),
        (guard("team-b"), "https://huggingface.co", "not allowed for namespace team-b"),
        (guard(key="reg-cred"), "https://huggingface.co", "not among agent.secrets"),
        (guard(""), "https://evil.example", "not allowed for host"),
        (
            guard(trust=Trust(secrets={"hf-token": TOKEN.model_copy(update={"uris": ("hf://meta-llama/",)})})),
            "https://huggingface.co",
            "not allowed for hf://org/model",
        ),
    ],
)
def test_grant_refuses_other_locations(given: ModelGrant, where: str, said: str) -> None:
    with pytest.raises(RequestRefused, match=said):
        given.check_secret(where)


@pytest.mark.parametrize(
    "text", ["hf-token", '{"name": "x"}', '{"name": "x", "hosts": []}', '{"name": 1, "hosts": ["h"]}', "{"]
)
def test_incomplete_grant_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(UserError, match="hosts"):
        parse_grant(text)


def test_grant_round_trip() -> None:
    assert parse_grant(TOKEN.model_dump_json()) == TOKEN


def test_cluster_token_is_not_sent_to_an_endpoint() -> None:
    """S2: no token of the cluster is sent to an `endpoint` that a tenant runs and that the grant does not name."""
    access = Access({"endpoint": "https://evil.example"}, {"token": "SECRET"}, guard=guard())
    with pytest.raises(RequestRefused, match=r"not allowed for host evil\.example"):
        open_source("hf://any/thing", access)
    open_source("hf://any/thing", access._replace(secret={}))


class Evil:
    """A registry that a tenant runs, or the token server (realm) that the registry names. It records the credentials that it
    receives.
    """

    def __init__(self) -> None:
        self.url = ""
        self.challenge = "Basic"
        self.seen: list[tuple[str, str]] = []

    def app(self) -> web.Application:
        made = web.Application()
        made.router.add_get("/{rest:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, request.headers.get("Authorization", "")))
        return web.Response(status=401, headers={"WWW-Authenticate": self.challenge.replace("URL", self.url)})


@pytest.mark.parametrize(
    "challenge", ["Basic", 'Bearer realm="URL/token",service="x"', 'Bearer realm="https://evil.example/token"']
)
def test_registry_password_is_not_sent_to_foreign_endpoints_or_realms(challenge: str) -> None:
    """The password of a registry is sent only to the host of its grant. Previously, it was sent to the tenant's endpoint
    (S2), or to the realm that the endpoint names (S15), as `Basic Y2k6UkVHUEFTUw==`.
    """
    host = "registry.corp.example:5000"
    trust = Trust(
        secrets={"reg-cred": SecretGrant(name="reg-cred", hosts=(host,), namespaces=("team-a",))},
        private_hosts=frozenset({"127.0.0.1"}),
    )
    secret = {".dockerconfigjson": json.dumps({"auths": {host: {"auth": "Y2k6UkVHUEFTUw=="}}})}

    async def ask(evil: Evil) -> None:
        uri = f"oci://{host}/any/thing:1"
        found = open_source(uri, Access({"endpoint": evil.url}, secret, guard=guard(key="reg-cred", uri=uri, trust=trust)))
        try:
            await found.listing("")
        finally:
            await found.close()

    with served(Evil()) as evil:
        evil.challenge = challenge
        with pytest.raises(RequestRefused, match=r"is not allowed for host (127\.0\.0\.1|evil\.example)"):
            asyncio.run(ask(evil))
        assert evil.seen and not [shown for _, shown in evil.seen if shown]


@pytest.mark.parametrize(
    ("uri", "given"),
    [
        ("gs://b/p", {}),
        ("s3://b/p", {}),
        ("az://c/p", {"account": "acme"}),
        ("oci://n/acme/b/bucket/o/p", {"region": "eu-1"}),
    ],
)
@pytest.mark.parametrize("endpoint", ["", "https://evil.example", "http://169.254.169.254"])
def test_node_identity_is_not_used_for_tenant_addresses(uri: str, given: Mapping[str, str], endpoint: str) -> None:
    """S2: the identity of the node is never used for an object store whose address a tenant names."""
    parameters = {**given, **({"endpoint": endpoint} if endpoint else {})}
    of_tenant = Access(parameters, {}, guard=guard(key="", uri=uri))
    if endpoint:
        with pytest.raises(RequestRefused, match="is not among"):
            open_bucket(uri, of_tenant)
        allowed = Trust(endpoints=frozenset({"evil.example", "169.254.169.254"}))
        of_tenant = of_tenant._replace(guard=guard(key="", uri=uri, trust=allowed))
    assert "skip_signature" in signature(uri, of_tenant)
    of_admin = Access(parameters, {}, guard=guard("", key="", uri=uri))
    assert ("skip_signature" in signature(uri, of_admin)) == bool(endpoint), "only the cloud's own address receives it"


@pytest.mark.parametrize("uri", ["gs://b/p", "s3://b/p", "az://c/p"])
def test_secret_without_store_keys_does_not_enable_the_node_identity(uri: str) -> None:
    """A Secret without the keys of an object store does not make the agent use the identity of the node. If the Secret of a
    hub, which is granted for a host, counted as one of a store, this host would receive the identity.
    """
    where = "https://store.example"
    trust = Trust(
        secrets={"hf-token": SecretGrant(name="hf-token", hosts=("store.example",), namespaces=("team-a",))},
        endpoints=frozenset({"store.example"}),
    )
    given = Access({"endpoint": where, "account": "a"}, {"token": "hf"}, guard=guard(uri=uri, trust=trust))
    assert "skip_signature" in signature(uri, given)


def signature(uri: str, access: Access) -> str:
    """Return the arguments of the object store's client as JSON, such as `skip_signature`."""
    return json.dumps(dict(open_bucket(uri, access)._make("").config))


def test_node_identity_is_used_for_listed_hosts_and_namespaces() -> None:
    trust = Trust(identity_hosts=frozenset({"minio.example:9000"}), identity_namespaces=frozenset({"team-a"}))
    assert guard(trust=trust).may_use_identity("https://minio.example:9000", own=False)
    assert not guard(trust=trust).may_use_identity("https://minio.example", own=False), "another port"
    assert not guard(trust=trust).may_use_identity("http://minio.example:9000", own=False), "plain HTTP"
    assert not guard("team-b", trust=trust).may_use_identity("https://minio.example:9000", own=False)
    assert not guard(trust=trust).may_use_identity("https://s3.us-east-1.amazonaws.com", own=True), "the host is not listed"


@pytest.mark.parametrize(
    ("uri", "given"),
    [
        ("s3://b/p", {"region": "x.evil.example/#"}),
        ("s3://b@evil.example/p", {}),
        ("az://c/p", {"account": "evil.example/"}),
        ("oci://n/evil.example#/b/bucket/o/p", {"region": "r"}),
        ("oci://n/acme/b/bucket/o/p", {"region": "evil.example/"}),
    ],
)
def test_host_name_part_cannot_redirect_to_another_host(uri: str, given: Mapping[str, str]) -> None:
    with pytest.raises(RequestRefused, match="cannot be a part of a host name"):
        source_address(uri, given)


def test_another_port_is_another_location() -> None:
    assert host_listed(["hub.example"], *host_and_port("https://hub.example:8443"))
    assert host_listed(["hub.example:8443"], *host_and_port("https://HUB.example:8443/x"))
    assert not host_listed(["hub.example:8443"], *host_and_port("https://hub.example"))
    assert host_listed(["::1"], *host_and_port("http://[::1]:80/"))


PRIVATE = [
    *("127.0.0.1", "10.1.2.3", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *(
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ),
    *("168.63.129.16", "192.0.0.192", "fec0::1", "::ffff:0:127.0.0.1", "::127.0.0.1", "::10.0.0.1", "64:ff9b:1::1"),
    *("2001:0:1::1", "2001:db8::1", "192.0.2.1", "198.18.0.1", "203.0.113.1", "240.0.0.1", "ff02::1", "fe80::1%eth0"),
    *("::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::", "192.88.99.1"),
]


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_are_not_public(text: str) -> None:
    assert not private_addresses.is_public(text)


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "168.63.129.17", "::ffff:0:1.1.1.1", "64:ff9b::101:101"]
)
def test_internet_addresses_are_public(text: str) -> None:
    assert private_addresses.is_public(text)


@pytest.mark.parametrize("text", ["203.0.113.7", "1.1.1.1", "::ffff:1.1.1.1", "64:ff9b::101:101", "2606:4700:4700::1111"])
def test_public_cluster_networks_are_private_if_configured(text: str) -> None:
    refused = tuple(map(ipaddress.ip_network, ("203.0.113.0/24", "1.1.1.0/24", "2606:4700:4700::/48")))
    assert not private_addresses.is_public(text, refused)
    assert private_addresses.is_public("1.1.2.1", refused) and private_addresses.is_public("2606:4700:4701::1", refused)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost"])
def test_no_connection_to_a_refused_network(host: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is opened to an address in a refused network. Loopback stands for a public address of the cluster."""
    monkeypatch.setattr(private_addresses, "is_public", lambda text, refused=(): not refused)
    refused, port = (ipaddress.ip_network("127.0.0.0/8"),), listener.getsockname()[1]

    async def ask(reach: HostRules) -> None:
        async with aiohttp.ClientSession(connector=private_addresses.connector(reach)) as session:
            await session.get(f"http://{host}:{port}/", timeout=aiohttp.ClientTimeout(total=10))

    model = ModelGrant(Trust(refused_addresses=refused), "team-a", "", "hf://a/b")
    with pytest.raises(aiohttp.ClientError):
        asyncio.run(ask(model.address_rules("https://huggingface.co")))
    with pytest.raises(TimeoutError):
        listener.accept()


@pytest.fixture
def listener() -> socket.socket:
    """Return a socket that listens on loopback. `accept` fails if nobody connects within 0.3 s."""
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(0.3)
    return made


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "127.1"])
def test_every_spelling_of_loopback_is_refused(host: str, listener: socket.socket) -> None:
    """S15: a connection to loopback is refused before it is opened, so that nothing shows whether a port is open."""

    async def ask() -> None:
        async with aiohttp.ClientSession(connector=private_addresses.connector(HostRules())) as session:
            await session.get(f"http://{host}:{listener.getsockname()[1]}/")

    with pytest.raises((aiohttp.ClientError, ValueError)) as raised:
        asyncio.run(ask())
    with pytest.raises(TimeoutError):
        listener.accept()
    assert isinstance(raised.value, ValueError) or private_addresses.refusal_reason(raised.value)


def test_host_permitted_by_the_chart_is_contacted(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    async def ask(allowed: str) -> None:
        async with aiohttp.ClientSession(connector=private_addresses.connector(HostRules(frozenset({allowed})))) as session:
            await session.get(f"http://localhost:{port}/", timeout=aiohttp.ClientTimeout(total=0.2))

    for allowed in ("localhost", f"localhost:{port}"):
        with pytest.raises(TimeoutError):
            asyncio.run(ask(allowed))
        listener.accept()[0].close()
    with pytest.raises(aiohttp.ClientError):
        asyncio.run(ask(f"localhost:{port + 1}"))


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "all_proxy"])
def test_only_the_proxy_port_is_contacted(variable: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the host of a configured proxy, only the proxy's port is reached. Previously, any of its ports could be reached."""
    port = listener.getsockname()[1]

    async def ask() -> None:
        async with aiohttp.ClientSession(connector=private_addresses.connector(HostRules())) as session:
            await session.get(f"http://localhost:{port}/", timeout=aiohttp.ClientTimeout(total=0.2))

    monkeypatch.setenv(variable, f"http://localhost:{port + 1}")
    with pytest.raises(aiohttp.ClientError):
        asyncio.run(ask())
    monkeypatch.setenv(variable, f"http://localhost:{port}")
    with pytest.raises(TimeoutError):
        asyncio.run(ask())
    listener.accept()[0].close()


@pytest.mark.parametrize("host", ["169.254.169.254", "localhost:PORT", "127.0.0.1:PORT", "[::1]"])
def test_private_address_is_refused_as_a_registry_of_a_namespaced_model(host: str, listener: socket.socket) -> None:
    """S15: no address inside a network is contacted, and the message is the same as for a missing artifact."""
    host = host.replace("PORT", str(listener.getsockname()[1]))
    uri = f"oci://{host}/x:1"

    async def ask() -> None:
        found = open_source(uri, Access({}, {}, guard=guard(key="", uri=uri, trust=Trust())))
        try:
            await found.listing("")
        finally:
            await found.close()

    with pytest.raises(RequestRefused, match="or denies access") as told:
        asyncio.run(ask())
    assert "private address" in str(told.value.__cause__)
    with pytest.raises(TimeoutError):
        listener.accept()


async def test_host_check_is_left_to_a_configured_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a proxy, the host of a request is not checked here. The proxy itself may have a private address."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(str(request.url))
        return web.Response()

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    async with TestServer(app) as proxy:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", str(proxy.make_url("/")))
        async with session(HostRules()) as asks, asks.get("http://10.9.8.7/x") as found:
            assert found.status == 200
    assert asked == ["http://10.9.8.7/x"]
