"""Tests that the garbage collector never examines all long-lived objects while the event loop waits."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator

import pytest

from ome_operator.machinery import garbage_collection


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Circle:
    """A reference cycle, which only the garbage collector finds."""

    def __init__(self) -> None:
        self.me = self


def walked() -> list[int]:
    """Return the generations that are collected while the operator starts."""
    found: list[int] = []

    def note(what: str, info: dict[str, int]) -> None:
        if what == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    try:
        garbage_collection.collect_rarely()
        garbage_collection.freeze_existing()
    finally:
        gc.callbacks.remove(note)
    return found


def test_listed_objects_are_never_collected_as_a_whole() -> None:
    assert max(walked()) < 2
    assert gc.get_freeze_count() > 0


def test_young_garbage_is_collected_before_freezing() -> None:
    gone = weakref.ref(Circle())
    garbage_collection.freeze_existing()
    assert gone() is None


def test_frozen_objects_are_freed_by_reference_counting() -> None:
    kept = type("Plain", (), {})()
    gone = weakref.ref(kept)
    garbage_collection.freeze_existing()
    del kept
    assert gone() is None


async def tended(turns: int, between: Callable[[int], None] = lambda turn: None, idle: bool = True) -> None:
    """Run the periodic garbage collection for this number of intervals."""
    turn = 0

    async def sleep(_: float) -> None:
        nonlocal turn
        turn += 1
        if turn > turns:
            raise asyncio.CancelledError
        between(turn)

    with contextlib.suppress(asyncio.CancelledError):
        await garbage_collection.collect_periodically(lambda: idle, sleep)


async def test_replaced_objects_do_not_trigger_a_large_collection() -> None:
    """Objects that replace others do not become many young objects that are examined at once. The collector does not count
    them, because there are no more objects than before. Previously, it then examined 400,000 of them at once.
    """
    garbage_collection.collect_rarely()
    kept = [[number] for number in range(50_000)]
    garbage_collection.freeze_existing()

    def replaced(_: int) -> None:
        for number in range(len(kept)):
            kept[number] = [number]

    replaced(0)
    assert len(gc.get_objects(generation=0)) > 40_000, "the collector has not examined them"
    await tended(1)
    assert len(gc.get_objects(generation=0)) < 1000


async def test_long_lived_objects_are_not_examined_again() -> None:
    kept = [[number] for number in range(20_000)]
    before = gc.get_freeze_count()
    await tended(garbage_collection.FREEZE_EVERY, idle=False)
    assert gc.get_freeze_count() >= before + len(kept)


@pytest.mark.parametrize(("more", "idle", "goes"), [(True, True, True), (True, False, False), (False, True, False)])
async def test_old_garbage_is_collected_when_memory_grew_and_the_loop_is_idle(more: bool, idle: bool, goes: bool) -> None:
    circle, kept = Circle(), list[list[str]]()
    gone = weakref.ref(circle)
    gc.collect()
    gc.freeze()
    del circle

    def grows(turn: int) -> None:
        if more and turn == garbage_collection.IDLE_INTERVALS + 1:
            kept.extend([str(number)] for number in range(sys.getallocatedblocks() // 4))

    await tended(2 * garbage_collection.IDLE_INTERVALS, grows, idle=idle)
    assert (gone() is None) is goes


def test_collection_time_is_measured() -> None:
    now = 0.0
    toll = garbage_collection.CollectionTime(lambda: now)
    gc.callbacks.append(toll)
    try:
        gc.collect()
        assert toll.seconds == 0.0
    finally:
        gc.callbacks.remove(toll)
    for seconds in (1.5, 2.5):
        toll("start", {})
        now += seconds
        toll("stop", {})
        now += 10.0
    assert toll.seconds == 4.0


AT_EXIT = """
import atexit, gc, sys
atexit.register(lambda: print("frozen" if gc.get_freeze_count() else "not frozen"))  # runs after what is registered later
if "main" in sys.argv:
    from ome_operator.__main__ import main
    sys.argv = ["ome", "--version"]
    main()
"""


@pytest.mark.parametrize(("of", "shown"), [("main", "frozen"), ("nothing", "not frozen")])
def test_command_exits_without_a_garbage_collection(of: str, shown: str) -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT, of], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == shown
