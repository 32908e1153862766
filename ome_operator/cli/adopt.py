"""`ome adopt`: takes over a cluster in which OME has run. It takes over the CRDs first, and then each service."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ome_operator import keys
from ome_operator.cli.connect import Context, Kubeconfig, on_cluster
from ome_operator.errors import UserError

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]

NEXT = """
What remains, in this order:
  helm upgrade --install {name} charts/ome-crd -n {namespace} --create-namespace
  helm install ome-operator charts/ome-resources -n {namespace} --set image.repository=REGISTRY/ome-operator
                                 (first with operator.observe=true, with which `ome status -A` shows what it would do)
  ome adopt service --all        (for each service: waits until its new pods are ready, then removes those of OME)
  after that, uninstall OME's own release: docs/migrate.md"""


@dataclass(frozen=True)
class _Cluster:
    """The cluster that the user selected for `ome adopt`."""

    kubeconfig: Path | None
    context: str | None


@app.callback(invoke_without_command=True, epilog="Examples: ome adopt --dry-run; ome adopt service team/kimi-k2")
def adopt(
    ctx: typer.Context,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    dry_run: DryRun = False,
    release_name: Annotated[str, typer.Option(help="Name of the Helm release that will own the CRDs.")] = "ome-crd",
    release_namespace: Annotated[str, typer.Option(help="Namespace of that Helm release.")] = "ome",
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help=(
                "Also remove OME's finalizers from objects whose deletion hangs, replace CRDs even if objects lose "
                "fields that are unknown to the new schema, and remove webhooks without a server that may not be OME's."
            ),
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Continue even if OME's controller seems to be running.")] = False,
) -> None:
    """Take over OME's CRDs: remove OME's webhooks and finalizers, and install the schemas of this operator. Exit code 1:
    something is left to do.
    """
    where = _Cluster(kubeconfig, context)
    ctx.obj = where
    if ctx.invoked_subcommand is not None:
        return
    from ome_operator.adopt import cluster
    from ome_operator.adopt.crds import Release

    release = Release(release_name, release_namespace)

    async def work(client: Any, steps: Any) -> None:
        await cluster.adopt(client, steps, cluster.Permissions(release, yes=yes, force=force))

    left = _run(where, dry_run, work)
    if not left:
        typer.echo(NEXT.format(name=release.name, namespace=release.namespace))
    raise typer.Exit(1 if left else 0)


@app.command(
    short_help="Hand over services to this operator, in each namespace one after another.",
    epilog="Examples: ome adopt service --all; ome adopt service team/kimi-k2 --replace",
)
def service(
    ctx: typer.Context,
    services: Annotated[list[str] | None, typer.Argument(metavar="NAMESPACE/NAME...", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Hand over every service.")] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help=(
                "Remove the old workloads first. This needs no additional GPUs, but the service is down until its new "
                "pods are ready."
            ),
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds within which each service's new pods must become ready.")
    ] = 3600.0,
    dry_run: DryRun = False,
) -> None:
    """Take over services. OME's workloads serve until the new pods are ready, and are then removed. Service addresses
    stay the same.
    """
    from ome_operator.adopt import services as handing

    wanted = services or []
    if every == bool(wanted):
        raise UserError("Name services as NAMESPACE/NAME, or use --all.")
    for item in wanted:
        if item.count("/") != 1 or not all(item.split("/")):
            raise UserError(f"{item!r} does not have the form NAMESPACE/NAME.")

    async def work(client: Any, steps: Any) -> None:
        await handing.hand_over(client, steps, wanted, replace=replace, patience=timeout)

    raise typer.Exit(1 if _run(ctx.obj, dry_run, work) else 0)


def _run(where: _Cluster, dry_run: bool, work: Callable[[Any, Any], Awaitable[None]]) -> int:
    """Connect to the cluster `where`, run `work`, and return the number of items that are left to do. `work` receives the
    client and a recorder of what was done. If `dry_run` is true, nothing is changed.
    """
    from ome_operator.adopt.steps import StepReporter

    steps = StepReporter(typer.echo, dry_run=dry_run)
    on_cluster(
        where.kubeconfig,
        where.context,
        lambda client: work(client, steps),
        manager=keys.MANAGER,
        stopped="Completed steps stay in effect; run the command again.",
    )
    return steps.left
