"""What adopting did, would do, and left: one line each, and a dry run that sends no write."""

from collections.abc import Awaitable, Callable
from typing import Any

from ome_operator.kube.errors import Conflict, KubeError, NotFound


class Steps:
    """Tells every step through `say`, and carries out changes unless it is a dry run."""

    def __init__(self, say: Callable[[str], None], *, dry_run: bool) -> None:
        self._say, self._dry_run = say, dry_run
        self.left = 0
        """How many things were left for a person: the command has not done all of its work."""

    @property
    def dry_run(self) -> bool:
        """Whether nothing is written."""
        return self._dry_run

    def fine(self, what: str) -> None:
        """Nothing to do here."""
        self._say(f"ok     {what}")

    def note(self, what: str) -> None:
        """What a person should know."""
        self._say(f"note   {what}")

    def leave(self, what: str) -> None:
        """Something that only a person can decide or mend."""
        self.left += 1
        self._say(f"LEFT   {what}")

    async def change(self, what: str, write: Callable[[], Awaitable[Any]]) -> bool:
        """Do it, or say that it would be done; whether it is done."""
        if self._dry_run:
            self._say(f"would  {what}")
            return False
        try:
            await write()
        except NotFound:
            self._say(f"ok     {what}: gone meanwhile")
            return True
        except Conflict:
            self.leave(f"{what}: it changed at the same moment; run this command again")
            return False
        except KubeError as error:
            self.leave(f"{what}: {error}")
            return False
        self._say(f"done   {what}")
        return True
