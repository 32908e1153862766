"""Test that no leader is removed from the router, and no group is recycled, as long as all engines work under mixed load.

The load takes a minute, or `OME_MIXED_S` seconds.
"""

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator

import aiohttp
import pytest

from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.decoders import Decoders, name_of, two_groups
from tests.support.rig import Rig
from tests.support.traffic import generate

NAME = "kimi-k2-tiny"
SECONDS = float(os.environ.get("OME_MIXED_S") or 60)
LONG_PROMPT = "one two three four five six seven eight nine ten " * 37
"""About 1,850 tokens, because the tokenizer of the tiny model has one token for each byte. It fits into the context."""


@pytest.fixture(scope="module")
def two(serving: Rig, tiny: str, ours: None, steps: Steps) -> Iterator[Decoders]:
    """Yield the service with two decode groups."""
    with two_groups(serving, NAME, tiny, steps) as found:
        yield found


async def every(seconds: float, url: str, counts: Counter[str], what: str, text: str, tokens: int, patience: float) -> None:
    """Send a request every `seconds` seconds, each independent of the others, and count the answers."""

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        answer = await generate(session, url, f"{number} {text}", patience, sampling_params=sampling)
        counts[f"{what}: {'failed' if answer.error else 'answered'}"] += 1

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for number in itertools.count():
            group.create_task(one(session, number))
            await asyncio.sleep(seconds)


async def watch(service: Decoders, out: Counter[str]) -> int:
    """Check until the end of the load that all leaders are listed and none is reported as silent. Count the exceptions in
    `out`, and return the number of checks.
    """
    end, readings = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        found = await asyncio.to_thread(service.summary)
        readings += 1
        for leader in found["leaders"]:
            if not leader["listed"] or "silence" in leader:
                out[f"{leader['role']} {leader['id']} {leader['state']}"] += 1
        await asyncio.sleep(1.0)
    return readings


@pytest.mark.timeout(SECONDS + 200, func_only=True)
async def test_working_engines_stay_in_the_router_under_mixed_load(two: Decoders, tables: Tables) -> None:
    before, leaders = two.recycles(), [*map(name_of, two.leaders())]
    counts, out = Counter[str](), Counter[str]()
    load = [
        every(1.0, two.url, counts, "short", "hello", 8, 30.0),
        every(10.0, two.url, counts, "long prompts", LONG_PROMPT, 8, 60.0),
        every(8.0, two.url, counts, "many tokens", "tell", 150, 120.0),
        every(7.0, two.url, counts, "clients that give up", "tell", 150, 1.0),
    ]
    tasks = [asyncio.create_task(each) for each in load]
    try:
        readings = await watch(two, out)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    said = f"{SECONDS:.0f} s, {readings} readings, out of the router: {dict(out)}, {dict(sorted(counts.items()))}"
    tables.setdefault("mixed load on engines that work", []).append(said)
    print(said)
    served = {what.partition(":")[0] for what in counts if what.endswith("answered")}
    assert served >= {"short", "long prompts", "many tokens"}, said
    assert not out and two.recycles() == before and [*map(name_of, two.leaders())] == leaders, said
