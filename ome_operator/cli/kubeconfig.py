"""`ome kubeconfig`: writes a kubeconfig that contains the token of a ServiceAccount, and no credentials of the user who
runs the command.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from ome_operator import quantity
from ome_operator.cli.connect import Context, Kubeconfig, on_cluster
from ome_operator.errors import InvalidOption, UserError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)

SHORTEST = timedelta(minutes=10)
"""Shortest lifetime of a token. The API server issues no token with a shorter lifetime."""
_PART = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_SPAN = re.compile(r"([0-9]{1,9}[hms])+")


@app.command(epilog="Examples: ome kubeconfig --serviceaccount ome/ome-operator; add -o - to print to stdout")
def kubeconfig(
    serviceaccount: Annotated[str, typer.Option(help="The ServiceAccount, as NAMESPACE/NAME.", show_default=False)],
    output: Annotated[
        str, typer.Option("--output", "-o", help="File to write, or - for stdout; by default NAME.kubeconfig.")
    ] = "",
    duration: Annotated[str, typer.Option(help="Lifetime of the token, such as 24h or 90m.")] = "24h",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write a kubeconfig with a token of a ServiceAccount. The server and the CA are those of the current kubeconfig.

    An operator that uses this kubeconfig has only the rights of that account, and the admission policies of the chart apply
    to it. Only you can read the file. To renew the token, run the command again: a running operator reads the file again by
    itself.
    """
    namespace, name = parse_account(serviceaccount)
    life = parse_lifetime(duration)
    file = None if output == "-" else Path(output or f"{name}.kubeconfig")
    if file is not None:
        replaceable(file, serviceaccount)

    cluster, token = on_cluster(
        kubeconfig,
        context,
        lambda client: _request_token(client, namespace, name, life),
        stopped="This command needs the right to create serviceaccounts/token.",
    )
    text = yaml.safe_dump(build_kubeconfig(cluster, serviceaccount, str(token["token"])), sort_keys=False)
    if file is None:
        typer.echo(text, nl=False)
    else:
        write_private_file(file, text)
    until = datetime.fromisoformat(str(token["expirationTimestamp"]))
    typer.echo(describe_token(file, cluster["server"], namespace, name, until, life), err=True)


async def _request_token(
    client: "Client", namespace: str, name: str, life: timedelta
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the cluster of the kubeconfig and a new token of the account. Raises UserError if there is no such account."""
    from ome_operator.kube.errors import NotFound, NotServed

    try:
        token = await client.request_token(namespace, name, int(life.total_seconds()))
    except (NotFound, NotServed) as error:
        raise UserError(
            f"ServiceAccount {namespace}/{name} does not exist: install the chart ome-resources, or name another account "
            f"({error})."
        ) from error
    return client.connection.cluster(), token


def parse_account(written: str) -> tuple[str, str]:
    """Return the namespace and the name of an account from the text NAMESPACE/NAME. Raises InvalidOption if the text has
    another form.
    """
    found = re.fullmatch(f"({_PART})/({_PART})", written)
    if found is None:
        raise InvalidOption(f"--serviceaccount={written}: write NAMESPACE/NAME, such as ome/ome-operator.")
    namespace, _, name = written.partition("/")
    return namespace, name


def parse_lifetime(written: str) -> timedelta:
    """Return the lifetime of a token from a text such as 24h. Raises InvalidOption if the text is invalid or the lifetime is
    shorter than SHORTEST.
    """
    found = timedelta(seconds=quantity.seconds(written)) if _SPAN.fullmatch(written) else None
    if found is None or found < SHORTEST:
        raise InvalidOption(f"--duration={written}: write 10m or longer, such as 24h.")
    return found


def build_kubeconfig(cluster: Mapping[str, Any], user: str, token: str) -> dict[str, Any]:
    """Return the content of a kubeconfig with one cluster and one user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": user,
        "clusters": [{"name": "cluster", "cluster": dict(cluster)}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": "cluster", "user": user}}],
    }


def replaceable(file: Path, user: str) -> None:
    """Raise InvalidOption if the file exists and contains anything other than a kubeconfig of the account `user`."""
    if not file.exists():
        if not file.parent.is_dir():
            raise InvalidOption(f"--output={file}: the folder {file.parent} does not exist: create it.")
        return
    try:
        found = yaml.safe_load(file.read_text())
        users = [user["name"] for user in found["users"]]
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError):
        users = []
    if users != [user]:
        raise InvalidOption(
            f"--output={file}: this file exists and contains more than a kubeconfig of {user}: name another file."
        )


def write_private_file(file: Path, text: str) -> None:
    """Write the file with mode 0600. The file is replaced atomically, because a running operator may read it at any
    moment.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
        try:
            with os.fdopen(handle, "w") as written:
                written.write(text)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidOption(f"--output={file}: {error.strerror}.") from error


def describe_token(file: Path | None, server: str, namespace: str, name: str, until: datetime, asked: timedelta) -> str:
    """Return a line that states the account, the server and the expiry of the token. If the token expires earlier than
    `asked`, the line states this, too. `file` is the written file, or None if the kubeconfig was printed.
    """
    left = until - datetime.now(UTC)
    message = f"system:serviceaccount:{namespace}:{name} at {server}, until {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if left < asked - timedelta(minutes=1):
        message += f" (the API server issues no token for {_spelled(asked)})"
    return f"{file}: {message}" if file is not None else message


def _spelled(life: timedelta) -> str:
    minutes = int(life.total_seconds()) // 60
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"
