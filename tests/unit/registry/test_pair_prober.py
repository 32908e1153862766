"""Tests of when the registry probes pairs of prefill and decode, what it sends, and how it interprets the responses."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ome_operator.names import public_digest
from ome_operator.registry import pair_prober
from ome_operator.registry.engine_client import EngineClient
from ome_operator.registry.engine_load import EngineLoad
from ome_operator.registry.pair_prober import PairProber
from ome_operator.registry.pairs import FAILURES
from ome_operator.registry.records import LeaderState
from ome_operator.registry.telemetry import LeaderMemory, WorkReading

pytestmark = pytest.mark.looptime
FAILS = LeaderMemory(work=(WorkReading(0.0, {"failedTransfers": 1.0}, {}), WorkReading(1.0, {"failedTransfers": 2.0}, {})))
QUIET = LeaderMemory(work=(WorkReading(0.0, {"failedTransfers": 2.0}, {}), WorkReading(1.0, {"failedTransfers": 2.0}, {})))
BUSY = LeaderMemory(EngineLoad(running=3.0))


class Slice:
    """A prefill leader and two decode leaders, each with its own server."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.status: dict[str, int] = {}
        """UID of a decode leader -> status of its answers; 0: it does not answer in time."""
        self.now, self.changes = 1000.0, 0
        self.leaders: list[LeaderState] = []
        self.memories: dict[str, LeaderMemory] = {"p": FAILS}
        self.prober: PairProber

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request for a token."""
        uid = request.match_info["uid"]
        self.asked.append((uid, await request.json()))
        status = self.status.get(uid, 200)
        if not status:
            await asyncio.sleep(60)
        return web.Response(status=status)

    async def seconds(self, count: int, router_fails: bool = False) -> None:
        """Let this number of seconds pass, and run the probes that are due in each."""
        for _ in range(count):
            self.now += 1.0
            self.prober.begin(self.memories, router_fails)
            await asyncio.gather(*self.prober._running.values())

    def changed(self) -> None:
        """Count a change of the set of leaders that are the cause of failing transfers."""
        self.changes += 1


@pytest.fixture
async def three(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Slice]:
    monkeypatch.setattr(pair_prober, "TIMEOUT", 0.1)
    one = Slice()
    app = web.Application()
    app.router.add_post("/{uid}/generate", one.handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        for uid, role, port in (("p", "prefill", 8998), ("d0", "decode", None), ("d1", "decode", None)):
            url = str(server.make_url(f"/{uid}"))
            one.leaders.append(LeaderState(uid, uid, url, role, "serving", "", True, 0, bootstrap_port=port))
        one.prober = PairProber(EngineClient(session), lambda: one.leaders, lambda: one.now, one.changed)
        yield one
        one.prober.end()


async def test_pairs_are_not_probed_while_no_transfer_fails(three: Slice) -> None:
    three.memories = {"p": QUIET, "d0": BUSY}
    await three.seconds(20)
    assert not three.asked
    await three.seconds(1, router_fails=True)
    assert three.asked, "the router answers with errors"


async def test_pair_probe_sends_one_room_to_both_engines_each_second(three: Slice) -> None:
    await three.seconds(2)
    (one, first), (other, same), (_, second), _ = three.asked
    assert {one, other} == {"p", "d0"} and first == same
    assert (first["bootstrap_host"], first["bootstrap_port"]) == ("127.0.0.1", 8998)
    assert first["sampling_params"]["max_new_tokens"] == 1 and first["bootstrap_room"] != second["bootstrap_room"]


@pytest.mark.parametrize("status", [500, 0])
async def test_decode_that_the_only_prefill_cannot_reach_is_blamed(three: Slice, status: int) -> None:
    three.status["d1"] = status
    await three.seconds(60)
    assert three.prober.faulty_leaders == {"d1"} and three.changes == 1
    (pair,) = three.prober.summary()
    assert (pair["prefill"], pair["decode"], pair["prefillWorksWith"]) == (
        public_digest("p"),
        public_digest("d1"),
        public_digest("d0"),
    )
    assert pair["probes"] == pair["failed"] >= FAILURES and "decodeWorksWith" not in pair
    three.leaders[2] = three.leaders[2]._replace(state="silent", listed=False)
    three.status, three.memories = {}, {"p": QUIET}
    await three.seconds(60)
    assert not three.prober.faulty_leaders and three.changes == 2 and not three.prober.summary()
    asked = len(three.asked)
    await three.seconds(20)
    assert len(three.asked) == asked, "all pairs work, and no transfer fails"


@pytest.mark.parametrize("status", [503, 401, 404])
async def test_engine_that_rejects_the_probe_is_not_blamed(three: Slice, status: int) -> None:
    three.status["d1"] = status
    await three.seconds(60)
    assert not three.prober.faulty_leaders and not three.prober.summary()


async def test_busy_decode_with_waiting_requests_is_not_blamed(three: Slice) -> None:
    three.status["d1"], three.memories["d1"] = 0, BUSY
    await three.seconds(60)
    assert not three.prober.faulty_leaders


async def test_decode_is_blamed_although_its_first_probes_were_late(three: Slice) -> None:
    """A decode leader is found to be the cause although its first failed probes do not count: they were late while requests
    that had begun before still ran. The later probes are answered with 500, because packets are dropped.
    """
    three.status["d1"], three.memories["d1"] = 0, BUSY
    await three.seconds(6)
    assert not three.prober.faulty_leaders
    three.status["d1"] = 500
    await three.seconds(60)
    assert three.prober.faulty_leaders == {"d1"}


async def test_decode_with_failing_transfers_does_not_count_as_busy(three: Slice) -> None:
    """If a decode leader finishes requests only because their transfers fail, the leader does not count as busy. So late
    probes of this leader count as failed.
    """
    counters = ({"requests": 7.0, "failedTransfers": 2.0}, {"requests": 9.0, "failedTransfers": 4.0})
    work = tuple(WorkReading(float(at), each, {}) for at, each in enumerate(counters))
    three.status["d1"], three.memories["d1"] = 0, LeaderMemory(work=work)
    await three.seconds(60)
    assert three.prober.faulty_leaders == {"d1"}


async def test_no_engine_is_blamed_if_all_pairs_fail(three: Slice) -> None:
    three.status["p"] = 500
    await three.seconds(60)
    assert not three.prober.faulty_leaders and len(three.prober.summary()) == 2
