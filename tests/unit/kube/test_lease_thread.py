"""Tests of the thread that renews the Lease: the Lease stays while the event loop is busy, and is lost if the event loop
does not respond any more.
"""

import asyncio
import threading
from typing import Any

import pytest

from ome_operator.kube import lease_thread
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import Transient
from ome_operator.kube.leader_election import Election, ElectionSettings, LeadershipLost
from ome_operator.kube.lease_thread import LeaseThread
from tests.unit.kube.test_leader_election import NOW, Server

QUICK = ElectionSettings("ns", "lease", "me", duration=0.003, renew=1000.0, retry=0.001)
"""Settings with which the Lease is renewed each millisecond."""


class Counting(Server):
    """A server that sets an event after this number of renewals."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left, self.renewed = times, threading.Event()

    async def update(self, manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        self.left -= 1
        if self.left <= 0:
            self.renewed.set()
        return await super().update(manifest, manager)


async def test_lease_is_renewed_while_the_event_loop_is_blocked() -> None:
    server, thread = Counting(5), LeaseThread()
    try:
        election = Election(server, QUICK, lambda: NOW)
        await thread.run(election.acquire_lease())
        holding = asyncio.create_task(thread.hold_lease(election, 10.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert server.renewed.wait(30), "the event loop is blocked meanwhile"
        assert election.is_leader() and not holding.done()
        holding.cancel()
    finally:
        await thread.close()


async def test_lease_is_not_renewed_for_an_unresponsive_event_loop() -> None:
    """If the event loop does not respond, the Lease is not renewed. Nothing is written after the time at which another
    operator may lead, whatever the event loop does afterwards.
    """
    now, answers, server = 100.0, True, Counting(10**6)

    def works() -> bool:
        nonlocal now
        if not answers:
            now += 1.0
        return answers

    settings = ElectionSettings("ns", "lease", "me", duration=0.003, renew=10.0, retry=0.001)
    election = Election(server, settings, lambda: NOW, clock=lambda: now, works=works)
    client = Client(Connection(None), may_write=election.is_leader)
    await election.acquire_lease()
    answers, renewals = False, server.left
    with pytest.raises(LeadershipLost, match="does not respond"):
        await election.hold_lease()
    assert server.left == renewals and not election.is_leader() and now >= 110.0
    answers = True
    with pytest.raises(Transient, match="not sent"):
        await client.delete("Pod", "ns", "p", "uid")
    await client.close()


async def test_lease_renewal_resumes_when_the_event_loop_responds_in_time() -> None:
    now, silences, server = 100.0, iter([False, False, False, False]), Server()

    def works() -> bool:
        nonlocal now
        now += 1.0
        return next(silences, True)

    class Enough(Exception):
        pass

    async def update(manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        if now > 105.0:
            raise Enough
        server.stored = manifest
        return manifest

    server.update = update  # type: ignore[method-assign]
    settings = ElectionSettings("ns", "lease", "me", duration=0.003, renew=10.0, retry=0.001)
    election = Election(server, settings, lambda: NOW, clock=lambda: now, works=works)
    await election.acquire_lease()
    with pytest.raises(Enough):
        await election.hold_lease()


async def test_dead_renewal_thread_is_reported_as_lost_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_thread, "CHECK", 0.01)

    class Dead(Election):
        async def hold_lease(self) -> None:
            await asyncio.Future()

    thread = LeaseThread()
    try:
        with pytest.raises(LeadershipLost, match="thread"):
            await thread.hold_lease(Dead(Server(), QUICK, lambda: NOW), 0.03)
    finally:
        await thread.close()


async def test_cancellation_reaches_the_thread_and_its_errors_are_raised() -> None:
    thread, began, ended = LeaseThread(), threading.Event(), threading.Event()

    class Waiting(Election):
        async def hold_lease(self) -> None:
            try:
                began.set()
                await asyncio.Future()
            finally:
                ended.set()

    class Failing(Election):
        async def hold_lease(self) -> None:
            raise LeadershipLost("another operator holds the Lease")

    closed = threading.Event()

    async def close() -> None:
        closed.set()

    thread.stack.push_async_callback(close)
    holding = asyncio.create_task(thread.hold_lease(Waiting(Server(), QUICK, lambda: NOW), 10.0))
    assert await asyncio.to_thread(began.wait, 30)
    holding.cancel()
    assert await asyncio.to_thread(ended.wait, 30)
    with pytest.raises(LeadershipLost, match="another operator"):
        await thread.hold_lease(Failing(Server(), QUICK, lambda: NOW), 10.0)
    await thread.close()
    assert closed.is_set() and not thread._thread.is_alive()
