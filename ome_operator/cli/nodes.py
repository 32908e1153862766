"""`ome nodes`: shows the nodes with their GPUs, the groups that use them, and the weights on their disks."""

from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.connect import Context, Kubeconfig, on_cluster
from ome_operator.cli.output import Output, complain, emit
from ome_operator.errors import Unanswered

if TYPE_CHECKING:
    from ome_operator.cli.live.board import Board
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Examples: ome nodes; ome nodes h200-00 h200-01 -o json")
def nodes(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", show_default=False, help="Show only these nodes.")
    ] = None,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show each node with GPUs, services or weights: its state, its GPUs, the groups that use them, and its weights.

    The groups are those of all services that you may read. GPUs of pods that belong to no service are counted as free.
    Exit code 2: the answer is unknown, because a node does not exist or nodes or services may not be read.
    """
    from ome_operator.cli.live.board import Looker
    from ome_operator.cli.output import say
    from ome_operator.describe import cluster
    from ome_operator.describe.node_table import node_table
    from ome_operator.util.visible import everywhere

    async def work(client: "Client") -> "Board":
        return await Looker(client, "").look()

    board = on_cluster(kubeconfig, context, work, error=Unanswered, read_only=True)
    for kind, why in board.denied.items():
        complain(f"{kind} are not shown: {why}")
    rows = everywhere(cluster.node_rows(board.trees.values(), board.nodes, board.records))
    if unknown := sorted(set(names or ()) - {row.name for row in rows}):
        raise Unanswered(f"{', '.join(unknown)}: no such node with GPUs, services or weights. `ome nodes` lists them.")
    rows = [row for row in rows if not names or row.name in names]
    if output is not None:
        emit(output, {"nodes": rows, "totals": cluster.totals(rows)})
    else:
        say(node_table(rows).rstrip())
    raise typer.Exit(2 if "nodes" in board.denied else 0)
