"""Tests that slow downloads of one namespace do not block the downloads of other namespaces forever (S8 of the review)."""

import asyncio
from contextlib import suppress

import pytest

from ome_operator.agent.fair_queue import FairQueue


class Bench:
    """A queue of downloads, models that are downloaded for as long as the queue permits, and a clock that the test sets."""

    def __init__(self, places: int = 2) -> None:
        self.now = 0.0
        self.turns = FairQueue(places, 300.0, lambda: self.now)
        self.began: list[str] = []

    async def model(self, namespace: str, name: str, *, slow: bool = False) -> None:
        """Process one model until it is downloaded. A slow model is never finished, and yields when it is asked to."""
        while True:
            async with self.turns.turn(namespace) as over:
                self.began.append(name)
                while slow and not over():  # noqa: ASYNC110 - it looks at the clock, as a download does
                    await asyncio.sleep(0)
            if not slow:
                return


async def settle() -> None:
    """Run all tasks until none can continue."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_namespace_never_occupies_all_download_slots() -> None:
    bench = Bench()
    tasks = [asyncio.create_task(bench.model("evil", f"slow-{number}", slow=True)) for number in range(8)]
    await settle()
    assert bench.began == ["slow-0"]
    await asyncio.wait_for(bench.model("", "kimi"), 1)
    assert bench.began == ["slow-0", "kimi"]
    await end(tasks)


async def test_two_namespaces_with_all_slots_lose_one_after_their_turn() -> None:
    bench = Bench()
    tasks = [asyncio.create_task(bench.model(f"evil-{number % 2}", f"slow-{number}", slow=True)) for number in range(8)]
    await settle()
    mine = asyncio.create_task(bench.model("", "kimi"))
    await settle()
    assert not mine.done()
    bench.now = 300.0
    await asyncio.wait_for(mine, 1)
    await end(tasks)


async def test_namespaces_take_turns_regardless_of_number_of_requests() -> None:
    bench = Bench(1)
    first = asyncio.create_task(bench.model("a", "first", slow=True))
    await settle()
    rest = [asyncio.create_task(bench.model("a", f"a-{number}")) for number in range(3)]
    rest += [asyncio.create_task(bench.model(name, name)) for name in ("b", "c")]
    await settle()
    bench.now = 300.0
    await settle()
    assert bench.began[:4] == ["first", "b", "c", "a-0"]
    await end([first, *rest])


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "in the moment of its turn"])
async def test_cancelled_model_releases_its_slot(given: bool) -> None:
    bench = Bench(1)
    first = asyncio.create_task(bench.model("a", "first", slow=True))
    await settle()
    left = asyncio.create_task(bench.model("b", "left"))
    await settle()
    if given:
        first.cancel()
        await asyncio.sleep(0)
    left.cancel()
    first.cancel()
    await settle()
    await asyncio.wait_for(bench.model("c", "third"), 1)
    await end([first, left])


async def end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the tasks of all models."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
