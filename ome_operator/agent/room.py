"""Room on a node's disk: what is free, less what fetches under way will still take, less what a namespace may have."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ome_operator.agent.progress import Progress
from ome_operator.agent.steps import MARGIN, size_text
from ome_operator.storage.listing import Refused


class Room:
    """Shared by all fetches of one agent."""

    def __init__(self) -> None:
        self._claims: dict[Path, tuple[int, Progress]] = {}
        """Directory of a fetch -> its disk, and how far it is."""

    def free(self, directory: Path, disk: int, free: int) -> int:
        """Bytes of a disk with so many free that no other fetch will need; 1 GiB stays free."""
        others = (item for place, (where, item) in self._claims.items() if place != directory and where == disk)
        return free - MARGIN - sum(max(0, item.total - item.bytes) for item in others)

    @contextmanager
    def claim(self, directory: Path, disk: int, progress: Progress) -> Iterator[None]:
        """While a fetch is under way, what it still lacks is taken."""
        self._claims[directory] = disk, progress
        try:
            yield
        finally:
            self._claims.pop(directory, None)


def over_budget(left: int, used: int, budget: int, namespace: str) -> str:
    """A sentence when a namespace would have more of this disk than it may, else ""; a budget of 0 is none."""
    if not budget or not namespace or used + left <= budget:
        return ""
    return (
        f"{size_text(left)} are still to come, and namespace {namespace} has {size_text(used)} of the {size_text(budget)} "
        "that agent.namespaceGB gives it on a node: remove models of it there, or ask an administrator for more"
    )


def enough(size: int, room: int, what: str) -> None:
    """Refused when something is larger than the room for it."""
    if size > room:
        raise Refused(f"{what} holds {size_text(size)}, and there is room for {size_text(max(0, room))}")
