"""Prints the rows on a terminal, and as Markdown for a page."""

from collections.abc import Iterator, Mapping

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.report import OME
from bench.rows import Row, Section

MARKS = {True: "[green]yes[/]", False: "[bold red]no[/]", None: ""}
COLUMNS = ("floor", "operator", "ratio", "aim", "met", "OME *")
FOOTNOTE = f"* {OME}. Floor: bare server-side applies of the same objects. Compare ratios, not seconds."


def show(sections: list[Section], console: Console) -> None:
    """Print a table with a heading per section."""
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
    console.print(FOOTNOTE)


def ratios(section: Section, console: Console) -> None:
    """Print a section of `bench.against` as a table: the other commit, this checkout, and their ratio."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=section.title)
    for column in ("", "that", "this", "ratio", "aim", "met"):
        table.add_column(column, justify="right" if column in ("that", "this", "ratio") else "left", max_width=62)
    for row in section.rows:
        table.add_row(*map(escape, (row.what, row.floor, row.operator, row.ratio, row.aim)), MARKS[row.met])
    console.print(table)


def markdown(sections: list[Section], about: Mapping[str, object]) -> str:
    """Return Markdown text that states where and when the measurements ran, with a table for each section. Unused columns
    are left out.
    """
    tables = [line for section in sections for line in _section(section)]
    return "\n".join([_where(about), "", *tables, FOOTNOTE.replace("*", "\\*")])


def _where(about: Mapping[str, object]) -> str:
    commit, changed = str(about.get("commit") or "")[:7], about.get("changed_files")
    edited = f" with {changed} changed files" if changed else ""
    return (
        f"Measured {str(about.get('began') or 'at an unknown time')[:10]} at commit {commit or 'unknown'}{edited}: "
        f"{about.get('cpus')} cores, Python {about.get('python')}, load {_load(about)} before the run."
    )


def _load(about: Mapping[str, object]) -> str:
    load = about.get("load_before")
    return f"{load[0]:.1f}" if isinstance(load, list | tuple) and load else "unknown"


def _section(section: Section) -> Iterator[str]:
    cells = [(row.what.strip(), *_cells(row)) for row in section.rows]
    used = [0, *(number for number in range(1, len(COLUMNS) + 1) if any(line[number] for line in cells))]
    head = ("", *COLUMNS)
    yield from (f"**{_plain(section.title)}**", "")
    yield _line([head[number].replace("*", "\\*") for number in used])
    yield _line(["---"] * len(used))
    yield from (_line([_plain(line[number]) for number in used]) for line in cells)
    yield ""


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "**no**", None: ""}[row.met]
    return row.floor, row.operator, row.ratio, row.aim, met, row.ome


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(text: str) -> str:
    """Return text for a table cell. Vertical bars, which would end the cell, are escaped."""
    return text.replace("|", "\\|")
