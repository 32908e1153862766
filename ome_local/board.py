"""The progress of the parts of a run: which parts are waiting, running or done, their durations, and their current steps.

The threads of the parts write to the board and the screen reads from it, without a lock; this is safe because each access
concerns only one attribute.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"


@dataclass
class Row:
    """A part of a run."""

    name: str
    needs: tuple[str, ...] = ()
    state: str = WAITING
    began: float = 0.0
    ended: float = 0.0
    steps: list[str] = field(default_factory=list)
    """Current steps of the part: first a step, then the step within that step, and so on."""
    words: str = ""
    """Text about the part, for example its result; "" if there is none."""

    def seconds(self, now: float) -> float:
        """Return the seconds for which the part has run."""
        return 0.0 if self.state == WAITING else (now if self.state == RUNNING else self.ended) - self.began


@dataclass(frozen=True)
class ScreenLine:
    """A row as the screen shows it."""

    state: str
    name: str
    time: str
    detail: str


def spell(seconds: float) -> str:
    """Return a duration as text, such as `3 min 10 s`, or `4.2 s` below ten seconds."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


_ROW: ContextVar[Row | None] = ContextVar("row", default=None)


def row() -> Row | None:
    """Return the row of the part that the calling thread runs; None if the thread runs no part."""
    return _ROW.get()


class ProgressBoard:
    """The parts of a run, in the order in which they are shown."""

    def __init__(self, needs: Mapping[str, Sequence[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = {name: Row(name, tuple(needed)) for name, needed in needs.items()}
        self.clock = clock
        self.began = clock()
        self.ended: Callable[[Row], None] = lambda _: None
        """A function that is called with each part when the part is done."""

    @contextmanager
    def run_part(self, name: str) -> Iterator[Row]:
        """Record that the calling thread runs the part inside the `with` block. After the block, the part is done or has
        failed.
        """
        mine = self.rows[name]
        mine.began, mine.state = self.clock(), RUNNING
        token = _ROW.set(mine)
        try:
            yield mine
        except BaseException:
            mine.ended, mine.state = self.clock(), FAILED
            raise
        finally:
            _ROW.reset(token)
        mine.ended, mine.state = self.clock(), DONE
        self.ended(mine)

    def lines(self) -> list[ScreenLine]:
        """Return a line for each part, with its duration and its current step, or with the parts for which it waits."""
        now = self.clock()
        return [ScreenLine(each.state, each.name, self._time(each, now), self._detail(each)) for each in self.rows.values()]

    def summary(self) -> str:
        """Return a line with the numbers of running and remaining parts."""
        now = self.clock()
        running = [self._running(each, now) for each in self.rows.values() if each.state == RUNNING]
        left = [each.name for each in self.rows.values() if each.state == WAITING]
        told = [", ".join(running), f"left: {', '.join(left)}" if left else ""]
        return f"{self.elapsed_text()}: {'; '.join(text for text in told if text)}"

    def elapsed_text(self) -> str:
        """Return the time since the start of the run."""
        return spell(self.clock() - self.began)

    def count(self) -> str:
        """Return the numbers of finished parts and of all parts as text."""
        return f"{sum(each.state == DONE for each in self.rows.values())} of {len(self.rows)} done"

    def _detail(self, each: Row) -> str:
        if each.state == RUNNING and not each.words:
            return each.steps[-1] if each.steps else ""
        if each.state != WAITING:
            return each.words
        missing = [name for name in each.needs if self.rows[name].state != DONE]
        return f"after {', '.join(missing)}" if missing else ""

    def _running(self, each: Row, now: float) -> str:
        detail = self._detail(each)
        return f"{each.name} ({self._time(each, now)}{f', {detail}' if detail else ''})"

    @staticmethod
    def _time(each: Row, now: float) -> str:
        return "" if each.state == WAITING else spell(each.seconds(now))
