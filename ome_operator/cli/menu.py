"""A list on the terminal from which the user chooses with the arrow keys. It is drawn on stderr, because stdout is
reserved for the output of the command.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

_UP, _DOWN, _TAKE = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j"), ("\r", "\n")
_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)


@dataclass(frozen=True)
class Item:
    """One entry of the list."""

    value: str
    label: str
    why_not: str = ""
    """The reason why this entry cannot be chosen; "" if the entry can be chosen."""


Read = Callable[[], str]
"""A function that waits until the user types, and returns the keys that the user has typed."""


def choose(title: str, items: Sequence[Item], read: Read | None = None, console: Console | None = None) -> str:
    """Return the value of the item that the user chooses. At least one item must have an empty `why_not`. Raises EOFError if
    the terminal is closed. `read` returns the keys that the user presses; None for the keys of the terminal. `console` is
    the console to draw on; None for stderr.
    """
    screen = console or Console(stderr=True)
    at = step(items, -1, 1)
    with (
        _keyboard(read) as typed,
        Live(_drawn(title, items, at), console=screen, auto_refresh=False, transient=True) as live,
    ):
        live.refresh()
        taken = False
        while not taken:
            text = typed()
            if not text:
                raise EOFError
            at, taken = _after(items, at, text)
            live.update(_drawn(title, items, at), refresh=True)
    screen.print(Text.assemble((f"{title}: ", "bold"), items[at].label))
    return items[at].value


def _after(items: Sequence[Item], at: int, text: str) -> tuple[int, bool]:
    """Return the position that is marked after the keys in `text` were pressed, and whether the user pressed Enter. `at` is
    the position that was marked before.
    """
    for key in _KEY.findall(text):
        if key in _TAKE:
            return at, True
        at = step(items, at, -1) if key in _UP else step(items, at, 1) if key in _DOWN else at
    return at, False


@contextmanager
def _keyboard(read: Read | None) -> Iterator[Read]:
    """Yield a function that returns the keys that the user presses, without showing them on the terminal. If `read` is
    given, yield `read` instead. Keys that the user typed before the list appeared are kept.
    """
    if read is not None:
        yield read
    elif sys.platform == "win32":
        yield typer.getchar
    else:
        import termios
        import tty

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal, termios.TCSADRAIN)
        try:
            yield lambda: os.read(terminal, 64).decode(errors="replace")
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def step(items: Sequence[Item], at: int, by: int) -> int:
    """Return the position of the next item after `at` that can be chosen. `by` is 1 to search downwards, or -1 to search
    upwards. The search continues at the other end of the list.
    """
    for _ in items:
        at = (at + by) % len(items)
        if not items[at].why_not:
            break
    return at


def _drawn(title: str, items: Sequence[Item], at: int) -> Text:
    out = Text.assemble((f"{title}  ", "bold"), ("(arrow keys, Enter)\n", "dim"))
    for number, item in enumerate(items):
        if item.why_not:
            out.append(f"    {item.label}: {item.why_not}\n", "dim")
        else:
            out.append(f"  {'❯' if number == at else ' '} {item.label}\n", "bold cyan" if number == at else "")
    return out
