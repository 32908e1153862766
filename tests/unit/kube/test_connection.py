"""Tests of kubeconfigs and ServiceAccounts: what is sent to the server, how both sides are authenticated, and the errors."""

import asyncio
import base64
import json
import ssl
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from ome_local.pki import Authority
from ome_operator.kube.connection import Connection, NoConnection
from tests.support.hub import in_thread

NAMED = ("127.0.0.1", "127.0.0.2")
"""Addresses of the server. Its certificate names the first address and "kubernetes"."""


class Api:
    """A server that requires a client certificate or the current token, and records the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.authority.server("server")
        self.authority.client("person", "jo")
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
        self.tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.port = 0
        self.current = ""
        self.person = ""
        """Common name of the only certificate that is accepted; "" for any."""
        self.sent: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Return the common name of the client's certificate, or 401 for a token that is not the current one."""
        sent = request.headers.get("Authorization", "")
        self.sent.append(sent)
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        name = next((value for ((key, value),) in peer.get("subject", ()) if key == "commonName"), "")
        accepted = sent == self.current and self.person in ("", name)
        return web.Response(text=name, status=200 if accepted else 401)

    def data(self, name: str) -> str:
        """Return a file of the certificate authority, encoded as in a kubeconfig."""
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def config(self, path: Path, user: Mapping[str, Any], *, address: str = "127.0.0.1", **cluster: Any) -> Path:
        """Write a kubeconfig with a single context, and return its path."""
        if not cluster:
            cluster = {"certificate-authority-data": self.data("ca.crt")}
        content = {
            "clusters": [{"name": "c", "cluster": {"server": f"https://{address}:{self.port}", **cluster}}],
            "users": [{"name": "u", "user": dict(user)}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(content))
        return path


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    server, app = Api(tmp_path), web.Application()
    app.router.add_get("/", server.answer)
    with in_thread(app, NAMED, server.tls) as port:
        server.port = port
        yield server


async def ask(connection: Connection) -> tuple[int, str]:
    """Return the status and the text of the response to a single request."""
    async with connection.session(limit=1, agent="test") as session, session.get(connection.server) as answer:
        return answer.status, await answer.text()


def asked(kubeconfig: Path, context: str | None = None) -> tuple[int, str]:
    """Return the status and the text of the response to a request with a kubeconfig."""

    async def run() -> tuple[int, str]:
        return await ask(await Connection.open(kubeconfig, context))

    return asyncio.run(run())


def test_client_certificate_authenticates_the_client(api: Api) -> None:
    inline = {"client-certificate-data": api.data("person.crt"), "client-key-data": api.data("person.key")}
    assert asked(api.config(api.folder / "inline", inline)) == (200, "jo")
    files = {"client-certificate": "person.crt", "client-key": "person.key"}
    assert asked(api.config(api.folder / "files", files, **{"certificate-authority": "ca.crt"})) == (200, "jo")
    assert api.sent == ["", ""]


@pytest.mark.parametrize("inline", [False, True])
def test_a_renewed_client_certificate_is_used_in_open_sessions(api: Api, inline: bool) -> None:
    """If the API server refuses the certificate, the certificate is read again, and the request is repeated over a new
    connection. The open connections of the session have the former certificate.
    """

    def user() -> dict[str, str]:
        if inline:
            return {"client-certificate-data": api.data("person.crt"), "client-key-data": api.data("person.key")}
        return {"client-certificate": "person.crt", "client-key": "person.key"}

    async def run() -> list[tuple[int, str]]:
        connection = await Connection.open(api.config(api.folder / "config", user()))
        answers = []
        async with connection.session(limit=2, agent="test") as session:
            for name in ("jo", "ann", "ann"):
                if name != api.person:
                    api.authority.client("person", name)
                    api.config(api.folder / "config", user())
                    api.person = name
                async with session.get(connection.server) as answer:
                    answers.append((answer.status, await answer.text()))
        return answers

    api.person = "jo"
    assert asyncio.run(run()) == [(200, "jo"), (200, "ann"), (200, "ann")]
    assert len(api.sent) == 4, "only the first request after the renewal is sent twice"


def test_a_renewed_certificate_authority_is_used(api: Api, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    renewed = Authority(other)
    renewed.server("server")

    async def run() -> list[int]:
        config = api.config(api.folder / "config", {"token": "abc"}, **{"certificate-authority": "trusted.crt"})
        (api.folder / "trusted.crt").write_bytes((api.folder / "ca.crt").read_bytes())
        connection = await Connection.open(config)
        before, _ = await ask(connection)
        api.tls.load_cert_chain(other / "server.crt", other / "server.key")
        (api.folder / "trusted.crt").write_bytes((other / "ca.crt").read_bytes())
        return [before, (await ask(connection))[0]]

    api.current = "Bearer abc"
    assert asyncio.run(run()) == [200, 200]


def test_a_kubeconfig_is_parsed_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, parse = [], yaml.safe_load

    def counted(text: str) -> Any:
        loads.append(text)
        return parse(text)

    monkeypatch.setattr(yaml, "safe_load", counted)
    api.current = "Bearer abc"
    assert asked(api.config(api.folder / "config", {"token": "abc"})) == (200, "")
    assert len(loads) == 1


def test_a_token_and_a_password_are_sent_in_a_header(api: Api) -> None:
    (api.folder / "token").write_text("of a file\n")
    for user, current in (
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token"}, "Bearer of a file"),
        ({"username": "jo", "password": "pw"}, "Basic " + base64.b64encode(b"jo:pw").decode()),
    ):
        api.current = current
        assert asked(api.config(api.folder / "config", user)) == (200, "")


def test_exec_plugin_gets_its_variables_and_runs_again_after_a_refused_token(api: Api) -> None:
    plugin, runs = api.folder / "plugin", api.folder / "runs"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, os\nruns = open({str(runs)!r}, 'a+')\nruns.write('x')\nruns.seek(0)\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "token = os.environ['WHO'] + str(len(runs.read()))\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': {'token': token}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": version, "command": str(plugin), "env": [{"name": "WHO", "value": "jo"}]}}
    api.current = "Bearer jo2"
    assert asked(api.config(api.folder / "config", user)) == (200, "")
    assert api.sent == ["Bearer jo1", "Bearer jo2"]


def test_unchanged_refused_token_is_sent_only_once(api: Api) -> None:
    api.current = "Bearer other"
    assert asked(api.config(api.folder / "config", {"token": "abc"}))[0] == 401
    assert api.sent == ["Bearer abc"]


def test_files_are_merged_and_a_context_is_chosen(api: Api) -> None:
    api.current = "Bearer abc"
    first = api.config(api.folder / "first", {"token": "abc"})
    second = api.folder / "second"
    second.write_text(
        yaml.safe_dump({"contexts": [{"name": "y", "context": {"cluster": "c", "user": "u", "namespace": "b"}}]})
    )

    async def namespaces() -> list[str]:
        both = Path(f"{first}:{second}")
        return [(await Connection.open(both, context)).namespace for context in (None, "x", "y")]

    assert asyncio.run(namespaces()) == ["team", "team", "b"]
    assert asked(Path(f"{first}:{second}"), "y") == (200, "")


def test_the_certificate_of_the_server_is_checked(api: Api, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    Authority(other)
    user, foreign = {"token": "abc"}, {"certificate-authority": str(other / "ca.crt")}
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        asked(api.config(api.folder / "config", user, **foreign))
    with pytest.raises(aiohttp.ClientConnectorCertificateError):  # the certificate does not name this address
        asked(api.config(api.folder / "config", user, address="127.0.0.2"))
    api.current = "Bearer abc"
    named = {"certificate-authority-data": api.data("ca.crt"), "tls-server-name": "kubernetes"}
    assert asked(api.config(api.folder / "config", user, address="127.0.0.2", **named)) == (200, "")
    unchecked = {"certificate-authority": str(other / "ca.crt"), "insecure-skip-tls-verify": True}
    assert asked(api.config(api.folder / "config", user, address="127.0.0.2", **unchecked)) == (200, "")


def test_cluster_settings_are_returned_in_kubeconfig_format(api: Api) -> None:
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    opened = asyncio.run(Connection.open(api.config(api.folder / "config", {"token": "abc"}, **cluster)))
    assert opened.cluster() == {
        "server": f"https://127.0.0.1:{api.port}",
        "certificate-authority-data": api.data("ca.crt"),
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
    }


def test_a_service_account_is_loaded_and_its_rotated_token_is_used(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.aio.config import incluster_config

    token = api.folder / "token"
    token.write_text("first\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(api.folder / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))

    async def run() -> list[int]:
        connection = await Connection.open(None)
        api.current = "Bearer first"
        before, _ = await ask(connection)
        token.write_text("second\n")
        api.current = "Bearer second"
        return [before, (await ask(connection))[0]]

    assert asyncio.run(run()) == [200, 200]
    assert api.sent == ["Bearer first", "Bearer first", "Bearer second"]


def test_token_is_kept_while_the_kubeconfig_is_incomplete(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    config = api.config(api.folder / "config", {"token": "abc"})

    async def run() -> list[int]:
        connection = await Connection.open(config)
        config.write_text(json.dumps({"clusters": []}))
        refused, _ = await ask(connection)
        api.current = "Bearer abc"
        return [refused, (await ask(connection))[0]]

    assert asyncio.run(run()) == [401, 200]
    assert "reloading the credentials failed" in caplog.text


def test_error_reason_has_no_trailing_full_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason in an error ends without a full stop, even if a library's message has one. The caller that prints the
    reason adds it.
    """
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    with pytest.raises(NoConnection, match=r"this pod: Service host/port is not set$"):
        asyncio.run(Connection.open(None))


NO_KUBECONFIGS = {
    "empty": b"", "null": b"null", "list": b"[]", "text": b"hello", "number": b"7", "bytes": bytes(range(128, 256)),
    "no YAML": b"a: [", "contexts of another form": b"current-context: a\ncontexts: 3\n",
    "a context of another form": b"current-context: a\ncontexts: [3]\n", "tabs": b"\tkind: Config",
    "no clusters": b"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n",
    "a cluster of another form": b"current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c}]",
    "a certificate of another form": b"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: "
    b"[{name: c, cluster: {server: 'https://a', certificate-authority-data: 5}}]\nusers: [{name: u, user: {}}]\n",
}  # fmt: skip


@pytest.mark.parametrize("case", NO_KUBECONFIGS)
def test_invalid_kubeconfig_is_reported_in_one_sentence(case: str, tmp_path: Path) -> None:
    """A kubeconfig that cannot be parsed is reported in one message. Reported: an empty kubeconfig, which a failed `ome
    kubeconfig > FILE` leaves, caused a traceback.
    """
    file = tmp_path / "config"
    file.write_bytes(NO_KUBECONFIGS[case])
    with pytest.raises(NoConnection) as told:
        asyncio.run(Connection.open(file))
    assert str(told.value).startswith(str(file)) and "\n" not in str(told.value)
