"""What every command that works on a cluster shares: how to find it, and what to say when it does not answer."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ome_operator.errors import Unanswered, UserError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client

Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig file; by default that of kubectl.", envvar="KUBECONFIG")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="By default that of the kubeconfig's context.", show_default=False)
]

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
    error: type[UserError] = UserError,
    read_only: bool = False,
) -> T:
    """Connect, work, and close. `elsewhere` is said when there is no cluster, `stopped` when it refused something.
    `read_only`: whatever is no GET is not sent.

    Ctrl+C ends it with exit code 130, as programs do that go on until then.
    """
    import asyncio

    from ome_operator.kube.connection import NoConnection
    from ome_operator.kube.errors import KubeError

    async def connected() -> T:
        async with opened(kubeconfig, context, manager, read_only) as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except NoConnection as nowhere:
        raise error(f"no connection to a cluster: {nowhere}. {elsewhere}") from nowhere
    except KubeError as refused:
        raise error(f"{refused}. {stopped}".strip()) from refused


@asynccontextmanager
async def opened(
    kubeconfig: Path | None, context: str | None, manager: str = MANAGER, read_only: bool = False
) -> "AsyncIterator[Client]":
    """A client that is closed in the end; raises NoConnection."""
    from ome_operator.kube.client import Client
    from ome_operator.kube.connection import Connection, NoConnection

    path = kubeconfig or Path.home() / ".kube/config"
    if os.pathsep not in str(path) and not path.exists():  # the library would speak of a key that is missing
        raise NoConnection(f"{path} does not exist")
    client = Client(await Connection.open(path, context), manager=manager, may_write=(lambda: False) if read_only else None)
    try:
        yield client
    finally:
        await client.close()


def inside(client: "Client", namespace: str) -> str:
    """The namespace that is meant: what was asked for, else the context's."""
    return namespace or client.connection.namespace or "default"


_KINDS = ("isvc", "inferenceservice", "inferenceservices", "inferenceservices.ome.io")
"""What kubectl takes for the kind of a service, in `KIND/NAME`."""


def meant(client: "Client", service: str, namespace: str) -> tuple[str, str]:
    """Namespace and name of the service that a person means: NAME, NAMESPACE/NAME as commands print it, or KIND/NAME."""
    before, _, name = service.rpartition("/")
    if before.lower() in _KINDS or not before:
        return inside(client, namespace), name
    if namespace not in ("", before):
        raise Unanswered(f"SERVICE {service} is in namespace {before}, and -n says {namespace}: leave one of them out.")
    return before, name


def missing(service: str, namespace: str) -> Unanswered:
    """The sentence for a service that is not there."""
    where = f"namespace {namespace}: -n names another one, `ome status -A` shows all"
    return Unanswered(f"there is no InferenceService {service} in {where}.")
