"""Shows a board: one screen that stays current on a terminal; elsewhere a line for each part that is done, and what is left.

What is printed meanwhile stands above the screen.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ome_local.board import DONE, FAILED, RUNNING, WAITING, Board, Row, spell
from ome_local.watcher import watched

if TYPE_CHECKING:
    from rich.table import Table

EVERY_S = 30.0
"""Between two lines that say what is left, where nobody watches."""
_MARKS = {WAITING: ("·", "dim"), RUNNING: ("…", "yellow"), DONE: ("✓", "green"), FAILED: ("✗", "red")}
_SHOWN: list[str] = []
"""How the board that is shown is shown."""


def is_shown() -> bool:
    """Whether the parts of a run are shown, live or as lines."""
    return bool(_SHOWN)


def is_live() -> bool:
    """Whether a screen on a terminal shows them."""
    return "live" in _SHOWN


@contextmanager
def shown(board: Board) -> Iterator[None]:
    """Meanwhile."""
    live = sys.stdout.isatty()
    _SHOWN.append("live" if live else "lines")
    try:
        with _live(board) if live else _as_lines(board):
            yield
    finally:
        _SHOWN.pop()


@contextmanager
def _live(board: Board) -> Iterator[None]:
    from rich.live import Live

    with Live(get_renderable=lambda: draw(board), refresh_per_second=4, vertical_overflow="visible") as live:
        yield
        live.refresh()


def draw(board: Board) -> "Table":
    """A row for each part; its detail is cut, never wrapped, so that the screen keeps its height."""
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
    table.add_row("", Text(board.count(), "bold"), Text(board.total(), "bold"), "")
    return table


@contextmanager
def _as_lines(board: Board) -> Iterator[None]:
    board.ended = partial(_tell, board)
    with watched(partial(_watch, board)):
        yield


def _tell(board: Board, row: Row) -> None:
    words = f", {row.words}" if row.words else ""
    print(f"{board.total()}: ✓ {row.name} in {spell(row.seconds(row.ended))}{words}", file=sys.stderr, flush=True)


def _watch(board: Board, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        print(board.summary(), file=sys.stderr, flush=True)
