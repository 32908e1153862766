"""`ome explain`: shows why a service is not ready and what to do. `ome explain runtime`: shows which runtime the operator
would choose for a service, and why it excludes the other runtimes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ome_operator.cli.completing import Service
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, no_such_service, on_cluster, resolve_service
from ome_operator.cli.default import default_command_group
from ome_operator.cli.manifests import catalog_paths, left_out, read_files, read_manifests
from ome_operator.cli.output import Output, console, emit, print_result
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from ome_operator.cache.cluster_cache import ClusterCache
    from ome_operator.cache.resources import Resource
    from ome_operator.describe.diagnosis import ServiceTrouble
    from ome_operator.kube.client import Client


app = typer.Typer(
    cls=default_command_group("service"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Examples: ome explain kimi-k2-instruct -n kimi-k2-instruct; ome explain runtime -f service.yaml",
)


@app.callback()
def explain() -> None:
    """Show why a service is not ready and what to do, or which runtime the operator would choose for it and why it
    excludes the others.
    """


@app.command(
    short_help="Show why a service is not ready, and what to do.",
    epilog="Example: ome explain kimi-k2-instruct -n kimi-k2-instruct",
)
def service(
    name: Service,
    namespace: Namespace = "",
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show why a service is not ready: its conditions, pods and events in sentences, each with the next step.

    The word `service` may be left out. Exit code 0: the service is Ready. 1: it is not. 2: the answer is unknown.
    """

    async def work(client: "Client") -> "ServiceTrouble":
        from ome_operator.cli.live.diagnosis import read_trouble
        from ome_operator.kube.errors import NotFound

        where, service = resolve_service(client, name, namespace)
        try:
            return await read_trouble(client, where, service)
        except NotFound as error:
            raise await no_such_service(client, service, where) from error

    found = on_cluster(kubeconfig, context, work, error=QuestionUnanswered)
    if output is not None:
        emit(output, found)
    else:
        from datetime import UTC, datetime

        from ome_operator.describe.draw import draw_trouble as drawn
        from ome_operator.util.visible import make_all_visible

        screen = console()
        for line in drawn(make_all_visible(found), datetime.now(UTC)):
            screen.print(line, soft_wrap=not screen.is_terminal)
    raise typer.Exit(0 if found.ready else 1)


@app.command(short_help="Show the runtime that a service would get.", epilog="Example: ome explain runtime -f service.yaml")
def runtime(
    file: Annotated[Path, typer.Option("--filename", "-f", help="YAML file with an InferenceService, or with a Serving.")],
    files: Annotated[
        list[Path] | None, typer.Option("--files", help="YAML files or folders instead of a cluster; may be repeated.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of a service whose YAML names none.")
    ] = "default",
) -> None:
    """Show the runtime that a service would get, and each rule that excludes another runtime. Exit code 1: no runtime
    fits, or there is another problem. 2: an object of the file would be refused, or the answer is unknown.
    """
    from ome_operator.cache.resources import SERVICE, SERVING
    from ome_operator.cli.live.cluster_from_manifests import build_cluster

    found = read_files([file], namespace)
    beside, refused = found.accepted_objects(), [str(each) for each in found.refused]
    services = {(item["kind"], item["metadata"]["name"]) for item in beside if item["kind"] in (SERVICE, SERVING)}
    if not services and refused:
        raise QuestionUnanswered(left_out(refused, ""))
    if not services:
        raise QuestionUnanswered(
            f"{file} contains neither an InferenceService nor a Serving: name a file that contains such an object."
        )
    instead = "Use --files to read YAML files instead."
    known = (
        read_manifests(catalog_paths(files), namespace)
        if files
        else on_cluster(kubeconfig, context, _catalog, elsewhere=instead, stopped=instead, error=QuestionUnanswered)
    )
    cluster, has_problem = build_cluster([*known, *beside]), False
    for kept in (*cluster.services(), *cluster.resources[SERVING]):
        if (kept.ref.kind, kept.ref.name) in services:
            lines = _selection(file, kept, cluster)
            print_result("\n".join(lines))
            has_problem |= any(line.startswith(("nothing fits", "there is no", "problem")) for line in lines)
    if refused:
        raise QuestionUnanswered(left_out(refused, "The other objects were read"))
    raise typer.Exit(1 if has_problem else 0)


def _selection(file: Path, kept: "Resource", cluster: "ClusterCache") -> list[str]:
    """Return the explanation of the runtime that a service of the file would get. Raises QuestionUnanswered if the service
    is invalid.
    """
    from ome_operator.api import Invalid, Serving
    from ome_operator.core.sglang.convert import draft
    from ome_operator.describe.selection import explain

    is_draft = isinstance(kept.parsed, Serving)
    parsed = draft(kept.parsed, cluster.deps()) if is_draft else kept.parsed
    if isinstance(parsed, Invalid):
        raise QuestionUnanswered(f"{file}: {parsed.why}")
    return list(explain(parsed, cluster.deps(), draft=is_draft))


async def _catalog(client: "Client") -> Sequence[dict[str, Any]]:
    """Return every object on the cluster to which services may refer, and the nodes if the user may read them."""
    from ome_operator.cache.resources import CATALOG
    from ome_operator.kube.listing import list_all

    return await list_all(client, (*CATALOG, "Node"), optional=("Node",))
