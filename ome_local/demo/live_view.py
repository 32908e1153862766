"""Show a service until it is ready. On a terminal, the state is shown next to the running part of the demo; otherwise each
change is printed as a line.
"""

import time
from collections.abc import Callable

from ome_local import board, cancel, screen
from ome_local.demo.view import View

_EVERY_S = 0.2


def until_ready(look: Callable[[], View], within_s: float, alive: Callable[[], bool]) -> View:
    """Poll the service with `look`, and return the last view. Polling ends when the service is ready, after `within_s`
    seconds, or when `alive` returns False.
    """
    until, said = time.monotonic() + within_s, set[str]()
    while True:
        seen = look()
        if row := board.row():
            row.words = seen.counts()
        if not screen.is_live():
            _say_changes(seen, said)
        if seen.ready or time.monotonic() > until or not alive():
            return seen
        cancel.pause(_EVERY_S)


def _say_changes(view: View, said: set[str]) -> None:
    for line in view.lines:
        if str(line) not in said and line.how != "-":
            said.add(str(line))
            print(f"  {view.title}: {line}", flush=True)
