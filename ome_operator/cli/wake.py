"""`ome wake`: wake a service whose roles have no groups, by setting its RoleScales (docs/scaling.md, "Zero and back")."""

from typing import TYPE_CHECKING, Any

import typer

from ome_operator import names
from ome_operator.cli.completing import Service
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, get_service, on_cluster, patch_read, retry_on_conflict
from ome_operator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog="Example: ome wake kimi-k2-instruct -n team")
def wake(
    service: Service,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Wake a service that is scaled to zero: each role without groups gets its last number of groups again."""

    async def work(client: "Client") -> None:
        await _wake(client, await get_service(client, service, namespace))

    on_cluster(kubeconfig, context, work)


async def _wake(client: "Client", body: "Mapping[str, Any]") -> None:
    from ome_operator.core.rollout import zero

    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    status = body.get("status") or {}
    empty = [role for role in zero.ROLES if role in body["spec"] and _groups(status, role) == 0]
    if not empty:
        typer.echo(f"{namespace}/{name} has groups of each role already, so nothing was changed.")
        return
    for role in empty:
        number = zero.groups_when_woken(status.get(zero.FIELD) or {}, role)
        number = await _scale(client, namespace, names.component(name, role), role, number)
        typer.echo(f"{role}: {number} {'group' if number == 1 else 'groups'}")
    typer.echo(f"`ome status {name} -n {namespace}` shows when {namespace}/{name} serves.")


def _groups(status: "Mapping[str, Any]", role: str) -> int | None:
    """Return the desired number of groups of a role; None if the operator has not reported it."""
    found = ((status.get("components") or {}).get(role) or {}).get("replicas")
    return found if isinstance(found, int) else None


async def _scale(client: "Client", namespace: str, scale: str, role: str, number: int) -> int:
    """Write the number of groups into a RoleScale, and return this number. If somebody else writes a number above zero at
    the same time, that number is kept and returned. Raises UserError if the RoleScale does not exist.
    """
    from ome_operator.core.rollout import zero
    from ome_operator.kube.errors import NotFound

    seen: list[int] = []

    async def attempt() -> int:
        try:
            found = await client.get("RoleScale", namespace, scale)
        except NotFound as error:
            raise UserError(
                f"{role} has no RoleScale, so its number of groups comes from spec.{role}.minReplicas: raise it, or set "
                "maxReplicas."
            ) from error
        present = int((found.get("spec") or {}).get("replicas") or 0)
        seen.append(present)
        if present and present != seen[0]:
            return present
        made = zero.written_by_wake(int(found["metadata"].get("generation") or 0), present, number)
        await patch_read(client, "RoleScale", found, made)
        return number

    return await retry_on_conflict(attempt)
