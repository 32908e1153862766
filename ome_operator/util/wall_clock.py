"""The current date and time. Processes read them only in this module and pass them on, so that tests can set them."""

from collections.abc import Callable
from datetime import UTC, datetime

WallClock = Callable[[], datetime]
"""A function that returns the current date and time with a time zone."""


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
