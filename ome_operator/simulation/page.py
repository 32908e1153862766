"""Write the results of the simulator into docs/demand.md, and the plots into docs/img.

`python -m ome_operator.simulation.page [TRACE...]` runs the traces, by default all, in one process for each core (about ten
minutes on two cores), and rewrites the parts between their markers.
"""

import os
import re
import sys
from collections.abc import Sequence
from multiprocessing import Pool

from ome_operator.core.demand.holds import HOLDS
from ome_operator.simulation.compare import Task, TraceOutcome, aims, compare_controllers, perform, table
from ome_operator.simulation.plot import svg_text
from ome_operator.simulation.run import SimulationResult
from ome_operator.simulation.traces import TRACES
from ome_operator.util.checkout import checkout

WITHOUT_AIM = ("fast-sinusoid", "fast-steps")
"""Traces whose results have no aim, because their load changes about as fast as a group starts."""


def trace_section(trace_outcome: TraceOutcome) -> str:
    """Return the part of the page about a trace."""
    name = trace_outcome.trace.name
    lines = [f"![{trace_outcome.trace.title}](img/scale-{name}.svg)", "", *table(trace_outcome), ""]
    if name not in WITHOUT_AIM:
        lines += ["| aim | found | |", "|---|---|---|"]
        lines += [f"| {aim} | {value} | {'met' if met else '**not met**'} |" for aim, value, met in aims(trace_outcome)]
        lines.append("")
    busy, ahead, keep, clear = trace_outcome.point
    lines.append(
        f"The oracle uses {busy:.0%} of the capacity of its groups, continues a rising load for {ahead:.0f} s, keeps groups "
        f"for {keep:.0f} s, and {f'works off a backlog in {clear:.0f} s' if clear else 'adds no groups for a backlog'}."
    )
    return "\n".join(lines)


def with_holds(text: str) -> str:
    """Return the page with the current table of the reasons for which a size is held."""
    rows = "".join(f"| `{reason}` | {meaning} |\n" for reason, meaning in HOLDS.items())
    begin, end = "<!-- holds -->\n", "<!-- end of holds -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{rows}{end}{rest.partition(end)[2]}"


def update_page(text: str, trace_outcome: TraceOutcome) -> str:
    """Return the page with the results of a trace between its markers."""
    begin, end = f"<!-- simulation {trace_outcome.trace.name} -->", f"<!-- end of simulation {trace_outcome.trace.name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    if not pattern.search(text):
        raise SystemExit(f"docs/demand.md has no markers for the trace {trace_outcome.trace.name}")
    return pattern.sub(lambda _match: f"{begin}\n{trace_section(trace_outcome)}\n{end}", text)


def main(names: Sequence[str]) -> None:
    """Run the traces and write their results."""
    root = checkout()
    page = root / "docs/demand.md"
    page.write_text(with_holds(page.read_text()))
    with Pool(os.cpu_count()) as pool:

        def run(work: Sequence[Task]) -> Sequence[SimulationResult]:
            return pool.map(perform, work, chunksize=1)

        for name in names or TRACES:
            found = compare_controllers(name, run)
            page.write_text(update_page(page.read_text(), found))
            (root / f"docs/img/scale-{name}.svg").write_text(svg_text(found))
            print(f"{found.trace.title}\n" + "\n".join([*table(found), *map(str, aims(found))]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
