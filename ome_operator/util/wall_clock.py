"""The time of day. Processes read it here and pass it on, so that tests can set it."""

from collections.abc import Callable
from datetime import UTC, datetime

WallClock = Callable[[], datetime]
"""Returns the time of day with its time zone."""


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
