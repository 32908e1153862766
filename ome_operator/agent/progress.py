"""The progress and speed of a download."""

import time
from collections import deque
from collections.abc import Callable

WINDOW = 30.0
"""Seconds over which the download speed is averaged."""


class Progress:
    """Counters that the download updates and the agent's report reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.revision = ""
        self.total = self.bytes = self.files = 0
        self.fetched = 0
        """Bytes that were received over the network since this process started."""
        self._marks: deque[tuple[float, int]] = deque()

    def start(self, revision: str, total: int, have: int, files: int) -> None:
        """Begin to count the download of a revision, and restart the measurement of the speed. `total` is the size of the
        revision in bytes, `have` the number of its bytes that are already on the disk, and `files` its number of files.
        """
        self.revision, self.total, self.bytes, self.files = revision, total, have, files
        self._marks.clear()
        self._marks.append((self._clock(), self.fetched))

    def add_received(self, count: int) -> None:
        """Count bytes that were received from the network."""
        self.bytes += count
        self.fetched += count
        now = self._clock()
        if now - self._marks[-1][0] > 1.0:
            self._marks.append((now, self.fetched))
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW:
            self._marks.popleft()

    def add_existing(self, count: int) -> None:
        """Count bytes that were already on this disk."""
        self.bytes += count

    def subtract_wrong(self, count: int) -> None:
        """Subtract bytes that were counted as received but turned out to be wrong."""
        self.bytes = max(0, self.bytes - count)

    @property
    def speed(self) -> float:
        """Speed of the last WINDOW seconds in bytes per second."""
        if not self._marks:
            return 0.0
        start, fetched_before = self._marks[0]
        seconds = self._clock() - start
        return (self.fetched - fetched_before) / seconds if seconds > 0.5 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds until the download is complete; None while the speed is not known."""
        return (self.total - self.bytes) / self.speed if self.speed > 0 else None
