"""Tests that an audit removes objects that a list does not contain, and only those that were known before the list began."""

from collections.abc import Awaitable, Callable

from ome_operator.machinery.resync import Resync
from ome_operator.machinery.workqueue import WorkQueue


def audit(
    known: set[str], listed: Callable[[str], Awaitable[set[str]]]
) -> tuple[Resync[str], list[tuple[str, str]], WorkQueue[str]]:
    gone: list[tuple[str, str]] = []
    queue: WorkQueue[str] = WorkQueue(workers=1, first=1, last=8, jitter=lambda: 0.5, clock=lambda: 0.0)
    made = Resync(
        ["pods"],
        known=lambda _: set(known),
        listed=listed,
        gone=lambda kind, uid: gone.append((kind, uid)),
        queue=queue,
        interval=30,
        debounce=1,
    )
    return made, gone, queue


async def test_audit_removes_only_objects_known_before_the_list() -> None:
    known = {"alive", "ghost"}

    async def listed(_: str) -> set[str]:
        known.add("born meanwhile")
        return {"alive"}

    made, gone, _ = audit(known, listed)
    await made.check("pods")
    assert gone == [("pods", "ghost")]


async def test_a_failed_list_removes_nothing() -> None:
    async def listed(_: str) -> set[str]:
        raise OSError("no server")

    made, gone, queue = audit({"a"}, listed)
    await made.check("pods")
    assert gone == []
    assert queue.retry("pods") == 2.0, "tried again after a delay"


async def test_audit_without_known_objects_makes_no_request() -> None:
    async def listed(_: str) -> set[str]:
        raise AssertionError("a request for nothing")

    made, gone, _ = audit(set(), listed)
    await made.check("pods")
    assert gone == []
