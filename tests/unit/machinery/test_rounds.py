"""What nobody expected costs a round, and not the process."""

import asyncio
from collections.abc import Iterator

import pytest

from ome_operator.machinery.rounds import rounds


async def test_a_failure_costs_a_round_and_is_told_once_until_it_is_well(caplog: pytest.LogCaptureFixture) -> None:
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
        await rounds("the look", work, lambda: 0.0)
    assert [record.getMessage() for record in caplog.records] == ["the look failed, and is tried again"] * 3
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["broken", "broken", "else"]
