"""Tests of the pages for probes, and of the pages that require a key."""

import aiohttp
import pytest

from ome_operator.machinery import health


@pytest.mark.parametrize(
    ("shown", "status"),
    [(None, 401), ("Bearer wrong", 401), ("Bearer ", 401), ("Bearer clé", 401), ("Bearer right", 200)],
)
async def test_guarded_page_requires_the_key(shown: str | None, status: int) -> None:
    routes = {"/healthz": lambda: (True, "ok"), "/names": lambda: (True, "pod-0")}
    runner, port = await health.serve("127.0.0.1", 0, routes, "right", ("/names",))
    headers = {} if shown is None else {"Authorization": shown}
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/names", headers=headers) as answer:
                assert (answer.status, "pod-0" in await answer.text()) == (status, status == 200)
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200
    finally:
        await runner.cleanup()


async def test_pages_are_open_without_a_key() -> None:
    runner, port = await health.serve("127.0.0.1", 0, {"/names": lambda: (True, "pod-0")}, "", ("/names",))
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/names") as answer:
            assert answer.status == 200
    finally:
        await runner.cleanup()
