"""When statuses are written in which only counts changed."""

import re
from collections.abc import Mapping
from typing import Any

from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.observed.managed_fields import digest

_NUMBER = re.compile(r"\d+")


class CountPace:
    """A service at most once in an interval; and so many a second of all, where only numbers in sentences differ: each node
    that comes is counted in the statuses of all services of its models.
    """

    def __init__(self, interval: float, a_second: float) -> None:
        self._interval, self._gap, self._last = interval, 1 / a_second, float("-inf")

    def wait(self, memory: ServiceMemory, now: float, *, numbers: bool) -> float:
        """Seconds until this service may write; 0 or less: now. `numbers`: nothing else differs.

        A service keeps its turn until it has used it, whatever it writes meanwhile: so there are never more turns than
        services. A turn that is long over, of a service that could not write, is void.
        """
        own = memory.status_at + self._interval - now
        if own > 0 or not numbers:
            return own
        if memory.status_turn is None or memory.status_turn < now - self._interval:
            self._last = memory.status_turn = max(now, self._last + self._gap)
        return memory.status_turn - now


def only_numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two statuses differ in nothing but numbers in the sentences of conditions."""
    return _without_numbers(before) == _without_numbers(after)


def _without_numbers(status: Mapping[str, Any]) -> str:
    said = [{**each, "message": _NUMBER.sub("", each.get("message") or "")} for each in status.get("conditions") or ()]
    return digest({"status": {**status, "conditions": said}})
