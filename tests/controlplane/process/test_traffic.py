"""Tests of `status.traffic` on a real API server: the numbers are stored as they were written, and changing numbers cause no
other write.
"""

from datetime import datetime

import pytest

from ome_operator.api import InferenceService
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers import traffic
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.observed.telemetry import LeaderLoad, WorkRates
from ome_operator.core.observed.traffic import LeaderNumbers, ServiceNumbers
from ome_operator.core.reconcile.plan import Plan
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.settings import Settings
from tests.controlplane.process.test_passes import quiet, reason_is
from tests.support.manager import leading, service, status, until


def told(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
    """Return a plan that reports the sampled numbers."""
    numbers = {"traffic": seen.traffic} if seen.traffic else {}
    return Plan(status={**status("True", "Serving"), **numbers}, urgent=False)


def numbers(requests: float) -> ServiceNumbers:
    """Return numbers of every kind, including zeros and fractions."""
    histogram = ((0.4, 31.0), (0.6, 9.0))
    load = LeaderLoad(0.0, 7, 0, 0, 0.41234)
    work = WorkRates(0.0, 60.0, {"outputTokens": 1e-5, "promptTokens": 2.0**53}, {"firstToken": histogram})
    return ServiceNumbers(2, 1, requests, {"u": LeaderNumbers("decode", load, work)}, 0.0)


async def test_numbers_are_written_once_and_survive_a_restart(
    connection: Connection, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [numbers(2.5)]
    monkeypatch.setattr(traffic, "traffic", lambda *_: found[0])
    monkeypatch.setattr(traffic, "FIRST", 0.0)
    monkeypatch.setattr(traffic, "TICK", 0.1)
    settings = Settings(router_watch=5.0, status_interval=0.0)
    monkeypatch.setattr(traffic, "PAUSE", 1.0)
    async with leading(connection, told, settings) as (leader, _, counted):
        made = await client.create(service())
        name, ref = made["metadata"]["name"], Ref(SERVICE, "default", made["metadata"]["name"])
        await reason_is(client, name, "Serving")
        await until("the numbers", lambda: "traffic" in leader.cluster.find_resource(ref).status)  # type: ignore[union-attr]
        stored = (await client.get(SERVICE, "default", name))["status"]["traffic"]
        assert stored["requestsPerSecond"] == 2.5 and stored["outputTokensPerSecond"] == 1e-05
        assert stored["roles"] == [
            {"name": "decode", "leaders": 1, "withLoad": 1, "withWork": 1, "running": 7, "waiting": 0, "cacheUse": 0.412}
        ]
        assert stored["timeToFirstToken"]["p95"] == {"above": 0.4, "upTo": 0.6}
        found[0] = numbers(250.0)  # sampled every second now, but written at most once a minute
        assert await quiet(counted, 3.0) == []
    async with leading(connection, told, settings) as (_, _watcher, counted):
        assert await quiet(counted, 2.0) == [], "a restart writes nothing"
    assert (await client.get(SERVICE, "default", name))["status"]["traffic"] == stored
