"""Calculate the disk space that a download may use: the free space minus the reservations of other running downloads, and
at most the limit of the namespace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ome_operator.agent.download_plan import MARGIN, size_text
from ome_operator.agent.progress import Progress
from ome_operator.storage.listing import RequestRefused


class FreeSpace:
    """The reservations of disk space of all running downloads of one agent."""

    def __init__(self) -> None:
        self._claims: dict[Path, tuple[int, Progress]] = {}
        """Maps the directory of a download to the device number of its disk, and to its progress."""

    def available_bytes(self, directory: Path, disk: int, free: int) -> int:
        """Return the number of bytes that the download into `directory` may use on the disk with device number `disk` and
        `free` free bytes.

        The result is `free` minus the bytes that other downloads still need, and minus 1 GiB.
        """
        others = (
            progress for target, (used_disk, progress) in self._claims.items() if target != directory and used_disk == disk
        )
        return free - MARGIN - sum(max(0, progress.total - progress.bytes) for progress in others)

    @contextmanager
    def reserve(self, directory: Path, disk: int, progress: Progress) -> Iterator[None]:
        """Reserve disk space for the missing bytes of a download until the `with` block ends."""
        self._claims[directory] = disk, progress
        try:
            yield
        finally:
            self._claims.pop(directory, None)


def over_budget_message(missing: int, used: int, budget: int, namespace: str) -> str:
    """Return a message if a namespace would use more of this disk than its limit; "" if it stays within the limit.

    `missing`, `used` and `budget` (the limit) are bytes; a limit of 0 means no limit.
    """
    if not budget or not namespace or used + missing <= budget:
        return ""
    return (
        f"{size_text(missing)} are missing, and namespace {namespace} uses {size_text(used)} of the {size_text(budget)} "
        "that agent.namespaceGB permits on a node: delete models of this namespace, or ask an administrator for more"
    )


def require_space(size: int, available: int, description: str) -> None:
    """Raise RequestRefused if `size` is larger than `available`; both are bytes. `description` names the object in the
    message.
    """
    if size > available:
        raise RequestRefused(
            f"{description} contains {size_text(size)}, but only {size_text(max(0, available))} are available"
        )
