"""Tests of a leader that stops working, with a real router and its registry. Only the engines and the API server are
simulated.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp

from tests.router.conftest import Stage, address
from tests.support.waiting import wait_until

P, D, E = address(11), address(21), address(22)
OUT_WITHIN, BACK_WITHIN = 20.0, 15.0


async def test_stopped_leader_is_removed_from_the_router_and_returns(stage: Stage) -> None:
    await asyncio.sleep(7)  # An engine counts as stopped only if it was seen working, which takes two readings.
    stage.engines[E].stop_scheduler()
    out = await stage.lists(P, D, within=OUT_WITHIN)
    assert (await stage.stands())["d-1"]["state"] == "silent"
    (leader,) = [each for each in (await stage.summary())["leaders"] if each["state"] == "silent"]
    assert leader["silence"]["seconds"] >= 5
    assert stage.engines[P].probes == stage.engines[D].probes == 0, "an engine that works is not probed"

    stage.engines[D].stop_scheduler()

    async def both_are_silent() -> bool:
        return sum("silence" in each for each in (await stage.summary())["leaders"]) == 2

    await wait_until(both_are_silent, within=OUT_WITHIN)
    await stage.lists(P, D, E, within=5)
    stage.engines[D].works.set()
    await stage.lists(P, D, within=BACK_WITHIN)
    stage.engines[E].works.set()
    back = await stage.lists(P, D, E, within=BACK_WITHIN)
    print(f"out after {out:.1f} s, back after {back:.1f} s")


@contextlib.asynccontextmanager
async def requests(stage: Stage) -> AsyncIterator[None]:
    """Send four requests per second to the router, whose clients wait for 10 s."""

    async def one() -> None:
        body = {"text": "hello", "sampling_params": {"max_new_tokens": 1}}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with stage.session.post(f"{stage.url}/generate", json=body, timeout=aiohttp.ClientTimeout(10)) as answer:
                await answer.read()

    async def arrivals() -> None:
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                group.create_task(one())
                await asyncio.sleep(0.25)

    over = asyncio.Event()
    task = asyncio.create_task(arrivals())
    try:
        yield
    finally:
        over.set()
        await task


async def test_leader_that_returns_no_answers_is_removed_and_returns(stage: Stage) -> None:
    async with requests(stage):
        await asyncio.sleep(10)
        texts = [text for engine in stage.engines.values() for text in engine.texts]
        assert texts and {*texts} == {"hello"}, "an engine that answers is not probed"
        stage.engines[E].returns.clear()
        out = await stage.lists(P, D, within=OUT_WITHIN)
        (leader,) = [each for each in (await stage.summary())["leaders"] if each["state"] == "silent"]
        assert leader["silence"]["seconds"] >= 3 and not stage.engines[E].probes
        stage.engines[E].returns.set()
        back = await stage.lists(P, D, E, within=BACK_WITHIN)
    print(f"out after {out:.1f} s, back after {back:.1f} s")
