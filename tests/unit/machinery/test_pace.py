"""Work that gives way lets the loop have its turns, and no more of them than it needs."""

import asyncio

from ome_operator.machinery.pace import Pace


async def test_others_have_a_turn_when_the_share_is_used_up() -> None:
    now, turns = 0.0, 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    pace = Pace(share=1.0, clock=lambda: now)
    await pace.breathe()
    beside = asyncio.create_task(other())
    for _ in range(40):
        now += 0.25
        await pace.breathe()
    beside.cancel()
    assert turns == 10
