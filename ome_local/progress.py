"""What a long step shows while it runs: one line that counts the time, or plain lines where nobody watches.

While a screen shows the parts of a run (ome_local/screen.py), a step is shown there, behind the part that it belongs to.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ome_local import board, screen
from ome_local.board import spell
from ome_local.watcher import watched

_PLAIN_EVERY_S = 30.0
_PLAIN_AFTER_S = 3.0


def say(line: str) -> None:
    """One line for the person, on stderr: stdout belongs to what a command answers."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def step(what: str, *, quiet_below: float = 1.0) -> Iterator[list[str]]:
    """Show `what…` with the time that it takes, and the words that the block puts into the list.

    Steps shorter than `quiet_below` seconds are not mentioned.
    """
    more: list[str] = []
    began = time.monotonic()
    with _on_screen(what) if screen.is_shown() else watched(partial(_watch, what, began, quiet_below)):
        yield more
    took = time.monotonic() - began
    if took >= quiet_below and not screen.is_live():
        say(f"{_clear()}{what}: {', '.join([spell(took), *more])}")


@contextmanager
def _on_screen(what: str) -> Iterator[None]:
    row = board.row()
    if row is None:
        yield
        return
    row.steps.append(what)
    try:
        yield
    finally:
        row.steps.remove(what)


def _clear() -> str:
    return "\r\x1b[K" if sys.stderr.isatty() and not screen.is_shown() else ""


def _watch(what: str, began: float, quiet_below: float, over: threading.Event) -> None:
    """Runs in a thread until `over`: each second on a terminal, each half minute elsewhere."""
    terminal = sys.stderr.isatty()
    if over.wait(quiet_below if terminal else max(quiet_below, _PLAIN_AFTER_S)):
        return
    if not terminal:
        say(f"{what}…")
    while not over.wait(1.0 if terminal else _PLAIN_EVERY_S):
        line = f"{what}… {spell(time.monotonic() - began)}"
        if terminal:
            print(f"{_clear()}{line}", end="", file=sys.stderr, flush=True)
        else:
            say(line)
    if terminal:
        print(_clear(), end="", file=sys.stderr, flush=True)
