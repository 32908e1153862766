"""The state of a process, from its start to its end, as its probes report it."""

import asyncio
import logging

logger = logging.getLogger(__name__)

LEADING, STOPPING = "leading", "stopping"


class Life:
    """What the process is doing, whether it is ready, and why it ends.

    `expected` are the errors that end a process in normal operation, such as a lost Lease: their sentence is logged, and a
    traceback for all others.
    """

    def __init__(self, *expected: type[BaseException]) -> None:
        self._expected = expected
        self.state = "starting"
        self.ready = True
        self.dead = ""
        """Reason why the process ends unexpectedly; "" if it does not."""
        self.stop = asyncio.Event()
        """Set when the process is to stop."""

    def enter(self, state: str, *, ready: bool) -> None:
        """Note what the process does from now on."""
        self.state, self.ready = state, ready

    def die(self, what: str, error: BaseException | None, *, expected: bool = False) -> None:
        """Note that something ended that must not end. Only the first such end is the reason."""
        if self.dead:
            return
        because = f" ({error.__cause__})" if error is not None and error.__cause__ is not None else ""
        self.dead = f"{what}: {error or 'ended'}{because}"
        known = expected or isinstance(error, self._expected)
        logger.critical("stopping: %s", self.dead, exc_info=None if known else error)

    def ended(self, task: "asyncio.Task[None]") -> None:
        """Stop the process, because a task has ended that must not end before the process is to stop."""
        if self.state != STOPPING and not task.cancelled():
            self.die(task.get_name(), task.exception())
            self.stop.set()

    def health(self) -> tuple[bool, str]:
        """Return whether the process works, and the sentence of its health page."""
        return not self.dead, self.dead or "ok"

    def readiness(self) -> tuple[bool, str]:
        """Return whether the process is ready, and what it is doing."""
        return self.ready and not self.dead, self.state
