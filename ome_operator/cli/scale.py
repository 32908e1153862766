"""`ome scale`: show why a service has its size, and simulate how it follows a load."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.output import say
from ome_operator.errors import UserError

if TYPE_CHECKING:
    from ome_operator.simulation.compare import Task
    from ome_operator.simulation.run import SimulationResult

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog="Examples: ome scale --simulate steps; ome scale --simulate load.csv --oracle --plot load.svg")
def scale(
    simulate: Annotated[
        str,
        typer.Option(
            metavar="TRACE",
            help="Simulate a load: sinusoid, steps, constant, sizes, vanishing, or a CSV file (docs/scaling.md).",
            show_default=False,
        ),
    ] = "",
    oracle: Annotated[bool, typer.Option("--oracle", help="Also search the best of a grid of controllers.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the groups over time into this SVG file; needs --oracle.")] = None,
) -> None:
    """Simulate how the size of a service follows a load, with measured service times and the decision of the operator."""
    from ome_operator.simulation.compare import aims, outcome, perform, table, tasks
    from ome_operator.simulation.plot import svg
    from ome_operator.simulation.traces import named

    if not simulate:
        raise UserError("--simulate is missing: name a trace, such as `ome scale --simulate steps`.")
    if plot is not None and not oracle:
        raise UserError("--plot draws the oracle, too: add --oracle.")
    trace = named(simulate)
    say(trace.title)
    if not oracle:
        for task in tasks(simulate):
            if not task[2]:
                _say(task[1], perform(task))
        return

    def run(work: "Sequence[Task]") -> "Sequence[SimulationResult]":
        return [perform(task) for task in work]

    found = outcome(simulate, run)
    for line in table(found):
        say(line)
    for aim, value, met in aims(found):
        say(f"{aim}: {value}, {'met' if met else 'not met'}")
    if plot is not None:
        plot.write_text(svg(found), encoding="utf-8")


def _say(name: str, result: "SimulationResult") -> None:
    say(
        f"{name}: {result.good:.1%} of {result.requests:,} requests within the targets, {result.gpu_hours:,.0f} GPU-hours, "
        f"{len(result.changes) - 1} changes"
    )
    if name == "ours":
        for at, prefill, decode in result.changes:
            say(f"  {at / 60:6.1f} min: {prefill} prefill, {decode} decode")
