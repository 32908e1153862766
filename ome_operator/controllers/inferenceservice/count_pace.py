"""When statuses are written in which only counts changed."""

from ome_operator.controllers.inferenceservice.memory import ServiceMemory


class CountPace:
    """A service at most once in an interval, and so many a second of all: each node that comes changes the counts of every
    service of its models.
    """

    def __init__(self, interval: float, a_second: float) -> None:
        self._interval, self._gap, self._last = interval, 1 / a_second, float("-inf")

    def wait(self, memory: ServiceMemory, now: float) -> float:
        """Seconds until the turn of this service, which it keeps until it has written; 0 or less: now."""
        own = memory.status_at + self._interval - now
        if own > 0:
            return own
        if memory.status_turn is None:
            self._last = memory.status_turn = max(now, self._last + self._gap)
        return memory.status_turn - now
