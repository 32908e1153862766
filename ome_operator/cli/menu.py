"""A list to choose from with the arrow keys, drawn on stderr: stdout stays for what was asked for."""

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
    """One line of a list."""

    value: str
    label: str
    why_not: str = ""
    """Why it cannot be chosen; "" when it can."""


Read = Callable[[], str]
"""What a person has typed, one key or several; waits for the first."""


def choose(title: str, items: Sequence[Item], read: Read | None = None, console: Console | None = None) -> str:
    """The value of the item that the person takes; one at least must be free to choose. EOFError: the terminal is gone."""
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
    """Where the mark stands after these keys, and whether the item was taken."""
    for key in _KEY.findall(text):
        if key in _TAKE:
            return at, True
        at = step(items, at, -1) if key in _UP else step(items, at, 1) if key in _DOWN else at
    return at, False


@contextmanager
def _keyboard(read: Read | None) -> Iterator[Read]:
    """Keys as they are pressed, without echo; `read` itself when there is one. What was typed ahead is kept."""
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
    """The next item that can be chosen, round the end."""
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
