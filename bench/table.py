"""The rows on a terminal."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.report import OME, Section

MARKS = {True: "[green]yes[/]", False: "[bold red]no[/]", None: ""}


def show(sections: list[Section], console: Console) -> None:
    """One table with a heading per section."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", max_width=52)
    for column in ("floor", "operator", "ratio"):
        table.add_column(column, justify="right" if column != "operator" else "left")
    for column in ("aim", "met", "OME *"):
        table.add_column(column, no_wrap=True)
    for section in sections:
        table.add_row(f"[bold]{escape(section.title)}[/]", end_section=False)
        for row in section.rows:
            cells = (row.what, row.floor, row.operator, row.ratio, row.aim)
            table.add_row(f"  {escape(cells[0])}", *map(escape, cells[1:]), MARKS[row.met], escape(row.ome))
    console.print(table)
    console.print(f"* {OME}. Floor: bare server-side applies of the same objects. Compare ratios, not seconds.")
