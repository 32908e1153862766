"""Tests of when the registry sends a request for one token to a leader, and of the effects on the leader."""

import asyncio
import itertools
from typing import Any

import pytest

from ome_operator.registry import answer_prober
from ome_operator.registry.answers import QUIET
from ome_operator.registry.silence import RETRY_SILENT
from tests.unit.registry.conftest import Engine

pytestmark = pytest.mark.looptime


class Mute:
    """An engine whose scheduler works, so that each reading has new numbers, but that returns no token for any request."""

    def __init__(self, one: Engine) -> None:
        self.one, self.readings, self.waiting = one, itertools.count(), 0
        one.pages |= {"/generate": (0, ""), "/ready": (200, ""), "/ping": (200, ""), "/v1/loads": (200, self.loads)}
        self.routes(active=2, succeeded=5)

    def loads(self) -> Any:
        """Return the load at the present time."""
        at = self.one.now + 0.001 * next(self.readings)
        load = {"num_running_reqs": 0, "num_waiting_reqs": self.waiting, "num_used_tokens": 0, "timestamp": at}
        return {"loads": [{**load, "disaggregation": {"mode": "null", "prefill_inflight_queue_reqs": 0}}]}

    def routes(self, active: int, succeeded: int) -> None:
        """Set the counts that the router reports."""
        label = f'worker="{self.one.leaders[0].url}"'
        text = f"smg_worker_requests_active{{{label}}} {active}\n"
        self.one.pages["/router"] = 200, f'{text}smg_worker_cb_outcomes_total{{{label},outcome="success"}} {succeeded}\n'

    async def lives(self, seconds: float) -> None:
        """Read the engine and run the probes for this number of seconds."""
        for _ in range(int(seconds)):
            await self.one.read(after=1.0)
            await self.one.reader.begin_probes()
            await asyncio.gather(*self.one.reader._answer_prober.running_probes.values())


@pytest.fixture
async def mute(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Mute:
    """Return an engine that has worked for a while without a probe, and has two open requests now."""
    monkeypatch.setattr(answer_prober, "PROBE", 0.5)
    monkeypatch.setattr(answer_prober, "READ_EVERY", 0.03)
    found = Mute(engine)
    found.routes(active=0, succeeded=5)
    await found.lives(20)
    assert engine.times("/generate") == 0, "the engine has no request"
    found.routes(active=2, succeeded=5)
    return found


async def test_unresponsive_leader_is_silent_until_it_answers(mute: Mute) -> None:
    await mute.lives(QUIET - 1)
    assert mute.one.times("/generate") == 0
    await mute.lives(5)
    assert mute.one.times("/generate") == 2 and mute.one.reader.silent_leaders == {"u"} and mute.one.changes == 1
    assert mute.one.times("/health_generate") == 0, "its scheduler works, so it needs no probe"
    found = await mute.one.read()
    assert found["leaders"][0]["silence"]["seconds"] >= 1
    mute.one.pages["/generate"] = 200, "{}"
    await mute.lives(RETRY_SILENT + 1)
    assert not mute.one.reader.silent_leaders and mute.one.changes == 2


async def test_a_leader_that_answers_the_router_is_not_probed(mute: Mute) -> None:
    for succeeded in range(6, 26):
        mute.routes(active=2, succeeded=succeeded)
        await mute.lives(2)
    assert mute.one.times("/generate") == 0


NOT_READY = {"/ready": (503, "")}


@pytest.mark.parametrize("pages", [NOT_READY, {**NOT_READY, "/ping": (503, "")}, {"/generate": (503, "")}])
async def test_a_paused_or_refusing_leader_is_not_silent(mute: Mute, pages: dict[str, tuple[int, str]]) -> None:
    mute.one.pages |= pages
    await mute.lives(40)
    assert not mute.one.reader.silent_leaders and 4 <= mute.one.times("/generate") <= 20


async def test_a_leader_whose_requests_wait_is_not_silent(mute: Mute) -> None:
    mute.waiting = 1
    await mute.lives(40)
    assert not mute.one.reader.silent_leaders and mute.one.times("/generate") >= 4


async def test_leader_with_a_blocked_scheduler_gets_only_the_scheduler_probe(mute: Mute) -> None:
    mute.one.pages["/v1/loads"] = 200, mute.loads()
    await mute.lives(4)
    before = mute.one.times("/generate")
    mute.one.pages["/health_generate"] = 404, ""
    await mute.lives(30)
    assert mute.one.times("/generate") <= before + 1 and mute.one.times("/health_generate") >= 4


@pytest.mark.parametrize(("role", "has_partner"), [("regular", False), ("prefill", True), ("decode", True)])
def test_probe_of_a_disaggregated_engine_transfers_no_cache(role: str, has_partner: bool) -> None:
    body = answer_prober._body(role)
    assert body["sampling_params"]["max_new_tokens"] == 1 and body["log_metrics"] is False
    assert (body.get("bootstrap_host") == answer_prober.NO_PARTNER) == has_partner
