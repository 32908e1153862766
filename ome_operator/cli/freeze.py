"""`ome freeze` and `ome thaw`: set or remove an annotation on a service, or on the operator's Lease for all services.

docs/observe-freeze.md describes what continues while a service is frozen.
"""

import asyncio
import getpass
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import keys, quantity
from ome_operator.cli.completing import OptionalService
from ome_operator.cli.connect import (
    Context,
    Kubeconfig,
    Namespace,
    no_such_service,
    on_cluster,
    patch_read,
    resolve_service,
    retry_on_conflict,
)
from ome_operator.cli.output import print_result
from ome_operator.errors import InvalidOption, UserError
from ome_operator.settings import Settings

if TYPE_CHECKING:
    from ome_operator.kube.client import Client, Manifest

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Operator = Annotated[
    str,
    typer.Option(
        "--namespace-of-lease",
        help="With --all: namespace in which the operator runs; by default, all namespaces are searched for its Lease.",
        show_default=False,
    ),
]
Class = Annotated[
    str,
    typer.Option(
        "--operator-class",
        help=f"With --all: freeze the operator that handles services with this value of the label {keys.OPERATOR_CLASS}.",
        show_default=False,
    ),
]
LOOK = 0.5
"""Seconds between two checks whether the operator has confirmed the freeze."""
UNSEEN = 2.5 * Settings().freeze_interval
"""Seconds within which every running operator reads its Lease. `ome freeze --all` waits for this time if no service
exists whose status could confirm the freeze."""


@app.command(epilog='Examples: ome freeze kimi-k2-instruct --why "new driver"; ome freeze --all')
def freeze(
    service: OptionalService = "",
    every: Annotated[bool, typer.Option("--all", help="Freeze every service of the operator.")] = False,
    why: Annotated[str, typer.Option(help="Reason for the freeze, which is shown in the status of the services.")] = "",
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the operator's confirmation.")] = 60.0,
    lease: Operator = "",
    of: Class = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Stop the operator's changes until `ome thaw`: it starts no rollout, scales nothing and recycles nothing. Running
    pods keep serving.

    Exit code 0: the operator has confirmed the freeze. 1: the freeze is stored, but the operator has not confirmed it yet.
    """
    _either(service, every, namespace, of)

    async def work(client: "Client") -> bool:
        value = await _value(client, why)
        if every:
            name = _lease_of(of)
            where = await _found(client, name, lease)
            await _freeze(client, "Lease", where, name, value)
            typer.echo(f"All services are frozen by an annotation of Lease {where}/{name}. `{_thaw(of)}` ends the freeze.")
            if not await client.list_objects("InferenceService", limit=1, label_selector=_selector(of)):
                await asyncio.sleep(UNSEEN)
                typer.echo(
                    "No service exists whose status could confirm the freeze. Each running operator has read the "
                    "annotation of its Lease by now."
                )
                return True
            return await _confirmed(lambda: _all_say(client, value, of), timeout)
        where, name = resolve_service(client, service, namespace)
        await _freeze(client, "InferenceService", where, name, value)
        typer.echo(f"{where}/{name} is frozen. `ome thaw {name} -n {where}` ends the freeze.")
        return await _confirmed(lambda: _unconfirmed(client, where, name, value), timeout)

    raise typer.Exit(0 if on_cluster(kubeconfig, context, work) else 1)


@app.command(epilog="Examples: ome thaw kimi-k2-instruct; ome thaw --all")
def thaw(
    service: OptionalService = "",
    every: Annotated[
        bool, typer.Option("--all", help="End `ome freeze --all`. Services that were frozen one by one stay frozen.")
    ] = False,
    lease: Operator = "",
    of: Class = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """End a freeze: the operator continues with the current specs of the services."""
    _either(service, every, namespace, of)

    async def work(client: "Client") -> None:
        if every:
            name = _lease_of(of)
            where = await _found(client, name, lease)
            was = await _thawed(client, "Lease", where, name)
            typer.echo("Thawed." if was else f"Lease {where}/{name} has no freeze: nothing was changed.")
            await _left(client, of)
            return
        where, name = resolve_service(client, service, namespace)
        was = await _thawed(client, "InferenceService", where, name)
        typer.echo(f"{where}/{name} {'is no longer frozen' if was else 'was not frozen individually: nothing was changed'}.")
        its = await _class_of(client, where, name)
        if message := await _frozen_with_all(client, _lease_of(its), lease):
            print_result(f"All services are still frozen{message}: `{_thaw(its)}` ends the freeze of all services.")

    on_cluster(kubeconfig, context, work)


def _either(service: str, every: bool, namespace: str, of: str) -> None:
    if bool(service) is every:
        raise UserError("Name a SERVICE, or use --all.")
    if of and not every:
        raise InvalidOption(
            "--operator-class can be used only with --all, because the label of a SERVICE states its class: leave out "
            "--operator-class."
        )
    if every and namespace:
        raise InvalidOption(
            "--all selects every service of the operator in all namespaces: leave out -n, or name a SERVICE."
        )


def _lease_of(of: str) -> str:
    """Return the name of the Lease of the operator with the operator class `of`, which is "" for the default operator."""
    return Settings(operator_class=of).own_name


def _selector(of: str) -> str:
    """Return the label selector of the services that the operator with the operator class `of` manages."""
    return f"{keys.OPERATOR_CLASS}={of}" if of else f"!{keys.OPERATOR_CLASS}"


def _thaw(of: str) -> str:
    return "ome thaw --all" + (f" --operator-class {of}" if of else "")


async def _class_of(client: "Client", namespace: str, name: str) -> str:
    body = await client.get("InferenceService", namespace, name)
    return str((body["metadata"].get("labels") or {}).get(keys.OPERATOR_CLASS) or "")


async def _value(client: "Client", why: str) -> str:
    """Return the value of the freeze annotation, which contains the current time, the user and the reason `why`."""
    when = quantity.rfc3339(datetime.now(UTC))
    reason = " ".join(why.split())
    return f"{when} by {await _who(client)}" + (f": {reason}" if reason else "")


async def _who(client: "Client") -> str:
    """Return the user name that the API server reports for this client, or else the user name on this machine."""
    from ome_operator.kube.errors import KubeError

    try:
        return await client.authenticated_user() or getpass.getuser()
    except KubeError:
        return getpass.getuser()


async def _found(client: "Client", name: str, namespace: str) -> str:
    """Return the namespace of the operator's Lease: `namespace` if it is given, otherwise the only namespace with a Lease of
    the name `name`. Raises UserError if no namespace or several namespaces have such a Lease.
    """
    if namespace:
        return namespace
    found = await client.list_objects("Lease", field_selector=f"metadata.name={name}")
    places = sorted(item["metadata"]["namespace"] for item in found)
    if len(places) == 1:
        return str(places[0])
    how = f"in {', '.join(places)}" if places else "in no namespace"
    raise UserError(
        f"found the operator's Lease {name} {how}: set --namespace-of-lease to the namespace in which the operator runs."
    )


async def _freeze(client: "Client", kind: str, namespace: str, name: str, value: str) -> None:
    """Set the freeze annotation of an object. The value does not depend on the object, so it is written even if another
    client changes the object at the same time.
    """

    async def attempt() -> None:
        if (body := await _read(client, kind, namespace, name)) is not None:
            patch = {"metadata": {"annotations": {keys.FREEZE: value}}}
            await client.patch_merge(kind, namespace, name, body["metadata"]["uid"], patch)
            return
        # An operator without leader election has no Lease, but it reads this annotation from a Lease that exists.
        metadata = {"name": name, "namespace": namespace, "annotations": {keys.FREEZE: value}}
        await client.create({"apiVersion": "coordination.k8s.io/v1", "kind": kind, "metadata": metadata})

    await retry_on_conflict(attempt)


async def _thawed(client: "Client", kind: str, namespace: str, name: str) -> str:
    """Remove the freeze annotation of an object, and return its value; "" if it had none. Raises UserError if somebody
    freezes the object again at the same time, because the user did not ask to end that new freeze.
    """
    from ome_operator.core.freeze.hold import freeze_text

    seen: list[str] = []

    async def attempt() -> str:
        if (body := await _read(client, kind, namespace, name)) is None:
            return ""
        seen.append(was := freeze_text(body["metadata"].get("annotations") or {}))
        if was and was != seen[0]:
            raise UserError(f"{kind} {namespace}/{name} was frozen again in the meantime, {was}: run the command again.")
        if was:
            await patch_read(client, kind, body, {"metadata": {"annotations": {keys.FREEZE: None}}})
        return seen[0]

    return await retry_on_conflict(attempt)


async def _read(client: "Client", kind: str, namespace: str, name: str) -> "Manifest | None":
    """Return the service or the Lease with this kind, namespace and name. If it does not exist, return None for a Lease, and
    raise QuestionUnanswered for a service.
    """
    from ome_operator.kube.errors import NotFound

    try:
        return await client.get(kind, namespace, name)
    except NotFound as error:
        if kind != "Lease":
            raise await no_such_service(client, name, namespace) from error
        return None


async def _confirmed(lacks: Callable[[], Awaitable[str]], seconds: float) -> bool:
    """Call `lacks` repeatedly until it returns "", for at most `seconds` seconds. Print the result, and return whether the
    operator has confirmed the freeze. `lacks` describes the confirmations that are missing; it returns "" if none is
    missing.
    """
    end = time.monotonic() + seconds
    while message := await lacks():
        if time.monotonic() >= end:
            found = "The annotation is stored, and an operator reads it when it starts. Check that an operator is running."
            typer.echo(f"Not confirmed within {seconds:.0f} s ({message}). {found}")
            return False
        await asyncio.sleep(LOOK)
    typer.echo("The operator has confirmed the freeze.")
    return True


async def _unconfirmed(client: "Client", namespace: str, name: str, value: str) -> str:
    """Return why the status of a service does not confirm the freeze with this annotation value; "" if the status
    confirms it.
    """
    body = await client.get("InferenceService", namespace, name)
    return "" if _is_confirmed(body, value) else "the status of the service does not show the freeze"


async def _all_say(client: "Client", value: str, of: str) -> str:
    listed = await client.list_objects("InferenceService", label_selector=_selector(of))
    bodies = [item for item in listed if "deletionTimestamp" not in item["metadata"]]
    silent = [item for item in bodies if not _is_confirmed(item, value)]
    return f"the statuses of {len(silent)} of {len(bodies)} services do not show the freeze" if silent else ""


def _is_confirmed(body: "Manifest", value: str) -> bool:
    """Return whether the condition Frozen in an object's status refers to the freeze with this annotation value. A freeze
    is identified by its time and user.
    """
    conditions = (body.get("status") or {}).get("conditions") or ()
    stamp = value.partition(": ")[0]
    return any(item.get("type") == "Frozen" and stamp in (item.get("message") or "") for item in conditions)


async def _left(client: "Client", of: str) -> None:
    """Print which services stay frozen because of their own annotation."""
    from ome_operator.core.freeze.hold import freeze_text

    bodies = await client.list_objects("InferenceService", label_selector=_selector(of))
    found = [item["metadata"] for item in bodies if freeze_text(item["metadata"].get("annotations") or {})]
    for item in found[:10]:
        typer.echo(
            f"{item['namespace']}/{item['name']} stays frozen, because it was frozen individually. To end that freeze: "
            f"`ome thaw {item['name']} -n {item['namespace']}`."
        )
    if len(found) > 10:
        typer.echo(f"{len(found) - 10} more services were frozen individually and stay frozen.")


async def _frozen_with_all(client: "Client", name: str, lease: str) -> str:
    """Return the description of the freeze in the annotation of the operator's Lease; "" if the Lease has no such
    annotation, or if the user may not read the Lease.
    """
    from ome_operator.core.freeze.hold import explanation, freeze_text
    from ome_operator.kube.errors import KubeError

    try:
        where = await _found(client, name, lease)
        value = freeze_text((await client.get("Lease", where, name))["metadata"].get("annotations") or {})
    except (KubeError, UserError):
        return ""
    return explanation(value) if value else ""
