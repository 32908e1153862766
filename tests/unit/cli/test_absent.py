"""Tests that a name that does not exist is answered with the name that the user probably means: commands and services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import connect
from ome_operator.cli.app import app, commands
from ome_operator.cli.connect import no_such_service
from ome_operator.errors import UserError
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, Unauthorized
from tests.support.fake_api import Call, FakeApi


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("lin -f a.yaml", "Did you mean `ome lint`?"),
        ("describe a", "Did you mean `ome explain`?"),
        ("version", "Did you mean `ome --version`?"),
        ("plan layots --model a", "Did you mean 'layouts'?"),
        ("undo kimi 86cbf2bc", "(86cbf2bc). Write a revision behind --to."),
        ("lint -f a.yaml b.yaml c.yaml", "(c.yaml). Repeat -f for each file, or name their directory."),
    ],
)
def test_unknown_command_suggests_the_intended_one(words: str, meant: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2 and done.output.rstrip().endswith(meant)


@pytest.mark.parametrize(
    "words",
    [
        "logs kimi a.yaml",
        "plan --model a --hardware h200 --workload 1k/1k a.json",
        "generate a.json",
        "explain runtime -f a.yaml b.yaml",
    ],
)
def test_file_wildcards_are_suggested_only_for_repeatable_options(words: str) -> None:
    """The message about an unexpected argument suggests repeating `-f` only for a command that accepts several files. In
    `ome logs`, `-f` follows the log, and the other commands of this test read a single file or none.
    """
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2 and "unexpected extra argument" in done.output and "Repeat -f" not in done.output


def test_every_suggested_command_exists() -> None:
    from ome_operator.cli.app import _MEANT

    assert not _MEANT.keys() & set(commands())
    assert {line.split()[0] for line in _MEANT.values() if not line.startswith("--")} <= set(commands())


def test_unknown_command_without_similar_one_is_only_refused() -> None:
    assert CliRunner().invoke(app, ["zzz"]).output.rstrip().endswith("No such command 'zzz'.")


def listed(*names: str, everywhere: bool = True) -> FakeApi:
    """Return a cluster with these services, as `namespace/name`. Unless `everywhere`, only one namespace may be listed."""

    def answer(call: Call) -> Any:
        if not (everywhere or call.namespace):
            return Forbidden("no", 403)
        bodies = [{"metadata": dict(zip(("namespace", "name"), each.split("/"), strict=True))} for each in names]
        return [body for body in bodies if call.namespace in ("", body["metadata"]["namespace"])]

    return FakeApi({"list_objects": answer})


@pytest.mark.parametrize(
    ("api", "remedy"),
    [
        (listed("a/kimi", "b/kimi", "team/kim"), "There is one in namespace a, b: write -n a."),
        (
            listed("team/kimi-2"),
            "Did you mean kimi-2? Otherwise choose another namespace with -n; `ome status -A` shows all",
        ),
        (listed("team/kimi-2", "a/kimi", everywhere=False), "Did you mean kimi-2?"),
        (listed("team/other"), "Choose another namespace with -n; `ome status -A` shows all services."),
        (FakeApi({"list_objects": Forbidden("no", 403)}), "Choose another namespace with -n;"),
    ],
)
async def test_missing_service_suggests_similar_names_and_other_namespaces(api: FakeApi, remedy: str) -> None:
    said = str(await no_such_service(api, "kimi", "team"))
    assert said.startswith(f"there is no InferenceService kimi in namespace team. {remedy}")


@pytest.mark.parametrize(
    ("refusal", "narrower"),
    [
        ('inferenceservices.ome.io is forbidden: User "u" cannot list resource "inferenceservices"', True),
        ('nodes "a" is forbidden: User "u" cannot get resource "nodes"', False),
    ],
)
def test_missing_permission_suggests_other_accounts_and_namespaces(
    refusal: str, narrower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield FakeApi()

    async def work(_: Client) -> None:
        raise Forbidden(refusal, 403)

    monkeypatch.setattr(connect, "open_client", opened)
    with pytest.raises(UserError) as caught:
        connect.on_cluster(None, None, work)
    assert str(caught.value).startswith(f"{refusal}. Use an account with this right (--context, --kubeconfig)")
    assert ("namespace" in str(caught.value)) is narrower


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Forbidden('pods "p" is forbidden: exceeded quota: q', 403), 'pods "p" is forbidden: exceeded quota: q.'),
        (Forbidden('pods "p" is forbidden: violates PodSecurity', 403), 'pods "p" is forbidden: violates PodSecurity.'),
        (
            Unauthorized("Unauthorized", 401),
            "the API server does not accept the credentials in here (Unauthorized): they may have expired, so log in again, "
            "or use another file with --kubeconfig.",
        ),
    ],
)
def test_another_account_is_recommended_only_if_a_right_is_missing(
    answer: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield FakeApi()

    async def work(_: Client) -> None:
        raise answer

    monkeypatch.setattr(connect, "open_client", opened)
    with pytest.raises(UserError) as caught:
        connect.on_cluster(Path("here"), None, work)
    assert str(caught.value) == message
