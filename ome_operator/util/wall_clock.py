"""The time of day. Processes read it only in this module and pass it on, so that tests can set it."""

from collections.abc import Callable
from datetime import UTC, datetime

WallClock = Callable[[], datetime]
"""A function that returns the time of day with its time zone."""


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
