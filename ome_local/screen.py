"""Show the progress of a board: on a terminal as a live screen, elsewhere as one line for each finished part and one line
for the remaining parts.

Text that is printed while the screen is shown appears above it.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ome_local.board import DONE, FAILED, RUNNING, WAITING, ProgressBoard, Row, spell
from ome_local.watcher import run_watcher

if TYPE_CHECKING:
    from rich.table import Table

EVERY_S = 30.0
"""Seconds between two lines about the remaining parts, if the output is not a terminal."""
_MARKS = {WAITING: ("·", "dim"), RUNNING: ("…", "yellow"), DONE: ("✓", "green"), FAILED: ("✗", "red")}
_SHOWN: list[str] = []
"""Contains the form in which a board is shown now (live or as lines); empty if no board is shown."""


def is_shown() -> bool:
    """Return whether a board is shown, as a live screen or as lines."""
    return bool(_SHOWN)


def is_live() -> bool:
    """Return whether a board is shown as a live screen on a terminal."""
    return "live" in _SHOWN


@contextmanager
def show_board(board: ProgressBoard) -> Iterator[None]:
    """Show the board inside the `with` block."""
    live = sys.stdout.isatty()
    _SHOWN.append("live" if live else "lines")
    try:
        with _live(board) if live else _as_lines(board):
            yield
    finally:
        _SHOWN.pop()


@contextmanager
def _live(board: ProgressBoard) -> Iterator[None]:
    from rich.live import Live

    with Live(get_renderable=lambda: board_table(board), refresh_per_second=4, vertical_overflow="visible") as live:
        yield
        live.refresh()


def board_table(board: ProgressBoard) -> "Table":
    """Return a table with a row for each part. Long details are cut instead of wrapped, so that the height of the screen
    does not change.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=True)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for line in board.lines():
        mark, colour = _MARKS[line.state]
        faint = "dim" if line.state == WAITING else ""
        table.add_row(
            Text(mark, colour), Text(line.name, faint), Text(line.time), Text(line.detail.partition("\n")[0], "dim")
        )
    table.add_row("", Text(board.count(), "bold"), Text(board.elapsed_text(), "bold"), "")
    return table


@contextmanager
def _as_lines(board: ProgressBoard) -> Iterator[None]:
    board.ended = partial(_tell, board)
    with run_watcher(partial(_watch, board)):
        yield


def _tell(board: ProgressBoard, row: Row) -> None:
    words = f", {row.words}" if row.words else ""
    print(f"{board.elapsed_text()}: ✓ {row.name} in {spell(row.seconds(row.ended))}{words}", file=sys.stderr, flush=True)


def _watch(board: ProgressBoard, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        print(board.summary(), file=sys.stderr, flush=True)
