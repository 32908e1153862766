"""Test that the registry beside a real router reports when a leader answered its first request (docs/telemetry.md)."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ome_operator.names import public_digest
from ome_operator.registry.starting import READ_WITHIN
from tests.router.conftest import Stage, address
from tests.router.test_counts import PROBES, ROUTERS, D, P, serving
from tests.support.waiting import wait_until

E = address(22)
IDLE, LISTED_LATE = 4.0, 3.5


async def start(stage: Stage) -> dict[str, Any]:
    """Return what the summary contains about the start of the second decode leader."""
    leaders = {each["id"]: each for each in (await stage.summary())["leaders"]}
    return dict(leaders.get(public_digest("uid-d-1"), {}).get("start", {}))


@pytest.mark.parametrize("module", ROUTERS)
async def test_the_first_answer_is_that_to_a_request_and_not_to_a_health_check(tmp_path: Path, module: str) -> None:
    async with serving(tmp_path, module) as stage:
        await asyncio.sleep(READ_WITHIN)
        stage.api.begin("d-1", "decoder", E)
        await asyncio.sleep(READ_WITHIN)
        stage.api.run("d-1", "decoder", E)
        await stage.lists(P, D, E, within=20)
        listed = time.monotonic()
        for path in PROBES:
            async with stage.session.get(stage.url + path) as answer:
                assert answer.status == 200
        await asyncio.sleep(IDLE)
        assert {"listedFor", "succeededFor"} & (await start(stage)).keys() == {"listedFor"}
        while not stage.engines[E].answered:
            async with stage.session.post(f"{stage.url}/generate", json={"text": "0", "sampling_params": {}}) as answer:
                assert answer.status == 200
        waited = time.monotonic() - listed

        async def counted() -> bool:
            return "succeededFor" in await start(stage)

        await wait_until(counted, within=READ_WITHIN)
        found = await start(stage)
        took = found["listedFor"] - found["succeededFor"]
        assert waited - LISTED_LATE <= took <= waited + READ_WITHIN
        print(f"{took:.1f} s, and {waited:.1f} s by the clock of this test")
