"""`ome demo`."""

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
    down: Annotated[bool, typer.Option("--down", help="End the demo and remove its files.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the service may take to become ready.")] = 180.0,
    name: Annotated[str, typer.Option("--name", help="Of its cluster; demos of other names run beside it.")] = steps.CLUSTER,
    kind: Annotated[bool, typer.Option("--kind", help="Use kind's control plane; needs Docker.")] = False,
    extras: options.With = None,
) -> None:
    """Deploy Kimi K2 on 16 simulated nodes of 8 H200 GPUs, on a real control plane, and leave it up."""
    if down:
        steps.remove(name)
    else:
        steps.run(timeout, name=name, kind=kind, **options.extras(extras or ()))
