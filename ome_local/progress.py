"""Show the progress of a long step: on a terminal as a line with the elapsed time, elsewhere as plain lines.

While a screen shows the parts of a run (ome_local/screen.py), the screen shows the step next to the part to which it
belongs.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ome_local import board, screen
from ome_local.board import spell
from ome_local.watcher import run_watcher

_PLAIN_EVERY_S = 30.0
_PLAIN_AFTER_S = 3.0


def print_progress(line: str) -> None:
    """Print a line to stderr. Stdout contains only the result of a command."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def step(description: str, *, quiet_below: float = 1.0) -> Iterator[list[str]]:
    """Show the description, the elapsed time, and the words that the `with` block adds to the yielded list.

    Steps that take less than `quiet_below` seconds are not shown.
    """
    more: list[str] = []
    began = time.monotonic()
    with _on_screen(description) if screen.is_shown() else run_watcher(partial(_watch, description, began, quiet_below)):
        yield more
    took = time.monotonic() - began
    if took >= quiet_below and not screen.is_live():
        print_progress(f"{_clear()}{description}: {', '.join([spell(took), *more])}")


@contextmanager
def _on_screen(description: str) -> Iterator[None]:
    row = board.row()
    if row is None:
        yield
        return
    row.steps.append(description)
    try:
        yield
    finally:
        row.steps.remove(description)


def _clear() -> str:
    return "\r\x1b[K" if sys.stderr.isatty() and not screen.is_shown() else ""


def _watch(description: str, began: float, quiet_below: float, over: threading.Event) -> None:
    """Show the elapsed time until `over` is set: every second on a terminal, every half minute elsewhere. Runs in a
    thread.
    """
    terminal = sys.stderr.isatty()
    if over.wait(quiet_below if terminal else max(quiet_below, _PLAIN_AFTER_S)):
        return
    if not terminal:
        print_progress(f"{description}…")
    while not over.wait(1.0 if terminal else _PLAIN_EVERY_S):
        line = f"{description}… {spell(time.monotonic() - began)}"
        if terminal:
            print(f"{_clear()}{line}", end="", file=sys.stderr, flush=True)
        else:
            print_progress(line)
    if terminal:
        print(_clear(), end="", file=sys.stderr, flush=True)
