"""`ome status`: shows services as trees, down to the rank that is not ready and the reason. `ome status KIND NAME` shows
the rollout waves of an edited runtime, model or accelerator class.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ome_operator.cli.completing import OptionalService
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, no_such_service, on_cluster, resolve_service
from ome_operator.cli.output import Format, Output, console, emit
from ome_operator.cli.watching import watch
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ome_operator.describe.tree import Tree
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)
INTERVAL = 2.0
"""Seconds between two polls of the cluster by `ome status --watch`."""


SHARED = ("runtime", "model", "acceleratorclass")
"""Kinds for which `ome status KIND NAME` shows the rollout waves."""


Shared = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        show_default=False,
        help=f"After one of the words {', '.join(SHARED)}: name of an object. The command "
        "shows the rollout waves of its last edit.",
    ),
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Show the services of all namespaces.")]
Ranks = Annotated[bool, typer.Option("--ranks", help="Show every rank with its pod and node.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep showing the current state until Ctrl+C.")]


@app.command(
    epilog="Examples: ome status -A; ome status kimi-k2-instruct -n kimi-k2-instruct --ranks -w; ome status runtime rt"
)
def status(
    service: OptionalService = "",
    shared: Shared = "",
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    ranks: Ranks = False,
    watch: Watch = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show services as trees of revisions, roles, groups and ranks, with the reason for everything that is not ready.

    Exit code 0: all services are Ready. 1: at least one is not. 2: the answer is unknown. `ome status runtime NAME` shows
    how far the last edit of the runtime is rolled out (docs/rollouts.md); exit code 0: every service has the edit.
    """
    if shared:
        if service not in SHARED or everywhere or ranks or watch:
            raise QuestionUnanswered(
                f"write `ome status SERVICE`, or `ome status KIND NAME` with a KIND of {', '.join(SHARED)} and "
                "without -A, -w and --ranks."
            )
        raise typer.Exit(_waves(service, shared, namespace, output, kubeconfig, context))
    if service and everywhere:
        raise QuestionUnanswered("SERVICE selects a single service and -A all services: leave out one of them.")

    async def work(client: "Client") -> list["Tree"]:
        where, name = resolve_service(client, service, namespace)

        async def look() -> list["Tree"]:
            return await _look(client, name, "" if everywhere else where)

        return await _watch(look, output, ranks) if watch else await look()

    found = on_cluster(kubeconfig, context, work, error=QuestionUnanswered)
    _print(found, output, ranks)
    raise typer.Exit(0 if all(tree.ready for tree in found) else 1)


def _waves(kind: str, name: str, namespace: str, output: Format | None, kubeconfig: Kubeconfig, context: Context) -> int:
    """Print how far the last edit of a shared object is rolled out, and return the exit code. `output` is the format for
    programs; None for text.
    """
    from ome_operator.cli.connect import namespace_or_default
    from ome_operator.cli.live.shared import find_shared_object
    from ome_operator.cli.output import print_result
    from ome_operator.describe.waves import rollout_complete, wave_lines

    async def work(client: "Client") -> dict[str, Any]:
        body = await find_shared_object(client, kind, namespace_or_default(client, namespace), name)
        if body is None:
            raise QuestionUnanswered(
                f"there is no {kind} {name}, neither cluster-scoped nor in namespace "
                f"{namespace_or_default(client, namespace)}."
            )
        return body

    body = on_cluster(kubeconfig, context, work, error=QuestionUnanswered)
    if output is not None:
        emit(output, (body.get("status") or {}).get("rollout") or {})
    else:
        print_result("\n".join(wave_lines(body)))
    return 0 if rollout_complete(body) else 1


async def _look(client: "Client", service: str, namespace: str) -> list["Tree"]:
    from ome_operator.cli.live.trees import trees
    from ome_operator.kube.errors import NotFound

    try:
        found = await trees(client, namespace, service)
    except NotFound as error:
        if not service:
            raise
        raise await no_such_service(client, service, namespace) from error
    if not found:
        where = f"namespace {namespace}: use -A for all namespaces" if namespace else "this cluster"
        raise QuestionUnanswered(f"there is no InferenceService in {where}.")
    return found


def _print(found: list["Tree"], output: Format | None, ranks: bool) -> None:
    if output is not None:
        emit(output, found)
    else:
        screen = console()
        screen.print(_drawn(found, ranks), soft_wrap=not screen.is_terminal)


def _drawn(found: list["Tree"], ranks: bool) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from ome_operator.describe.draw import service
    from ome_operator.util.visible import make_all_visible

    late = dict.fromkeys(tree.late for tree in found if tree.late)
    return Group(
        *(Text(line, style="yellow") for line in late), *(service(tree, every=ranks) for tree in make_all_visible(found))
    )


async def _watch(look: Callable[[], Awaitable[list["Tree"]]], output: Format | None, ranks: bool) -> list["Tree"]:
    """Show the trees until Ctrl+C. `look` reads the current trees. `output` is the format for programs; None for text. If
    `ranks` is true, every rank is shown.
    """
    return await watch(
        look, lambda found: _drawn(found, ranks), lambda found: _print(found, output, ranks), INTERVAL, live=output is None
    )
