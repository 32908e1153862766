"""The parts that all commands on a cluster share: the options that select the cluster, the connection, and messages for
errors.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ome_operator.errors import QuestionUnanswered, UserError
from ome_operator.util.similar import most_similar

if TYPE_CHECKING:
    from ome_operator.kube.client import Client, Manifest

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig file; by default the file that kubectl uses.", envvar="KUBECONFIG")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="Namespace; by default the namespace of the kubeconfig's context.", show_default=False
    ),
]

T = TypeVar("T")
MANAGER = "ome-cli"
"""Field manager of edits that a user makes with `ome`."""
_FEW = 3
"""Maximum number of namespaces that a message names."""
_LACKS_RIGHT = (' is forbidden: User "', '" cannot ')
"""Parts of the API server's message if RBAC does not permit a request: `pods is forbidden: User "u" cannot create …`."""
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further attempt of an edit whose object was changed by another client in the meantime."""


def on_cluster(
    kubeconfig: Path | None,
    context: str | None,
    work: Callable[["Client"], Awaitable[T]],
    *,
    manager: str = MANAGER,
    elsewhere: str = "Pass another file with --kubeconfig.",
    stopped: str = "",
    error: type[UserError] = UserError,
    read_only: bool = False,
) -> T:
    """Connect to the cluster, await `work`, close the connection and return the result. `elsewhere` is appended to the
    message if no connection is possible, `stopped` if the API server refuses a request. `error` is the class of the
    exception that is raised for these failures. With `read_only`, only GET requests are sent.

    Ctrl+C ends the command with exit code 130 (128 + SIGINT).
    """
    import asyncio

    from ome_operator.kube.connection import NoConnection
    from ome_operator.kube.errors import Forbidden, KubeError, Unauthorized, Unreached

    async def connected() -> T:
        async with open_client(kubeconfig, context, manager, read_only) as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except NoConnection as nowhere:
        raise error(f"no connection to a cluster: {nowhere}. {elsewhere}") from nowhere
    except Unreached as nowhere:
        why, where = str(nowhere).partition(": ")[2], kubeconfig or _default()
        remedies = dict.fromkeys([f"Start the cluster, or correct its server in {where}.", elsewhere, stopped])
        raise error(f"no connection to a cluster: {why}. {' '.join(filter(None, remedies))}") from nowhere
    except Unauthorized as refused:
        raise error(
            f"the API server does not accept the credentials in {kubeconfig or _default()} ({refused}): they may have "
            f"expired, so log in again, or use another file with --kubeconfig. {stopped}".rstrip()
        ) from refused
    except Forbidden as refused:
        raise error(f"{refused}. {stopped or _other_account(str(refused))}".rstrip()) from refused
    except KubeError as refused:
        raise error(f"{refused}. {stopped}".strip()) from refused


def _other_account(refusal: str) -> str:
    """Return what a user without a right can do, as a sentence; "" if the request was refused for another reason, such as a
    quota. `refusal` is the API server's message.
    """
    if not all(part in refusal for part in _LACKS_RIGHT):
        return ""
    narrower = "inferenceservices" in refusal
    return (
        f"Use an account with this right (--context, --kubeconfig){', or a namespace in which you have it (-n)' * narrower}."
    )


def _default() -> Path:
    return Path.home() / ".kube/config"


@asynccontextmanager
async def open_client(
    kubeconfig: Path | None, context: str | None, manager: str = MANAGER, read_only: bool = False
) -> "AsyncIterator[Client]":
    """Yield a client of the cluster, and close it at the end. If `read_only` is true, only GET requests are sent. Raises
    NoConnection if there is no usable kubeconfig.
    """
    from ome_operator.kube.client import Client
    from ome_operator.kube.connection import Connection, NoConnection

    path = kubeconfig or _default()
    if os.pathsep not in str(path) and not path.exists():  # the client library would complain about a missing key instead
        raise NoConnection(f"{path} does not exist")
    client = Client(await Connection.open(path, context), manager=manager, may_write=(lambda: False) if read_only else None)
    try:
        yield client
    finally:
        await client.close()


async def patch_read(client: "Client", kind: str, body: "Manifest", patch: "Manifest") -> "Manifest":
    """Apply a merge patch that was computed from `body`, the object as it was read. Return the object as it is stored
    afterwards.

    Raises Conflict if the object has changed since it was read, so that an edit never overwrites what the patch does not
    take into account. `retry_on_conflict` repeats such an edit.
    """
    was = body["metadata"]
    bound = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": was["resourceVersion"]}}
    return await client.patch_merge(kind, was.get("namespace") or "", was["name"], was["uid"], bound)


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """Await `attempt`, which reads an object and writes it with `patch_read`, until no other client changes the object in
    between, and return its result. Raises UserError after as many attempts as `PAUSES` permits.

    Controllers write the status of an object all the time, so a conflict is no reason to trouble the user.
    """
    import asyncio

    from ome_operator.kube.errors import AlreadyExists, Conflict

    for pause in PAUSES:
        try:
            return await attempt()
        except (AlreadyExists, Conflict):
            await asyncio.sleep(pause)
    try:
        return await attempt()
    except (AlreadyExists, Conflict) as error:
        raise UserError(
            f"other clients changed the object each time before this command could write it ({error}), so nothing was "
            "written: run the command again."
        ) from error


def edited_on_cluster(kubeconfig: Path | None, context: str | None, attempt: Callable[["Client"], Awaitable[T]]) -> T:
    """Connect to the cluster with `on_cluster`, await the edit `attempt`, and repeat it after a conflict, as
    `retry_on_conflict` describes.
    """
    return on_cluster(kubeconfig, context, lambda client: retry_on_conflict(lambda: attempt(client)))


def namespace_or_default(client: "Client", namespace: str) -> str:
    """Return `namespace`. If it is empty, return the namespace of the kubeconfig's context, or "default" if the context
    has none.
    """
    return namespace or client.connection.namespace or "default"


_KINDS = ("isvc", "inferenceservice", "inferenceservices", "inferenceservices.ome.io")
"""Names that kubectl accepts as the kind of a service in `KIND/NAME`."""


def refuse_file(service: str, command: str = "lint") -> None:
    """Raise QuestionUnanswered if `service` is the name of a file. The message recommends `ome COMMAND -f`, where `command`
    is a command that reads files.
    """
    if Path(service).suffix in (".yaml", ".yml", ".json"):
        reads = f"`ome {command} -f {service}` reads it; repeat -f for each file"
        raise QuestionUnanswered(f"{service} is the name of a file, not of a service: {reads}.")


def resolve_service(client: "Client", service: str, namespace: str) -> tuple[str, str]:
    """Return the namespace and the name of a service. The user writes NAME, NAMESPACE/NAME (the form that commands print) or
    KIND/NAME. Raises QuestionUnanswered if `service` and `namespace` (the option -n) contain different namespaces, and for
    the name of a file.
    """
    refuse_file(service)
    before, _, name = service.rpartition("/")
    if before.lower() in _KINDS or not before:
        return namespace_or_default(client, namespace), name
    if namespace not in ("", before):
        raise QuestionUnanswered(
            f"SERVICE {service} is in namespace {before}, but -n is {namespace}: leave out one of the two."
        )
    return before, name


async def get_service(client: "Client", service: str, namespace: str) -> "Manifest":
    """Return the InferenceService that the user names. `resolve_service` explains `service` and `namespace`. Raises
    QuestionUnanswered if the service does not exist.
    """
    from ome_operator.kube.errors import NotFound

    where, name = resolve_service(client, service, namespace)
    try:
        return await client.get("InferenceService", where, name)
    except NotFound as error:
        raise await no_such_service(client, name, where) from error


async def no_such_service(client: "Client", service: str, namespace: str) -> QuestionUnanswered:
    """Return the error for a service that does not exist. If the user may list services, the message names a service of the
    same name in another namespace, or a service of a similar name in this namespace.
    """
    from ome_operator.kube.errors import KubeError

    for where in ("", namespace):
        try:
            bodies = await client.list_some("InferenceService", where)
        except KubeError:
            continue
        return _absent(service, namespace, [(body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies])
    return _absent(service, namespace, [])


def _absent(service: str, namespace: str, known: Collection[tuple[str, str]]) -> QuestionUnanswered:
    others = sorted(where for where, name in known if name == service)
    near = most_similar(service, (name for where, name in known if where == namespace))
    remedy = "Choose another namespace with -n; `ome status -A` shows all services"
    if others:
        remedy = f"There is one in namespace {', '.join(others[:_FEW])}: write -n {others[0]}"
    elif near:
        remedy = f"Did you mean {near}? Otherwise c{remedy[1:]}"
    return QuestionUnanswered(f"there is no InferenceService {service} in namespace {namespace}. {remedy}.")
