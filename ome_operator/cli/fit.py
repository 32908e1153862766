"""`ome fit`: shows whether a service would fit on the nodes of the cluster now, where, and which pods are in the way."""

from typing import TYPE_CHECKING

import typer

from ome_operator.cli.connect import Context, Kubeconfig, Namespace, namespace_or_default, on_cluster
from ome_operator.cli.manifests import read_files, report_skipped
from ome_operator.cli.output import Output, emit
from ome_operator.cli.render import Files
from ome_operator.errors import Unanswered

if TYPE_CHECKING:
    from ome_operator.describe.fit import FitAnswer
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: ome fit -f service.yaml")
def fit(
    files: Files,
    namespace: Namespace = "",
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show whether the services in these files would fit on the nodes of the cluster now, on which nodes, and which pods
    would have to end to make space. Nothing is changed.

    The numbers of groups are those of the RoleScales if the service exists, otherwise minReplicas; the answer names the
    numbers. Pods of the service that run now are treated as free capacity, because an edit replaces them. Avoided nodes
    are left out. You need the right to list nodes and the pods of all namespaces. Exit code 0: all services fit. 1: a
    service does not. 2: the answer is unknown.
    """
    from ome_operator.cli.output import say
    from ome_operator.describe.fit import text
    from ome_operator.util.visible import everywhere

    async def work(client: "Client") -> "list[FitAnswer]":
        from ome_operator.cli.live.fits import fits

        found = read_files(files, namespace_or_default(client, namespace))
        report_skipped(found)
        if found.refused:
            raise Unanswered("; ".join(map(str, found.refused)))
        return await fits(client, found.objects)

    found = on_cluster(kubeconfig, context, work, error=Unanswered, read_only=True)
    if not found:
        raise Unanswered(f"no InferenceService in {', '.join(map(str, files))}: nothing to place.")
    if output is not None:
        emit(output, found)
    else:
        say("\n".join(text(each) for each in everywhere(found)))
    raise typer.Exit(0 if all(each.fits for each in found) else 1)
