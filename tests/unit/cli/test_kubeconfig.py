"""Tests of `ome kubeconfig`: the contents of the file, who may read it, and what is refused."""

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.cli import connect
from ome_operator.cli.kubeconfig import app, build_kubeconfig, parse_account, parse_lifetime
from ome_operator.errors import UserError
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support.fake_api import FakeApi

CLUSTER = {"server": "https://api.example.com:6443", "certificate-authority-data": "Q0E="}
WORDS = ("--serviceaccount", "ome/ome-operator")


class Server(FakeApi):
    """An API server that issues tokens, for at most an hour."""

    refusal: Exception | None = None

    class Here:
        def cluster(self) -> dict[str, Any]:
            return dict(CLUSTER)

    connection: Any = Here()

    async def request_token(self, namespace: str, account: str, seconds: int) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        until = datetime.now(UTC) + timedelta(seconds=min(seconds, 3600))
        return {"token": f"token-of-{namespace}-{account}", "expirationTimestamp": until.isoformat()}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    found = Server()

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Server]:
        yield found

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.chdir(tmp_path)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_kubeconfig_contains_the_token_and_no_credentials_of_the_caller(server: Server) -> None:
    done = run(*WORDS, "--duration", "30m")
    assert done.exit_code == 0, done.output
    file = Path("ome-operator.kubeconfig")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert yaml.safe_load(file.read_text()) == build_kubeconfig(CLUSTER, "ome/ome-operator", "token-of-ome-ome-operator")
    assert "system:serviceaccount:ome:ome-operator at https://api.example.com:6443, until 20" in done.stderr
    assert "no token for" not in done.stderr


def test_shortened_token_lifetime_is_reported(server: Server) -> None:
    assert "(the API server issues no token for 24h)" in run(*WORDS).stderr


def test_kubeconfig_is_replaced_atomically(server: Server) -> None:
    """`ome kubeconfig` may write a file again while an operator reads it: the file is replaced at once, whatever its mode is
    by now, and no other file is changed.
    """
    file = Path("mine")
    assert run(*WORDS, "-o", "mine").exit_code == 0
    file.chmod(0o644)
    assert run(*WORDS, "-o", "mine").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(Path().iterdir()) == [file]


@pytest.mark.parametrize("text", ["precious", "users: [{name: me}]", "users: [{name: ome/ome-operator}, {name: me}]", ""])
def test_file_of_another_kind_is_not_overwritten(text: str, server: Server) -> None:
    Path("config").write_text(text)
    with pytest.raises(UserError, match=r"--output=config: this file exists"):
        CliRunner().invoke(app, [*WORDS, "-o", "config"], catch_exceptions=False)
    assert Path("config").read_text() == text


def test_kubeconfig_is_written_to_stdout(server: Server) -> None:
    done = run(*WORDS, "--output", "-")
    assert yaml.safe_load(done.stdout)["users"][0]["user"] == {"token": "token-of-ome-ome-operator"}
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (NotFound("serviceaccounts not found", 404), "ServiceAccount ome/ome-operator does not exist: install the chart"),
        (Forbidden("you may not", 403), "This command needs the right to create serviceaccounts/token"),
    ],
)
def test_refused_token_request_gives_a_one_line_error(refusal: Exception, said: str, server: Server) -> None:
    server.refusal = refusal
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(app, list(WORDS), catch_exceptions=False)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("written", ["ome-operator", "ome/", "/x", "a/b/c", "Ome/operator", "system:serviceaccount:a:b"])
def test_account_must_have_a_namespace_and_a_name(written: str) -> None:
    with pytest.raises(UserError, match="write NAMESPACE/NAME"):
        parse_account(written)
    assert parse_account("ome/ome-operator") == ("ome", "ome-operator")


@pytest.mark.parametrize("written", ["", "1d", "60", "9m", "599s", "-1h", "h"])
def test_token_lifetime_is_at_least_ten_minutes(written: str) -> None:
    with pytest.raises(UserError, match="write 10m or longer"):
        parse_lifetime(written)
    assert parse_lifetime("1h30m") == timedelta(minutes=90)
