"""The steps of an adoption. Each step results in one line: done, would be done, or left to the user. A dry run sends no
writes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from ome_operator.kube.errors import Conflict, KubeError, NotFound
from ome_operator.util.visible import make_visible


class StepReporter:
    """A reporter of the steps. It passes each line to `say`, and performs the changes unless it is a dry run."""

    def __init__(self, say: Callable[[str], None], *, dry_run: bool) -> None:
        self._say, self._dry_run = say, dry_run
        self.left = 0
        """Number of steps that the user still has to do. If it is not 0, the adoption is incomplete."""

    def _report(self, line: str) -> None:
        """Report a line. Field names, messages and URLs in the line may come from other users, so control characters are
        made visible.
        """
        self._say(make_visible(line))

    @property
    def dry_run(self) -> bool:
        """Whether changes are only reported and not written."""
        return self._dry_run

    def report_unchanged(self, description: str) -> None:
        """Report a part of the cluster that already has the desired state."""
        self._report(f"ok     {description}")

    def report_note(self, description: str) -> None:
        """Report information for the user."""
        self._report(f"note   {description}")

    def report_open_problem(self, description: str) -> None:
        """Report a problem that only the user can decide or repair."""
        self.left += 1
        self._report(f"LEFT   {description}")

    async def change(self, description: str, write: Callable[[], Awaitable[Any]]) -> bool:
        """Perform a write, or report in a dry run that it would be performed. `description` is the write in words. Return
        whether the change is done.
        """
        if self._dry_run:
            self._report(f"would  {description}")
            return False
        try:
            await write()
        except NotFound:
            self._report(f"ok     {description}: already deleted")
            return True
        except Conflict:
            self.report_open_problem(f"{description}: another client changed it at the same time; run this command again")
            return False
        except KubeError as error:
            self.report_open_problem(f"{description}: {error}")
            return False
        self._report(f"done   {description}")
        return True
