"""Tests how real routers choose a prefill group for the turns of a conversation. The engines are simulated."""

import asyncio
import importlib.util
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from ome_local import ports
from tests.router.conftest import NEW, OLD, Engine, Stage, address, router_process, worker_flags
from tests.support.waiting import wait_until

SMG = pytest.mark.skipif(
    importlib.util.find_spec(NEW) is None, reason="the package smg is not installed (tests/router/conftest.py)"
)
CONVERSATIONS, TURNS = 8, 4
KEY = "X-SMG-Routing-Key"


async def prefills(folder: Path, module: str, *flags: str, keyed: bool = False) -> Mapping[int, set[str]]:
    """Return the prefill engines that the turns of each conversation reached. Each turn repeats the text of the earlier
    turns.
    """
    ips = [address(number) for number in (41, 42, 43)]
    engines = [*(Engine(ip, "prefill") for ip in ips), Engine(address(51), "decode")]
    port, metrics = ports.choose(2)
    words = *worker_flags(ips, [address(51)]), "--decode-policy=round_robin", *flags
    router = router_process(folder, port, metrics, *words, module=module)
    url = f"http://127.0.0.1:{port}/generate"
    for engine in engines:
        await engine.start()
    await router.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def asked(conversation: int, turn: int) -> bool:
                text = " ".join(f"{conversation} says {number} " * 40 for number in range(turn + 1))
                headers = {KEY: str(conversation)} if keyed else {}
                try:
                    async with session.post(url, json={"text": text}, headers=headers) as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await wait_until(lambda: asked(CONVERSATIONS, 0), within=30)
            for turn in range(TURNS):
                for conversation in range(CONVERSATIONS):
                    assert await asked(conversation, turn), router.log()[-2000:]
                await asyncio.sleep(0.1)
    finally:
        await router.stop()
        for engine in engines:
            await engine.stop()
    return {
        number: {engine.ip for engine in engines[:-1] if any(text.startswith(f"{number} says") for text in engine.texts)}
        for number in range(CONVERSATIONS)
    }


def apart(found: Mapping[int, set[str]]) -> int:
    """Return the number of conversations that reached more than one prefill engine."""
    return sum(len(ips) > 1 for ips in found.values())


async def test_old_router_scatters_conversations_with_default_and_prefix_policy(tmp_path: Path) -> None:
    """The old router sends the turns of a conversation to different prefill engines, with its default policy and with its
    prefix policy. This is the reason for the rule `cache-aware-random`. By chance, one of 27 conversations of 4 turns stays
    on one of 3 engines.
    """
    assert apart(await prefills(tmp_path, OLD)) > CONVERSATIONS / 2
    assert apart(await prefills(tmp_path, OLD, "--prefill-policy=cache_aware")) > CONVERSATIONS / 2


async def test_old_router_keeps_a_conversation_on_one_engine_by_its_header(tmp_path: Path) -> None:
    assert apart(await prefills(tmp_path, OLD, "--prefill-policy=manual", keyed=True)) == 0
    assert apart(await prefills(tmp_path, OLD, "--prefill-policy=manual")) > CONVERSATIONS / 2


@SMG
async def test_smg_keeps_a_conversation_on_one_engine_by_its_prefix(tmp_path: Path) -> None:
    assert apart(await prefills(tmp_path, NEW, "--prefill-policy=cache_aware")) == 0


@SMG
async def test_registry_adds_workers_to_smg_despite_a_slowly_starting_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, NEW)
    first, slow, decode = address(11), address(12), address(21)
    for ip in (first, decode):
        await stage.engines[ip].start()
    stage.api.run("p-0", "engine", first)
    stage.api.run("p-1", "engine", slow)
    stage.api.run("d-0", "decoder", decode)
    await stage.api.start()
    await stage.registry.start()
    await stage.router.start()
    try:
        await stage.lists(first, decode, within=40)
        await asyncio.sleep(20)  # longer than the 15 s after which the registry sends a worker again
        assert await stage.trouble() == [] and "409" not in stage.registry.log()
        await stage.engines[slow].start()
        await stage.lists(first, slow, decode, within=40)
    finally:
        for process in (stage.registry, stage.router):
            await process.stop()
        await stage.api.stop()
        for engine in stage.engines.values():
            await engine.stop()
        await stage.session.close()
