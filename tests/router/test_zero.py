"""Tests of a real router that loses its last engine and later gets a new engine. The tests check what the router's registry
answers while there is no engine, and which requests the registry counts.
"""

import asyncio
from typing import Any

import aiohttp

from tests.router.conftest import Stage, address
from tests.support.waiting import wait_until

PROMPT = {"text": "hello", "sampling_params": {}}


async def heard(stage: Stage) -> int:
    """Return the number of requests that the registry has counted while there was no engine."""
    return int(((await stage.summary()).get("unserved") or {}).get("requests", 0))


async def test_requests_over_an_open_connection_to_the_router_are_counted(stage: Stage) -> None:
    """Requests that a client with an open connection keeps sending to the router are counted, although the Service then
    leads to the registry.
    """
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as client:

        async def ask() -> tuple[int, Any]:
            async with client.post(f"{stage.url}/generate", json=PROMPT) as response:
                return response.status, response.headers.get("Retry-After")

        assert (await ask())[0] == 200
        stage.api.pods["p-0"]["metadata"]["annotations"]["ome.io/draining"] = "now"
        await stage.lists(address(21), address(22), within=15)
        assert await heard(stage) == 0, "no request has arrived since"
        await asyncio.sleep(11)  # two readings of the router's counters
        assert (await ask())[0] == 503

        async def counted() -> bool:
            return await heard(stage) == 1

        await wait_until(counted, 15)
        for path in ("/health", "/readiness", "/v1/models", "/health_generate", "/liveness"):
            async with client.get(f"{stage.url}{path}"):
                pass
        await asyncio.sleep(11)
        assert await heard(stage) == 1, "health checks are no requests"


async def test_registry_responds_while_the_router_has_no_engine(stage: Stage) -> None:
    url = f"http://127.0.0.1:{stage.answers}"
    async with stage.session.post(f"{url}/v1/chat/completions", json=PROMPT) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "30")
        assert (await response.json())["error"]["code"] == "no_engine"
    assert await heard(stage) == 1
    async with stage.session.get(f"{url}/health") as response:
        assert response.status == 503
    assert await heard(stage) == 1
