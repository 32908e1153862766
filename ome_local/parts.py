"""A run made of parts, each in a thread of its own as soon as what it needs is done. The first failure ends the others."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter

from ome_local import cancel
from ome_local.board import Board


@dataclass(frozen=True)
class Part:
    """What can be done by itself."""

    name: str
    do: Callable[[], str | None]
    """Its words, if there are any, are shown behind its name when it is done."""
    needs: tuple[str, ...] = ()
    """Names of the parts that are done before."""
    nice: int = 0
    """Niceness of its programs: who is waited for most gets the processors first."""


def run(parts: Sequence[Part], board: Board) -> None:
    """All of them; the first error, when nothing of the others runs any more."""
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
            called_off.set()  # and the pool waits for all threads
            raise


def _do(part: Part, board: Board, called_off: cancel.Cancel) -> None:
    with cancel.carried(called_off, part.nice), board.part(part.name) as row:
        cancel.pause(0.0)
        row.words = part.do() or ""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: with the programs that it has started."""
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
