"""The time of day: processes read it here and hand it on, so that a test sets it."""

from collections.abc import Callable
from datetime import UTC, datetime

WallClock = Callable[[], datetime]
"""The time of day, with its zone."""


def now() -> datetime:
    """The wall clock of the process, in UTC."""
    return datetime.now(UTC)
