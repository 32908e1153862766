"""`ome history`, `undo`, `retry`, `restart`, `pause` and `resume`: choose which revision of a service runs.

The commands edit only the service's spec or annotations; the operator does the work.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ome_operator import keys, quantity
from ome_operator.cli.completing import Service
from ome_operator.cli.connect import (
    Context,
    Kubeconfig,
    Namespace,
    edited_on_cluster,
    no_such_service,
    on_cluster,
    patch_read,
    resolve_service,
)
from ome_operator.cli.output import print_result
from ome_operator.errors import InvalidOption, UserError
from ome_operator.util import columns
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.api import InferenceService
    from ome_operator.core.observed.slices import Revision
    from ome_operator.core.rollout.target import TargetRevision
    from ome_operator.kube.client import Client, Manifest

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class ServiceRevisions(NamedTuple):
    """A service, its stored revisions (oldest first) and its target revision."""

    service: "InferenceService"
    known: "list[Revision]"
    stored_at: dict[str, str]
    """Maps the name of each revision to the time at which it was stored."""
    target: "TargetRevision"
    body: "Manifest"
    """The service as it was read."""

    @property
    def service_path(self) -> str:
        """The service as NAMESPACE/NAME, for messages."""
        return f"{self.service.namespace}/{self.service.name}"

    @property
    def words(self) -> str:
        """The service as arguments of a command, in the form NAME -n NAMESPACE."""
        return f"{self.service.name} -n {self.service.namespace}"


@app.command(epilog="Example: ome history kimi-k2-instruct")
def history(service: Service, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """List the stored revisions, the newest last. Each line shows the changes of a revision and whether it runs."""
    from ome_operator.describe.history import history_entries

    async def work(client: "Client") -> ServiceRevisions:
        return await _find(client, namespace, service)

    found = on_cluster(kubeconfig, context, work)
    now = datetime.now(UTC)
    rows = [("NUMBER", "REVISION", "AGE", "STATE", "CHANGED")]
    for item in history_entries(found.known, found.target, found.service.status.get("slices") or ()):
        age = _age(found.stored_at[item.revision], now)
        rows.append((str(item.number), item.revision, age, item.state or "-", make_visible(item.changed or "-")))
    for line in columns.lines(rows):
        print_result(line)
    if not found.known:
        print_result(f"{found.service_path} has no revision yet: `kubectl describe isvc {found.words}` shows why.")


To = Annotated[
    str,
    typer.Option(help="Name or number of the revision; by default the last revision that was complete.", show_default=False),
]
Off = Annotated[bool, typer.Option("--off", help="Remove the pin: the service follows its spec again.")]


@app.command(epilog="Examples: ome undo kimi-k2-instruct; ome undo kimi-k2-instruct --to 2; ome undo kimi-k2-instruct --off")
def undo(
    service: Service,
    to: To = "",
    off: Off = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Pin the service to a stored revision. The pods are created from the stored data, byte for byte."""
    from ome_operator.describe.history import undo_target

    if to and off:
        raise InvalidOption("--to pins the service and --off removes the pin: use only one of them.")

    async def attempt(client: "Client") -> tuple[ServiceRevisions, str]:
        found = await _find(client, namespace, service)
        if off and not _pinned(found):
            return found, ""
        revision = "" if off else _named(to, found.known) or undo_target(found.known, found.target)
        kept = [item.name for item in reversed(found.known)]
        if not off and revision not in kept:
            lacks = f"has no revision {to}" if to else "has no revision to go back to"
            listed = f"kept: {', '.join(kept) or 'none'}"
            raise UserError(f"{found.service_path} {lacks} ({listed}). `ome history {found.words}` lists them.")
        await _edit(client, found, {"revision": revision or None})
        return found, revision

    found, revision = edited_on_cluster(kubeconfig, context, attempt)
    if off and not _pinned(found):
        print_result(f"{found.service_path} was not pinned and already follows its spec: nothing was changed.")
        _say_paused(found)
        return
    if revision:
        print_result(
            f"{found.service_path} is now pinned to revision {revision}, which is rolled out: new edits are recorded but "
            "not rolled out."
        )
        print_result(f"`ome undo {found.words} --off` removes the pin.")
    else:
        print_result(f"{found.service_path} follows its spec again.")
    _say_paused(found)
    _remind(f"spec.rollout.revision ({revision or 'removed'})")


@app.command(epilog="Example: ome retry kimi-k2-instruct")
def retry(service: Service, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Start a rejected revision again, without changes."""

    async def attempt(client: "Client") -> ServiceRevisions:
        found = await _find(client, namespace, service)
        if not found.target.rejected:
            raise UserError(f"{found.service_path} has no rejected revision, so there is nothing to retry.")
        await _patch(client, found, {"metadata": {"annotations": {keys.RETRY: _now()}}})
        return found

    found = edited_on_cluster(kubeconfig, context, attempt)
    message = ", ".join(item["revision"] for item in found.target.rejected)
    print_result(f"{found.service_path} tries revision {message} again.")


@app.command(epilog="Example: ome restart kimi-k2-instruct")
def restart(service: Service, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Create a new revision with the same content. Like an edit, it replaces all pods of engine and decoder."""
    found = _set(service, namespace, kubeconfig, context, {"restartedAt": _now()})
    print_result(
        f"{found.service_path} gets a new revision, which replaces the pods of its {_components(found.service)}; `ome "
        "history "
        f"{found.words}` lists the revision."
    )
    if found.target.pin:
        print_result(
            f"The service is pinned to {found.target.pin}, so the new revision waits. To remove the pin: `ome undo "
            f"{found.words} --off`."
        )
    _say_paused(found)
    _remind("spec.rollout.restartedAt")


@app.command(epilog="Example: ome pause kimi-k2-instruct")
def pause(service: Service, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Stop every rollout that would replace running pods. Edits are recorded, and rolled out after `ome resume`."""
    found = _set(service, namespace, kubeconfig, context, {"paused": True})
    if _paused(found):
        print_result(f"{found.service_path} was paused already: nothing was changed.")
        return
    print_result(f"{found.service_path} is paused: `ome resume {found.words}` continues its rollouts.")
    _remind("spec.rollout.paused")


@app.command(epilog="Example: ome resume kimi-k2-instruct")
def resume(service: Service, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Continue the rollouts that a pause stopped."""
    found = _set(service, namespace, kubeconfig, context, {"paused": None})
    if not _paused(found):
        print_result(f"{found.service_path} was not paused: nothing was changed.")
        return
    print_result(f"{found.service_path} is no longer paused.")
    _remind("spec.rollout.paused (removed)")


def _named(to: str, known: "list[Revision]") -> str:
    """Return the name of the revision that the user gives by its name or by the number that `ome history` shows. If no
    stored revision has that name or number, return `to` unchanged.
    """
    numbered = {str(item.number): item.name for item in known}
    return to if to in numbered.values() else numbered.get(to, to)


def _set(service: str, namespace: str, kubeconfig: Any, context: Any, fields: dict[str, Any]) -> ServiceRevisions:
    """Write `fields` to `spec.rollout` of a service. Nothing is written if `fields` contains the current value of `paused`.
    Return the service as it was before the edit.
    """

    async def attempt(client: "Client") -> ServiceRevisions:
        found = await _find(client, namespace, service)
        if "paused" not in fields or _paused(found) is not bool(fields["paused"]):
            await _edit(client, found, fields)
        return found

    return edited_on_cluster(kubeconfig, context, attempt)


async def _find(client: "Client", namespace: str, name: str) -> ServiceRevisions:
    from ome_operator.api import InferenceService, Invalid
    from ome_operator.core.observed import from_api
    from ome_operator.core.observed.slices import stored_revisions
    from ome_operator.core.rollout import target
    from ome_operator.kube.errors import NotFound

    namespace, name = resolve_service(client, name, namespace)
    try:
        body = await client.get("InferenceService", namespace, name)
    except NotFound as error:
        raise UserError(str(await no_such_service(client, name, namespace))) from error
    service = InferenceService.parse(body)
    if isinstance(service, Invalid):
        raise UserError(f"{namespace}/{name} cannot be read: {service.why}")
    bodies = await client.list_objects("ControllerRevision", namespace, label_selector=f"{keys.SERVICE}={name}")
    known = stored_revisions((from_api.child("ControllerRevision", item) for item in bodies), service.uid)
    made = {item["metadata"]["name"]: item["metadata"].get("creationTimestamp") or "" for item in bodies}
    aim = target.find_target(service, {item.name: item.number for item in known})
    return ServiceRevisions(service, known, {item.name: made[item.child.name] for item in known}, aim, body)


async def _edit(client: "Client", found: ServiceRevisions, fields: dict[str, Any]) -> None:
    await _patch(client, found, {"spec": {"rollout": fields}})


async def _patch(client: "Client", found: ServiceRevisions, patch: dict[str, Any]) -> None:
    await patch_read(client, "InferenceService", found.body, patch)


def _components(service: "InferenceService") -> str:
    """Return the components whose pods a new revision replaces, for messages."""
    from ome_operator.api import migrate

    return "engine and decoder" if migrate(service.spec).decoder is not None else "engine"


def _say_paused(found: ServiceRevisions) -> None:
    if _paused(found):
        print_result(f"The service is paused, so nothing is rolled out until `ome resume {found.words}`.")


def _pinned(found: ServiceRevisions) -> bool:
    rollout = found.service.spec.rollout
    return rollout is not None and bool(rollout.revision)


def _paused(found: ServiceRevisions) -> bool:
    rollout = found.service.spec.rollout
    return rollout is not None and bool(rollout.paused)


def _remind(field: str) -> None:
    print_result(
        f"{field} was edited on the cluster. If the service is managed from Git, make the same edit there, because "
        "otherwise the edit is reverted."
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _age(since: str, now: datetime) -> str:
    """Return the time since `since` in the largest unit that yields at least 2, as kubectl does."""
    if (when := quantity.parse_instant(since)) is None:
        return "-"
    seconds = max(0, int((now - when).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
