"""Tests that an unexpected exception ends a round of a background task, and not the process."""

import asyncio
from collections.abc import Iterator

import pytest

from ome_operator.machinery.background import Pacer, repeat


async def test_failed_round_is_logged_once_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    tries: Iterator[str] = iter(["broken", "broken", "", "broken", "else", "end"])

    async def work() -> None:
        match next(tries):
            case "end":
                raise asyncio.CancelledError
            case "":
                return
            case words:
                raise IndexError(words)

    with pytest.raises(asyncio.CancelledError):
        await repeat("the look", work, lambda: 0.0)
    assert [record.getMessage() for record in caplog.records] == ["the look failed and will be repeated"] * 3
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["broken", "broken", "else"]


async def test_other_tasks_run_when_the_time_share_is_used_up() -> None:
    now, turns = 0.0, 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    pace = Pacer(share=1.0, clock=lambda: now)
    await pace.yield_if_due()
    beside = asyncio.create_task(other())
    for _ in range(40):
        now += 0.25
        await pace.yield_if_due()
    beside.cancel()
    assert turns == 10
