"""The command `ome demo`."""

from typing import Annotated

import typer

from ome_local import lines, options
from ome_local.demo import demo as steps

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(
    short_help=lines.DEMO,
    epilog="Examples: ome demo; ome demo --name mine; ome demo --name mine --down",
)
def demo(
    down: Annotated[bool, typer.Option("--down", help="Stop the demo and remove its files.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds within which the service must become ready.")] = 180.0,
    name: Annotated[
        str, typer.Option("--name", help="Name of the demo's cluster. Demos with other names can run at the same time.")
    ] = steps.CLUSTER,
    kind: Annotated[bool, typer.Option("--kind", help="Use the control plane of kind, which needs Docker.")] = False,
    extras: options.With = None,
) -> None:
    """Deploy Kimi K2 on 16 simulated nodes with 8 H200 GPUs each, on a real control plane, and leave the cluster running."""
    if down:
        steps.remove(name)
    else:
        steps.run(timeout, name=name, kind=kind, **options.extras(extras or ()))
