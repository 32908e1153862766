"""The state of a process from its start to its end, as the process's probes report it."""

import asyncio
import logging

from ome_operator.util.wording import error_text

logger = logging.getLogger(__name__)

LEADING, STOPPING = "leading", "stopping"


class ProcessLife:
    """The current activity of a process, whether the process is ready, and the reason for its end.

    `expected` are the types of errors that end a process in normal operation, such as a lost Lease. For these errors only
    the message is logged; for all other errors, the traceback is logged too.
    """

    def __init__(self, *expected: type[BaseException]) -> None:
        self._expected = expected
        self.state = "starting"
        self.ready = True
        self.dead = ""
        """Reason why the process ends unexpectedly; "" if it does not end unexpectedly."""
        self.stop = asyncio.Event()
        """An event that is set when the process must stop."""

    def enter(self, state: str, *, ready: bool) -> None:
        """Record that the process enters the state `state`. `ready` is true if the process is ready in that state."""
        self.state, self.ready = state, ready

    def record_failure(self, part: str, error: BaseException | None, *, expected: bool = False) -> None:
        """Record and log that a part of the process (`part`) has ended, although it must run as long as the process. `error`
        is the error that ended this part; None if the part ended without an error. No traceback is logged if `expected` is
        true. Only the first call has an effect.
        """
        if self.dead:
            return
        because = f" ({error.__cause__})" if error is not None and error.__cause__ is not None else ""
        self.dead = f"{part}: {'ended' if error is None else error_text(error)}{because}"
        known = expected or isinstance(error, self._expected)
        logger.critical("stopping: %s", self.dead, exc_info=None if known else error)

    def stop_after_task(self, task: "asyncio.Task[None]") -> None:
        """Stop the process because `task` has ended, which must run until the process stops. Do nothing if the process is
        already stopping or the task was cancelled.
        """
        if self.state != STOPPING and not task.cancelled():
            self.record_failure(task.get_name(), task.exception())
            self.stop.set()

    def health(self) -> tuple[bool, str]:
        """Return whether the process works, and the text of its health page."""
        return not self.dead, self.dead or "ok"

    def readiness(self) -> tuple[bool, str]:
        """Return whether the process is ready, and a text with its current activity."""
        return self.ready and not self.dead, self.state
