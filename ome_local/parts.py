"""Run the parts of a task in parallel, each part as soon as its dependencies are done. The first failure cancels the
other parts.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter

from ome_local import cancel
from ome_local.board import ProgressBoard


@dataclass(frozen=True)
class Part:
    """A part of a task, which can run in its own thread."""

    name: str
    do: Callable[[], str | None]
    """A function that does the work. It returns a text that is shown behind the part's name when the part is done, or
    None if there is no text."""
    needs: tuple[str, ...] = ()
    """Names of the parts that must be done before this part begins."""
    nice: int = 0
    """Niceness of the programs that this part starts. Parts on the critical path have the lowest value."""


def run(parts: Sequence[Part], board: ProgressBoard) -> None:
    """Run all parts. If a part fails, the other parts are cancelled, and the error is raised after they have ended."""
    by_name = {part.name: part for part in parts}
    order = TopologicalSorter({part.name: part.needs for part in parts})
    order.prepare()
    called_off = cancel.Cancel()
    with ThreadPoolExecutor(len(parts)) as pool, _ended_by_signals():
        running: dict[Future[None], str] = {}
        try:
            while order.is_active():
                running |= {pool.submit(_do, by_name[name], board, called_off): name for name in order.get_ready()}
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    done.result()
                    order.done(running.pop(done))
        except BaseException:
            called_off.set()  # the pool then waits for all threads
            raise


def _do(part: Part, board: ProgressBoard, called_off: cancel.Cancel) -> None:
    with cancel.carried(called_off, part.nice), board.run_part(part.name) as row:
        cancel.pause(0.0)
        row.words = part.do() or ""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end a run as Ctrl-C does, until the `with` block ends. The programs that the run has started
    are then stopped, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    before = [signal.signal(number, lambda got, _: sys.exit(128 + got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
