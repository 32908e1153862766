"""`ome freeze`, `ome thaw`: an annotation on a service, or on the operator's Lease for all services.

docs/observe-freeze.md says what goes on meanwhile.
"""

import asyncio
import getpass
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import keys
from ome_operator.cli.completing import services
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, meant, missing, on_cluster
from ome_operator.cli.output import say
from ome_operator.errors import UserError
from ome_operator.settings import Settings

if TYPE_CHECKING:
    from ome_operator.kube.client import Client, Manifest

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Name = Annotated[str, typer.Argument(metavar="[SERVICE]", show_default=False, autocompletion=services)]
Operator = Annotated[
    str,
    typer.Option(
        "--namespace-of-lease", help="With --all: where the operator runs; by default it is looked for.", show_default=False
    ),
]
Class = Annotated[
    str,
    typer.Option(
        "--operator-class", help=f"With --all: of the operator for the label {keys.OPERATOR_CLASS}.", show_default=False
    ),
]
LOOK = 0.5
"""Seconds between two looks whether the operator has confirmed."""
UNSEEN = 2.5 * Settings().freeze_interval
"""Seconds in which an operator has read its Lease, where nothing can show that."""


@app.command(epilog='Examples: ome freeze kimi-k2-instruct --why "new driver"; ome freeze --all')
def freeze(
    service: Name = "",
    every: Annotated[bool, typer.Option("--all", help="Every service of the operator.")] = False,
    why: Annotated[str, typer.Option(help="A few words for whoever finds it frozen.")] = "",
    timeout: Annotated[float, typer.Option(min=0, help="Seconds that the operator may take to confirm.")] = 60.0,
    lease: Operator = "",
    of: Class = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Stop the operator: nothing is rolled, scaled or recycled until `ome thaw`. What runs goes on and serves.

    Exit code 0: the operator has confirmed it. 1: it is stored, and nobody has confirmed it yet.
    """
    _either(service, every, namespace, of)

    async def work(client: "Client") -> bool:
        value = await _value(client, why)
        if every:
            name = _lease_of(of)
            where = await _found(client, name, lease)
            await _annotate(client, "Lease", where, name, value)
            typer.echo(f"All services are frozen: Lease {where}/{name} says so. `{_thaw(of)}` ends it.")
            if not await client.list_objects("InferenceService", limit=1, label_selector=_selector(of)):
                await asyncio.sleep(UNSEEN)
                typer.echo("There is no service that could confirm it. An operator that runs has read it by now.")
                return True
            return await _confirmed(lambda: _all_say(client, value, of), timeout)
        where, name = meant(client, service, namespace)
        await _annotate(client, "InferenceService", where, name, value)
        typer.echo(f"{where}/{name} is frozen. `ome thaw {name} -n {where}` ends it.")
        return await _confirmed(lambda: _says(client, where, name, value), timeout)

    raise typer.Exit(0 if on_cluster(kubeconfig, context, work) else 1)


@app.command(epilog="Examples: ome thaw kimi-k2-instruct; ome thaw --all")
def thaw(
    service: Name = "",
    every: Annotated[
        bool, typer.Option("--all", help="End `ome freeze --all`; services that are frozen alone stay so.")
    ] = False,
    lease: Operator = "",
    of: Class = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let the operator go on, with what the services say by now."""
    _either(service, every, namespace, of)

    async def work(client: "Client") -> None:
        if every:
            name = _lease_of(of)
            where = await _found(client, name, lease)
            was = await _annotate(client, "Lease", where, name, None)
            typer.echo("Thawed." if was else f"Lease {where}/{name} says that nothing is frozen: nothing was edited.")
            await _left(client, of)
            return
        where, name = meant(client, service, namespace)
        was = await _annotate(client, "InferenceService", where, name, None)
        typer.echo(f"{where}/{name} {'goes on' if was else 'was not frozen by itself: nothing was edited'}.")
        its = await _class_of(client, where, name)
        if said := await _frozen_with_all(client, _lease_of(its), lease):
            say(f"All services are frozen{said}: `{_thaw(its)}` ends that.")

    on_cluster(kubeconfig, context, work)


def _either(service: str, every: bool, namespace: str, of: str) -> None:
    if bool(service) is every:
        raise UserError("Name a SERVICE, or say --all.")
    if of and not every:
        raise UserError("--operator-class goes with --all: a SERVICE says its class itself.")
    if every and namespace:
        raise UserError("--all means every service of the operator, in all namespaces: leave out -n, or name a SERVICE.")


def _lease_of(of: str) -> str:
    """The Lease of the operator of a class."""
    return Settings(operator_class=of).own_name


def _selector(of: str) -> str:
    """The services that it acts on."""
    return f"{keys.OPERATOR_CLASS}={of}" if of else f"!{keys.OPERATOR_CLASS}"


def _thaw(of: str) -> str:
    return "ome thaw --all" + (f" --operator-class {of}" if of else "")


async def _class_of(client: "Client", namespace: str, name: str) -> str:
    body = await client.get("InferenceService", namespace, name)
    return str((body["metadata"].get("labels") or {}).get(keys.OPERATOR_CLASS) or "")


async def _value(client: "Client", why: str) -> str:
    """Since when, by whom and why."""
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    reason = " ".join(why.split())
    return f"{when} by {await _who(client)}" + (f": {reason}" if reason else "")


async def _who(client: "Client") -> str:
    """Who we are for the API server, else on this machine."""
    from ome_operator.kube.errors import KubeError

    try:
        return await client.who() or getpass.getuser()
    except KubeError:
        return getpass.getuser()


async def _found(client: "Client", name: str, namespace: str) -> str:
    """The namespace of the operator's Lease."""
    if namespace:
        return namespace
    found = await client.list_objects("Lease", field_selector=f"metadata.name={name}")
    places = sorted(item["metadata"]["namespace"] for item in found)
    if len(places) == 1:
        return str(places[0])
    how = f"in {', '.join(places)}" if places else "in no namespace"
    raise UserError(f"there is a Lease {name} {how}: say with --namespace-of-lease where the operator runs.")


async def _annotate(client: "Client", kind: str, namespace: str, name: str, value: str | None) -> str:
    """Set or remove the annotation; what it was."""
    from ome_operator.core.freeze.hold import frozen
    from ome_operator.kube.errors import NotFound

    notes: Manifest = {} if value is None else {keys.FREEZE: value}
    try:
        body = await client.get(kind, namespace, name)
    except NotFound as error:
        if kind != "Lease":
            raise missing(name, namespace) from error
        # An operator without leader election has none. It reads it all the same.
        made = {"apiVersion": "coordination.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}
        await client.create({**made, "metadata": {**made["metadata"], "annotations": notes}})  # type: ignore[dict-item]
        return ""
    was = frozen(body["metadata"].get("annotations") or {})
    if was or value is not None:
        patch = {"metadata": {"annotations": {keys.FREEZE: value}}}
        await client.patch_merge(kind, namespace, name, body["metadata"]["uid"], patch)
    return was


async def _confirmed(lacks: Callable[[], Awaitable[str]], seconds: float) -> bool:
    """Wait until nothing is lacking."""
    end = time.monotonic() + seconds
    while said := await lacks():
        if time.monotonic() >= end:
            found = "It is stored, and an operator that starts finds it. Does an operator run?"
            typer.echo(f"Not confirmed within {seconds:.0f} s ({said}). {found}")
            return False
        await asyncio.sleep(LOOK)
    typer.echo("The operator has confirmed it.")
    return True


async def _says(client: "Client", namespace: str, name: str, value: str) -> str:
    """What is lacking until a service says that it is frozen."""
    body = await client.get("InferenceService", namespace, name)
    return "" if _told(body, value) else "its status does not say so"


async def _all_say(client: "Client", value: str, of: str) -> str:
    listed = await client.list_objects("InferenceService", label_selector=_selector(of))
    bodies = [item for item in listed if "deletionTimestamp" not in item["metadata"]]
    silent = [item for item in bodies if not _told(item, value)]
    return f"the statuses of {len(silent)} of {len(bodies)} services do not say so" if silent else ""


def _told(body: "Manifest", value: str) -> bool:
    """Whether a status tells of this very freeze, by its time and who."""
    said = (body.get("status") or {}).get("conditions") or ()
    stamp = value.partition(": ")[0]
    return any(item.get("type") == "Frozen" and stamp in (item.get("message") or "") for item in said)


async def _left(client: "Client", of: str) -> None:
    """Say which services stay frozen."""
    from ome_operator.core.freeze.hold import frozen

    bodies = await client.list_objects("InferenceService", label_selector=_selector(of))
    found = [item["metadata"] for item in bodies if frozen(item["metadata"].get("annotations") or {})]
    for item in found[:10]:
        typer.echo(
            f"{item['namespace']}/{item['name']} is frozen by itself: `ome thaw {item['name']} -n {item['namespace']}`."
        )
    if len(found) > 10:
        typer.echo(f"So are {len(found) - 10} more.")


async def _frozen_with_all(client: "Client", name: str, lease: str) -> str:
    """What the operator's Lease says, where we may read it."""
    from ome_operator.core.freeze.hold import frozen, said
    from ome_operator.kube.errors import KubeError

    try:
        where = await _found(client, name, lease)
        value = frozen((await client.get("Lease", where, name))["metadata"].get("annotations") or {})
    except (KubeError, UserError):
        return ""
    return said(value) if value else ""
