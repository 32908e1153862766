"""Tests of the dispatcher, with a simulated clock."""

import asyncio

import pytest

from ome_operator.machinery.schedule import Schedule, SharedLimits
from ome_operator.machinery.workqueue import WorkQueue


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def queue(workers: int = 2) -> tuple[WorkQueue[str], Clock]:
    clock = Clock()
    return WorkQueue(workers=workers, first=1.0, last=8.0, jitter=lambda: 0.5, clock=clock), clock


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_key_runs_once_at_a_time_and_concurrency_is_limited() -> None:
    q, _ = queue()
    running, most, gate = set[str](), 0, asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal most
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        await gate.wait()
        running.discard(key)

    task = asyncio.create_task(q.run(handle))
    for key in "abc":
        q.add(key)
    await turn()
    q.add("a")
    await turn()
    assert (running, q.busy_count) == ({"a", "b"}, 2)
    gate.set()
    await turn()
    assert (running, most, q.due_count) == (set(), 2, 0)
    task.cancel()


async def test_other_tasks_run_between_two_keys() -> None:
    """Other tasks of the event loop can run between two keys, and need not wait until all keys that are due have run."""
    q, _ = queue(workers=10)
    done: list[int] = []
    turns = 0

    async def handle(_: str) -> None:
        done.append(turns)

    for number in range(10):
        q.add(str(number))
    task = asyncio.create_task(q.run(handle))
    while len(done) < 10:
        turns += 1
        await asyncio.sleep(0)
    assert len(set(done)) == 10
    task.cancel()


async def test_shared_runs_pause_while_other_keys_have_work() -> None:
    clock, done, gate = Clock(), list[str](), asyncio.Event()
    q: WorkQueue[str] = WorkQueue(
        workers=9, first=1.0, last=8.0, jitter=lambda: 0.5, shared=SharedLimits(share=0.2, runs=4), clock=clock
    )

    async def handle(key: str) -> None:
        if key == "other":
            await gate.wait()
        clock.now += 0.006  # the time for which it blocks the loop
        done.append(key)

    task = asyncio.create_task(q.run(handle))
    q.add("other")
    await turn()
    for number in range(5):
        q.add_shared(f"a{number}")
    await turn()
    assert (done, q.due_count) == (["a0"], 4)
    clock.now += 0.024  # a pause of four times that
    q.add_shared("a4")
    await turn()
    assert (done, q.due_count) == (["a0", "a1"], 3)
    gate.set()
    await turn()
    clock.now += 60.0
    q.add_shared("a4")
    await turn()
    assert sorted(done) == ["a0", "a1", "a2", "a3", "a4", "other"], "no other key has work"
    task.cancel()


async def test_failing_key_is_retried_with_backoff_and_stops_no_other() -> None:
    q, clock = queue()
    done: list[str] = []

    async def handle(key: str) -> None:
        done.append(key)
        if key == "bad":
            raise ValueError(key)

    task = asyncio.create_task(q.run(handle))
    q.add("bad")
    q.add("good")
    await turn()
    assert done == ["bad", "good"]
    clock.now += 0.9
    q.add("good")
    await turn()
    assert done == ["bad", "good", "good"], "not before its delay"
    clock.now += 0.2
    q.add("good")
    await turn()
    assert "bad" in done[3:]
    task.cancel()


async def test_the_dispatcher_wakes_only_for_a_key_that_is_due_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most events concern keys that are dirty already. Such an event does not wake the dispatcher, but an event with an
    earlier due time does.
    """
    q, _ = queue()
    done, looks = list[str](), 0
    pop = Schedule.pop

    def counted(schedule: Schedule[str], now: float) -> str | None:
        nonlocal looks
        looks += 1
        return pop(schedule, now)

    monkeypatch.setattr(Schedule, "pop", counted)

    async def handle(key: str) -> None:
        done.append(key)

    task = asyncio.create_task(q.run(handle))
    q.add("a", 5.0)
    await turn()
    before = looks
    for after in (5.0, 6.0, 7.0):
        q.add("a", after)
        q.add("b", after + 1)
        await turn()
    assert (looks, done) == (before, []), "the dispatcher wakes up for `a` anyway"
    q.add("b", 0.0)
    await turn()
    assert done == ["b"] and looks > before
    task.cancel()


def test_retries_double_until_a_success() -> None:
    q, _ = queue()
    assert [q.retry("a"), q.retry("a"), q.retry("a"), q.retry("b")] == [1.0, 2.0, 4.0, 1.0]
    q.reset_backoff("a")
    assert q.retry("a") == 1.0
    assert q.retry("a", at_least=30.0) == 30.0


async def test_drain_waits_for_runs_and_then_cancels_them() -> None:
    q, _ = queue()
    gate, ended = asyncio.Event(), list[str]()

    async def handle(key: str) -> None:
        try:
            await gate.wait()
            ended.append("well")
        except asyncio.CancelledError:
            ended.append("cut")
            raise

    task = asyncio.create_task(q.run(handle))
    q.add("a")
    await turn()
    task.cancel()
    q.add("b")
    gate.set()
    assert await q.drain(1.0)
    assert ended == ["well"], "b does not start after the queue was stopped"
    gate.clear()
    task = asyncio.create_task(q.run(handle))
    await turn()
    task.cancel()
    assert not await q.drain(0.0)
    await turn()
    assert ended == ["well", "cut"]


async def test_cancelled_idle_queue_ends() -> None:
    q, _ = queue()

    async def handle(key: str) -> None:
        raise AssertionError(key)

    task = asyncio.create_task(q.run(handle))
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
