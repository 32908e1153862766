"""How far a download is, and how fast it goes."""

import time
from collections import deque
from collections.abc import Callable

WINDOW = 30.0
"""Seconds over which the speed is taken."""


class Progress:
    """Counted by the download, read by whoever reports."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.revision = ""
        self.total = self.bytes = self.files = 0
        self.fetched = 0
        """Bytes that came over the network since the start of the process."""
        self._marks: deque[tuple[float, int]] = deque()

    def start(self, revision: str, total: int, have: int, files: int) -> None:
        """What is to be had and what is there."""
        self.revision, self.total, self.bytes, self.files = revision, total, have, files
        self._marks.clear()
        self._marks.append((self._clock(), self.fetched))

    def came(self, count: int) -> None:
        """Bytes from the network."""
        self.bytes += count
        self.fetched += count
        now = self._clock()
        if now - self._marks[-1][0] > 1.0:
            self._marks.append((now, self.fetched))
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW:
            self._marks.popleft()

    def found(self, count: int) -> None:
        """Bytes that were on this disk already."""
        self.bytes += count

    def lost(self, count: int) -> None:
        """Bytes that turned out wrong."""
        self.bytes = max(0, self.bytes - count)

    @property
    def speed(self) -> float:
        """Bytes per second of late."""
        if not self._marks:
            return 0.0
        at, count = self._marks[0]
        seconds = self._clock() - at
        return (self.fetched - count) / seconds if seconds > 0.5 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds to go; None while nobody can know."""
        return (self.total - self.bytes) / self.speed if self.speed > 0 else None
