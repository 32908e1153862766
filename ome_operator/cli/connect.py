"""What every command that works on a cluster shares: how to find it, and what to say when it does not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ome_operator.local.errors import LocalError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client

Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig file; by default that of kubectl.", envvar="KUBECONFIG")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]

T = TypeVar("T")
MANAGER = "ome-cli"
"""Field manager of what people change with the command line."""


def on_cluster(
    kubeconfig: Path | None,
    context: str | None,
    work: Callable[["Client"], Awaitable[T]],
    *,
    manager: str = MANAGER,
    elsewhere: str = "--kubeconfig names another file.",
    stopped: str = "",
) -> T:
    """Connect, work, and close. `elsewhere` is said when there is no cluster, `stopped` when it refused something."""
    from ome_operator.kube.client import Client
    from ome_operator.kube.connection import Connection, NoConnection
    from ome_operator.kube.errors import KubeError

    async def connected() -> T:
        client = Client(await Connection.open(kubeconfig or Path.home() / ".kube/config", context), manager=manager)
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(connected())
    except NoConnection as error:
        raise LocalError(f"no connection to a cluster: {error}. {elsewhere}") from error
    except KubeError as error:
        raise LocalError(f"{error}. {stopped}".strip()) from error
