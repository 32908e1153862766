"""`ome nodes`: shows the nodes with their GPUs, the groups that use them, and the weights on their disks.
`ome nodes forgive`: lets new groups be placed again on a node on which groups failed.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import quantity
from ome_operator.cli.connect import Context, Kubeconfig, on_cluster
from ome_operator.cli.default import default_command_group
from ome_operator.cli.output import Output, emit, print_error
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from ome_operator.cli.live.board import ClusterState
    from ome_operator.kube.client import Client

app = typer.Typer(
    cls=default_command_group("show", always=True),
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Examples: ome nodes; ome nodes h200-00 h200-01 -o json; ome nodes forgive h200-07",
)


@app.callback()
def nodes() -> None:
    """Show the nodes with GPUs, services or weights, and which of them are avoided, or forgive an avoided node."""


@app.command(
    short_help="Show the nodes, their GPUs, and the services that use them.",
    epilog="Examples: ome nodes; ome nodes h200-00 -o json",
)
def show(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", show_default=False, help="Show only these nodes.")
    ] = None,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show each node with GPUs, services or weights: its state, its GPUs, the groups that use them, the groups that move
    away from it or to it, and its weights.

    The word `show` may be left out. The groups are those of all services that you may read. GPUs of pods that belong to no
    service are counted as free; `ome fit` counts these pods. Exit code 2: the answer is unknown, because a node does not
    exist or nodes or services may not be read.
    """
    from ome_operator.cli.live.board import ClusterPoller, node_rows
    from ome_operator.cli.output import print_result
    from ome_operator.describe import cluster
    from ome_operator.describe.node_table import node_table
    from ome_operator.util.visible import make_all_visible

    async def work(client: "Client") -> "ClusterState":
        return await ClusterPoller(client, "").poll()

    board = on_cluster(kubeconfig, context, work, error=QuestionUnanswered, read_only=True)
    for kind, why in board.denied.items():
        print_error(f"{kind} are not shown: {why}")
    for sentence in make_all_visible(board.late_operator_sentences):
        print_error(sentence)
    rows = make_all_visible(node_rows(board))
    if unknown := sorted(set(names or ()) - {row.name for row in rows}):
        raise QuestionUnanswered(
            f"{', '.join(unknown)}: no such node with GPUs, services or weights. `ome nodes` lists them."
        )
    rows = [row for row in rows if not names or row.name in names]
    if output is not None:
        emit(output, {"nodes": rows, "totals": cluster.totals(rows)})
    else:
        print_result(node_table(rows).rstrip())
    raise typer.Exit(2 if "nodes" in board.denied else 0)


@app.command(short_help="Use avoided nodes again.", epilog="Example: ome nodes forgive h200-07")
def forgive(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False, help="Nodes to forgive.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let new groups be placed on these nodes again, although groups failed there or the nodes report faults.

    Earlier failures do not count any more. The command needs the right to patch NodeFaults. If no faults are recorded for
    one of the nodes, the command changes nothing and ends with exit code 2.
    """
    from datetime import UTC, datetime

    from ome_operator import keys
    from ome_operator.core.badnodes.record import KIND
    from ome_operator.kube.errors import NotFound

    when = quantity.rfc3339(datetime.now(UTC))

    async def work(client: "Client") -> None:
        bodies = []
        for name in names:
            try:
                bodies.append(await client.get(KIND, "", name))
            except NotFound as error:
                raise QuestionUnanswered(
                    f"nothing is remembered about node {name}: `ome nodes` lists the avoided nodes."
                ) from error
        for body in bodies:
            name, uid = body["metadata"]["name"], body["metadata"]["uid"]
            # The time does not depend on the object, so it may be written whatever has changed in the meantime.
            await client.patch_merge(KIND, "", name, uid, {"metadata": {"annotations": {keys.FORGIVEN: when}}})
            avoided = (body.get("status") or {}).get("avoided")
            before = f"It was avoided {avoided}" if avoided else "It was not avoided"
            typer.echo(f"{name} is forgiven: the operator uses it again within 10 s. {before}.")

    on_cluster(kubeconfig, context, work, error=QuestionUnanswered)
