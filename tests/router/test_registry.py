"""Tests of the registry sidecar with a real sglang-router: it repairs within seconds what the router's own discovery
misses.
"""

import asyncio
import signal

from tests.router.conftest import SELECTOR, Stage, address
from tests.support.waiting import wait_until

P, D, E = address(11), address(21), address(22)


async def test_worker_that_died_unobserved_is_removed_in_time(stage: Stage) -> None:
    assert stage.api.asked == {"labelSelector": SELECTOR, "token": "Bearer secret"}
    await stage.api.stop()
    await asyncio.sleep(4)  # longer than the interval, so that the registry has noticed that the router does not answer
    assert await stage.listed() == {P, D, E} and await stage.health() == 200
    del stage.api.pods["d-1"]
    stage.api.status = 500
    await stage.api.start()
    await asyncio.sleep(4)
    assert await stage.listed() == {P, D, E}, "an error must not count as an empty list"
    stage.token.write_text("newer")
    stage.api.status = 200
    assert await stage.lists(P, D, within=10) < 10

    async def newer() -> bool:
        return stage.api.asked["token"] == "Bearer newer"

    async def told() -> bool:
        return (
            f"removed http://{E}:30000 (decode): no pod of this router's revision has this address" in stage.registry.log()
        )

    await wait_until(newer, within=5)
    await wait_until(told, within=5)


async def test_restarted_router_is_filled_again_even_without_an_api_server(stage: Stage) -> None:
    await stage.api.stop()
    await stage.router.stop()
    await stage.router.start()
    await stage.lists(P, D, E, within=10)
    body = {"text": "0", "sampling_params": {}}
    async with stage.session.post(f"{stage.url}/generate", json=body) as answer:
        assert answer.status == 200


async def test_drained_leader_finishes_its_request_and_then_reports_empty(stage: Stage) -> None:
    del stage.api.pods["d-1"]
    await stage.lists(P, D, within=10)
    request = asyncio.create_task(stage.session.post(f"{stage.url}/generate", json={"text": "held"}))

    async def runs() -> bool:
        return stage.engines[D].running == 1

    await wait_until(runs, within=5)
    stage.api.run("d-0", "decoder", D, **{"ome.io/draining": "true"})
    stage.api.run("d-1", "decoder", E)
    await stage.lists(P, E, within=7)

    async def told() -> bool:
        one = (await stage.stands())["d-0"]
        return (one["state"], one["listed"], one["running"]) == ("draining", False, 1)

    async def drained() -> bool:
        return (await stage.stands())["d-0"]["running"] == 0

    await wait_until(told, within=8)
    for engine in stage.engines.values():
        engine.released.set()
    async with await request as answer:
        assert answer.status == 200 and (await answer.json())["text"] == D
    await wait_until(drained, within=8)

    async def empty() -> bool:
        found = [one["load"] for one in (await stage.summary())["leaders"] if one["state"] == "draining"]
        return [load["emptyReadings"] for load in found] == [2]

    await wait_until(empty, within=15)


async def test_summary_counts_equal_the_requests_sent_by_clients(stage: Stage) -> None:
    """The numbers in the registry's summary equal the numbers of requests that clients sent. The summary counts the
    requests that arrive at the router, and the requests that engines answer. Each request passes through prefill and
    decode.
    """

    async def known() -> bool:
        found = await stage.summary()
        return "window" in found["router"] and all("work" in one for one in found["leaders"])

    await wait_until(known, within=15)
    body = {"text": "0", "sampling_params": {}}
    for _ in range(30):
        async with stage.session.post(f"{stage.url}/generate", json=body) as answer:
            assert answer.status == 200

    async def counted() -> bool:
        found = await stage.summary()
        router, by_role = found["router"], {"prefill": 0.0, "decode": 0.0}
        for one in found["leaders"]:
            by_role[one["role"]] += one["work"].get("requests", 0.0) * one["work"]["window"]
        # The window of each engine starts with its first reading, which came before the requests.
        numbers = (router.get("requests", 0.0) * router["window"], *by_role.values())
        return all(abs(number - 30) < 1 for number in numbers) and router["errors"] == router["inFlight"] == 0

    await wait_until(counted, within=25)
    found = await stage.summary()
    assert {one["load"]["cacheUse"] for one in found["leaders"]} == {0.5}
    assert not any(address in str(found) for address in (P, D, E))


async def test_registry_ends_with_exit_code_0_after_router_stops(stage: Stage) -> None:
    assert stage.registry.child is not None and stage.router.child is not None
    stage.registry.child.send_signal(signal.SIGTERM)
    del stage.api.pods["d-1"]
    await stage.lists(P, D, within=10)
    await stage.router.stop()
    assert await asyncio.wait_for(stage.registry.child.wait(), 5) == 0


async def test_starting_leader_is_listed_when_its_engine_is_healthy(stage: Stage) -> None:
    """A leader that is starting is listed as soon as its engine is healthy. Kubernetes reports the leader as ready only
    after its probes, which run once a second.
    """
    new = address(12)
    stage.engines[new].is_healthy = False
    stage.api.begin("p-1", "engine", new)
    await asyncio.sleep(4)  # longer than the interval, so that the registry has sent a request to the engine
    assert await stage.listed() == {P, D, E}
    stage.engines[new].is_healthy = True
    assert await stage.lists(P, new, D, E, within=3) < 3

    async def told() -> bool:
        return (await stage.stands())["p-1"]["state"] == "serving"

    await wait_until(told, within=3)
    stage.engines[new].is_healthy = False
    await stage.lists(P, D, E, within=25)  # 20 s after the leader was first seen not to be ready
    stage.engines[new].is_healthy = True
    await stage.lists(P, new, D, E, within=8)
    await stage.engines[new].stop()  # silence
    await stage.lists(P, D, E, within=15)
