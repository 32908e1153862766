"""Tests of which process may take a Lease. This is decided by observed changes, and not by wall clocks."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import Conflict, KubeError, NotFound, Transient
from ome_operator.kube.leader_election import Election, ElectionSettings, LeaseObservation, claim_lease, may_take
from tests.support.answers import answers

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SETTINGS = ElectionSettings("ns", "lease", "me")


def lease(holder: str, version: str = "1") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3, "acquireTime": "then"}
    return {"metadata": {"name": "lease", "resourceVersion": version}, "spec": spec}


def test_own_and_free_leases_are_taken_immediately() -> None:
    assert may_take(lease("me"), LeaseObservation("1", 0.0), "me", 0.0)
    assert may_take(lease(""), LeaseObservation("1", 0.0), "me", 0.0)


def test_foreign_lease_is_taken_if_unchanged_for_its_duration() -> None:
    seen = LeaseObservation()
    seen.record_lease(lease("other", "1"), 100.0)
    seen.record_lease(lease("other", "1"), 110.0)
    assert not may_take(lease("other"), seen, "me", 114.9)
    assert may_take(lease("other"), seen, "me", 115.0)
    seen.record_lease(lease("other", "2"), 114.0)
    assert not may_take(lease("other"), seen, "me", 128.0)


def test_only_a_takeover_increments_lease_transitions() -> None:
    taken, kept = claim_lease(lease("other"), SETTINGS, NOW)["spec"], claim_lease(lease("me"), SETTINGS, NOW)["spec"]
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("me", 4)
    assert taken["acquireTime"] == taken["renewTime"] == "2026-01-02T03:04:05.000000Z"
    assert (kept["leaseTransitions"], kept["acquireTime"]) == (3, "then")


class Server(Client):
    """A server that stores one Lease and answers at once."""

    def __init__(self) -> None:
        self.stored = lease("")
        self.errors: list[KubeError] = []

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        self._fail()
        return self.stored

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    async def update(self, manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        self._fail()
        self.stored = manifest
        return manifest


async def test_operator_suspended_beyond_its_lease_sends_no_write() -> None:
    """An operator that was suspended for longer than its Lease sends no write when it continues, even in the middle of a
    reconciliation. At this moment, the operator has not yet noticed that another operator leads.
    """
    now = 100.0
    election = Election(Server(), SETTINGS, lambda: NOW, clock=lambda: now)
    client = Client(Connection(None), may_write=election.is_leader)
    with pytest.raises(Transient, match="not sent"):
        await client.delete("Pod", "ns", "p", "uid")
    await election.acquire_lease()
    assert election.is_leader()
    now += SETTINGS.renew
    assert not election.is_leader()
    with pytest.raises(Transient, match="not sent"):
        await client.create({"kind": "Pod", "metadata": {"namespace": "ns", "name": "p"}})
    await client.close()


async def test_conflict_or_failed_read_does_not_lose_the_lease() -> None:
    """A conflict and a failed read do not lose the Lease. Somebody has added a label to the Lease, and a read fails; the
    process still holds the Lease.
    """
    server = Server()
    election = Election(server, SETTINGS, lambda: NOW, clock=lambda: 100.0)
    await election.acquire_lease()
    server.errors = [Conflict("it has changed", 409), Transient("no answer"), Conflict("it has changed", 409)]
    with pytest.raises(Transient):
        await election._try()
    assert await election._try() and election.is_leader()


@pytest.mark.looptime
async def test_hanging_renewal_is_cancelled_early_enough_for_another() -> None:
    """A renewal that hangs is given up early enough for another one. Observed once: the renewal waited on a closed
    connection, and the process ended although the API server was available again.
    """
    server, hung = Server(), asyncio.Event()
    update = server.update

    async def hangs_once(manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        if not hung.is_set():
            hung.set()
            await asyncio.sleep(3600)
        return await update(manifest, manager)

    election = Election(server, SETTINGS, lambda: NOW, clock=asyncio.get_running_loop().time)
    await election.acquire_lease()
    server.update = hangs_once  # type: ignore[method-assign]
    holding = asyncio.create_task(election.hold_lease())
    await asyncio.sleep(2 * SETTINGS.renew)
    assert hung.is_set() and not holding.done() and election.is_leader()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


async def test_deleted_lease_is_recreated_with_user_annotations() -> None:
    """A Lease that was deleted is created again with the annotations that users wrote on it. `ome freeze --all` writes to
    the Lease, and a deletion of the Lease for another reason must not end the freeze.
    """
    server, made = Server(), list[dict[str, Any]]()
    server.stored["metadata"]["annotations"] = {"ome.io/freeze": "true"}

    async def create(manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        made.append(manifest)
        return manifest

    server.create = create  # type: ignore[method-assign]
    election = Election(server, SETTINGS, lambda: NOW, clock=lambda: 100.0)
    await election.acquire_lease()
    server.errors = [NotFound("gone", 404)]
    assert await election._try()
    assert [body["metadata"]["annotations"] for body in made] == [{"ome.io/freeze": "true"}]


@pytest.mark.parametrize("warm", [False, True], ids=["new connection", "kept connection"])
async def test_write_is_not_sent_if_the_lease_is_lost_while_waiting_for_a_connection(warm: bool) -> None:
    """A write is not sent if the process has lost its Lease while it waited for a connection. A process may be suspended at
    any moment, even after it has checked whether it may write.
    """
    came: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        came.append(request.method)
        return web.json_response({})

    leads = iter([True, False, True, True])
    async with answers(answer) as connection:
        client = Client(connection, may_write=lambda: next(leads))
        try:
            if warm:
                await client.get("Pod", "ns", "p")
            with pytest.raises(Transient, match="not sent"):
                await client.delete("Pod", "ns", "p", "uid")
            assert came == ["GET"] * warm
            await client.delete("Pod", "ns", "p", "uid")
            assert came == [*["GET"] * warm, "DELETE"]
        finally:
            await client.close()
