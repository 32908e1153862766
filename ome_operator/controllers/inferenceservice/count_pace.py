"""Limit how often statuses are written in which only counts have changed."""

import re
from collections.abc import Mapping
from typing import Any

from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.observed.managed_fields import digest

_NUMBER = re.compile(r"\d+")


class CountPace:
    """A rate limit for status writes.

    Each service may write once per interval. If only numbers in messages differ, all services together may write only a
    limited number of statuses per second, because a new node changes the counts in the statuses of all services of its
    models.
    """

    def __init__(self, interval: float, a_second: float) -> None:
        self._interval, self._gap, self._last = interval, 1 / a_second, float("-inf")

    def seconds_until_write(self, memory: ServiceMemory, now: float, *, numbers: bool) -> float:
        """Return the seconds until this service may write its status; 0 or less means now. `numbers` is true if only numbers
        in messages differ (`only_numbers`).

        If only numbers differ, the service gets a time slot. It keeps the slot until it has written such a status; writes of
        other statuses do not use the slot. So there are never more slots than services. If the slot has long passed, because
        the service could not write, the service gets a new slot.
        """
        own = memory.status_at + self._interval - now
        if own > 0 or not numbers:
            return own
        if memory.status_turn is None or memory.status_turn < now - self._interval:
            self._last = memory.status_turn = max(now, self._last + self._gap)
        return memory.status_turn - now


def only_numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether the statuses `before` and `after` are equal, apart from the field `traffic` and from the numbers in the
    messages of conditions.
    """
    return _without_numbers(before) == _without_numbers(after)


def _without_numbers(status: Mapping[str, Any]) -> str:
    conditions = [{**item, "message": _NUMBER.sub("", item.get("message") or "")} for item in status.get("conditions") or ()]
    return digest({"status": {**status, "conditions": conditions, "traffic": None}})
