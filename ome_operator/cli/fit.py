"""`ome fit`: shows whether a service would fit on the nodes of the cluster now, on which nodes, and which pods would have
to end.
"""

from typing import TYPE_CHECKING

import typer

from ome_operator.cli.connect import Context, Kubeconfig, Namespace, namespace_or_default, on_cluster
from ome_operator.cli.manifests import left_out, read_files, report_skipped
from ome_operator.cli.options import Files
from ome_operator.cli.output import Output, emit
from ome_operator.errors import QuestionUnanswered

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
    are left out. You need the right to list nodes and the pods of all namespaces. Objects that a cluster would refuse are
    named with the reason, and the other services are checked. Exit code 0: all services fit. 1: a service does not. 2: an
    object would be refused, or the answer is unknown.
    """
    from ome_operator.cli.output import print_result
    from ome_operator.describe.fit import text
    from ome_operator.util.visible import make_all_visible

    async def work(client: "Client") -> "tuple[list[FitAnswer], list[str]]":
        from ome_operator.cli.live.fits import services_that_fit

        found = read_files(files, namespace_or_default(client, namespace))
        report_skipped(found)
        answers, problems = await services_that_fit(client, found.accepted_objects())
        return answers, [*map(str, found.refused), *problems]

    found, problems = on_cluster(kubeconfig, context, work, error=QuestionUnanswered, read_only=True)
    if problems and not found:
        raise QuestionUnanswered(left_out(problems, ""))
    if not found:
        raise QuestionUnanswered(
            f"there is no InferenceService in {', '.join(map(str, files))}, so there is nothing to "
            "place: name a file that contains a service."
        )
    if output is not None:
        emit(output, found)
    else:
        print_result("\n".join(text(each) for each in make_all_visible(found)))
    if problems:
        raise QuestionUnanswered(left_out(problems, "The other services were checked"))
    raise typer.Exit(0 if all(each.fits for each in found) else 1)
