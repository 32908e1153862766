"""Show a service until it is ready: a live tree on a terminal, a line per change elsewhere."""

import sys
import time
from collections.abc import Callable

from ome_local.demo.view import DONE, View

_EVERY_S = 0.2


def until_ready(look: Callable[[], View], within_s: float, alive: Callable[[], bool]) -> View:
    """The last view: ready, or not within the time, or what was there when `alive` turned false."""
    shown = _on_terminal if sys.stdout.isatty() else _as_lines
    return shown(look, time.monotonic() + within_s, alive)


def _as_lines(look: Callable[[], View], until: float, alive: Callable[[], bool]) -> View:
    said: set[str] = set()
    while True:
        seen = look()
        for line in seen.lines:
            if str(line) not in said and line.how != "-":
                said.add(str(line))
                print(f"  {line}", flush=True)
        if seen.ready or time.monotonic() > until or not alive():
            return seen
        time.sleep(_EVERY_S)


def _on_terminal(look: Callable[[], View], until: float, alive: Callable[[], bool]) -> View:
    from rich.live import Live
    from rich.text import Text
    from rich.tree import Tree

    def draw(seen: View) -> Tree:
        tree = Tree(f"[bold]{seen.title}[/]{' [green]is ready[/]' if seen.ready else ''}")
        for line in seen.lines:
            colour = "green" if line.mark == DONE else "yellow"
            tree.add(Text.assemble((line.mark, colour), f" {line.what:8} {line.how}  ", (line.why, "dim")))
        return tree

    seen = look()
    with Live(draw(seen), refresh_per_second=10) as live:
        while not (seen.ready or time.monotonic() > until or not alive()):
            time.sleep(_EVERY_S)
            seen = look()
            live.update(draw(seen))
        live.update(draw(seen), refresh=True)
    return seen
