"""Tests that a kubeconfig with an odd value leads to a message of one sentence with the file, the field and a fix, and
never to a traceback. Every field that is checked meets every odd value.
"""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_local.pki import Authority
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from ome_operator.kube.connection import Connection, NoConnection
from ome_operator.kube.kubeconfig import STRINGS

ODD: tuple[Any, ...] = (
    None, "", 5, True, "false", [1], {"a": "b"}, "no such", "!!!", "YWJj", "://x", "https://a:99999",
)  # fmt: skip
FIELDS = [
    ("current-context",),
    *((section,) for section in ("clusters", "contexts", "users")),
    *((section, 0) for section in ("clusters", "contexts", "users")),
    *((f"{kind}s", 0, "name") for kind in STRINGS),
    *((f"{kind}s", 0, kind) for kind in STRINGS),
    *((f"{kind}s", 0, kind, field) for kind, fields in STRINGS.items() for field in fields),
    ("clusters", 0, "cluster", "insecure-skip-tls-verify"),
    *(("users", 0, "user", field) for field in ("token", "exec", "auth-provider")),
    *(("users", 0, "user", "exec", field) for field in ("command", "apiVersion", "args", "env")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("config")
    authority = Authority(made)
    authority.client("person", "jo")
    authority.client("other", "jo")
    return made


def config(folder: Path, **user: Any) -> dict[str, Any]:
    """Return a valid kubeconfig."""
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "ca.crt"}
    person = {"client-certificate": "person.crt", "client-key": "person.key"}
    return {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or person}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def refused(file: Path) -> str:
    """Return why a kubeconfig is refused; "" if it is accepted. Any other exception fails the test."""
    try:
        asyncio.run(Connection.open(file))
    except NoConnection as error:
        return str(error)
    return ""


def written(folder: Path, body: Any) -> Path:
    file = folder / "config"
    file.write_text(yaml.safe_dump(body))
    return file


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_invalid_value_in_any_field_is_reported_in_one_sentence(path: tuple[Any, ...], folder: Path) -> None:
    seen = 0
    for odd in ODD:
        user = {"exec": {"command": "true", "apiVersion": "client.authentication.k8s.io/v1"}} if "exec" in path else {}
        body = copy.deepcopy(config(folder, **user))
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = odd
        file = written(folder, body)
        message = refused(file)
        if message:
            seen += 1
            assert message.startswith(str(file)) and "\n" not in message and ": " in message, (odd, message)
            assert "Traceback" not in message and not message.endswith("."), (odd, message)
    assert seen, path


def test_valid_kubeconfig_is_accepted(folder: Path) -> None:
    assert refused(written(folder, config(folder))) == ""
    assert refused(written(folder, config(folder, token="abc"))) == ""
    assert refused(written(folder, config(folder, token=5))) == ""  # the client library sends it as text
    body = config(folder, token="abc")
    body["clusters"].append({"name": "other", "cluster": {"server": "not a url", "certificate-authority": "/nope"}})
    assert refused(written(folder, body)) == ""  # the context does not use this cluster


@pytest.mark.parametrize(
    ("section", "field", "value", "says"),
    [
        ("clusters", "certificate-authority-data", "!!!", "certificate-authority-data is not base64: write a certificate"),
        ("clusters", "certificate-authority-data", "YWJj", "does not contain a certificate: write a certificate in PEM"),
        ("clusters", "server", "not a url", "clusters[0].cluster.server is not a url: write the address of the API server"),
        ("clusters", "insecure-skip-tls-verify", "false", "is false: write true or false, without quotes"),
        ("users", "client-certificate-data", "YWJj", "client-certificate-data does not contain a certificate"),
        ("users", "client-key", "other.key", "the key does not belong to the certificate"),
        ("users", "password", 5, "users[0].user.password is a number: write a string"),
        ("users", "exec", {"command": "no-such-plugin", "apiVersion": "v1"}, "which is not a program on this machine"),
        ("users", "exec", {"command": "false", "apiVersion": "v1"}, "returned no credentials: run its command to see why"),
    ],
)
def test_kubeconfig_message_names_the_remedy(section: str, field: str, value: Any, says: str, folder: Path) -> None:
    plugin = {"exec": {}} if field == "exec" else {}
    body = config(folder, **plugin)
    body[section][0][section[:-1]][field] = value
    assert says in refused(written(folder, body))


@pytest.mark.parametrize("command", [("status",), ("lint", "-A"), ("logs", "svc"), ("nodes",), ("operator",)])
def test_every_kind_of_command_prints_the_kubeconfig_message(command: tuple[str, ...], folder: Path) -> None:
    body = config(folder)
    body["clusters"][0]["cluster"]["certificate-authority-data"] = "YWJj"
    done = CliRunner().invoke(app, [*command, "--kubeconfig", str(written(folder, body))])
    assert done.exit_code and isinstance(done.exception, UserError), done.exception
    assert "certificate-authority-data does not contain a certificate" in str(done.exception)


def test_empty_kubeconfig_is_reported_as_empty(folder: Path) -> None:
    file = folder / "empty"
    file.write_text("")
    again = "write the file again, for example with `ome kubeconfig`, or name another file"
    assert refused(file) == f"{file} is empty: {again}"
