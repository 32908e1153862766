"""Tests of prefill engines with the class Demand on the real node: a burst of real requests adds a second prefill group,
which is removed after the burst. No request fails (docs/demand.md).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import remove
from tests.node.serving.decoders import Decoders, after, derived, replace_arg
from tests.support import hasty_operator
from tests.support.rig import Rig
from tests.support.traffic import Report, generate, stream_of

pytestmark = [pytest.mark.usefixtures("ours")]
NAME = "kimi-k2-tiny-demand"
CLIENTS = 30
"""Clients of the burst. Each sends its next request when the previous one is answered."""
PATIENT_S = 300
"""Seconds for which a request waits for its partner by default in SGLang; the runtime sets 10 s."""
CALM_PER_S = 0.5
WITHIN_S = 120.0
"""Seconds after which a request counts as failed. Engines are slow while another engine starts on the same cores."""
DECIDED_WITHIN_S, SERVED_WITHIN_S, BACK_WITHIN_S = 200.0, 300.0, 240.0
DEMAND = {"timeToFirstToken": "2s", "timeBetweenTokens": "10s", "coolDown": "10s", "mode": "Apply"}
HASTY = hasty_operator.__name__
HEADING = "class Demand with real prefill engines"


def narrow(runtime: dict[str, Any]) -> None:
    """Let prefill engines compute one request at a time, so that few clients saturate them, and let requests wait."""
    replace_arg(runtime["spec"]["engineConfig"], "--max-running-requests=1")
    for role in ("engineConfig", "decoderConfig"):
        for variable in runtime["spec"][role]["runner"]["env"]:
            if variable["name"].endswith("_TIMEOUT"):
                variable["value"] = str(PATIENT_S)


@pytest.fixture(scope="module")
def service(serving: Rig, steps: Steps) -> Iterator[Decoders]:
    """Yield a service whose prefill groups follow the demand between one and two."""
    found = derived(serving, NAME, steps, narrow)
    engine = {"minReplicas": 1, "maxReplicas": 2, "autoscaler": {"class": "Demand"}}
    serving.patch("InferenceService", NAME, NAME, {"spec": {"engine": engine, "scalingPolicy": {"demand": DEMAND}}})
    serving.wait("the demand decides", lambda: scaling(found).get("applied") == {"engine": 1}, 90)
    yield found
    remove(serving, NAME)


def scaling(service: Decoders) -> dict[str, Any]:
    """Return `status.scaling`."""
    status = (service.rig.get("InferenceService", service.name, service.name) or {}).get("status") or {}
    return dict(status.get("scaling") or {})


def wanted(service: Decoders) -> int:
    """Return the wanted number of prefill groups."""
    return int((scaling(service).get("applied") or {}).get("engine", 0))


def listed(service: Decoders) -> int:
    """Return the number of prefill leaders that the router lists."""
    return sum(one["role"] == "prefill" and one["listed"] for one in service.summary()["leaders"])


@asynccontextmanager
async def busy(url: str, clients: int = CLIENTS, **more: Any) -> AsyncIterator[Report]:
    """Keep a number of requests running inside the `with` block: each client sends its next request when the previous one
    was answered. `more` are fields of each request.
    """
    report, over = Report(), asyncio.Event()

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        while not over.is_set():
            report.answers.append(await generate(session, url, f"client {number}", WITHIN_S, **more))

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as running:
        for number in range(clients):
            running.create_task(client(session, number))
        try:
            yield report
        finally:
            over.set()


@pytest.mark.timeout(800, func_only=True)
async def test_burst_of_requests_adds_a_second_prefill_group(service: Decoders, tables: Tables) -> None:
    """A burst of requests adds a second prefill group. The operator runs as the chart installs it, so the measured times are
    real.
    """
    async with busy(service.url) as report:
        began = time.monotonic()
        decided = await after(began, "a second group is wanted", DECIDED_WITHIN_S, lambda: wanted(service) == 2)
        served = await after(began, "the router lists both", SERVED_WITHIN_S, lambda: listed(service) == 2)
        await asyncio.sleep(5)
    learned = scaling(service)
    tables.setdefault(HEADING, []).extend([
        f"from the first burst, which is also the measurement, until the decision  {decided:>6.1f} s",
        f"from the same burst until the router sends requests to the second group  {served:>6.1f} s",
        f"{len(report.failed_answers)} of {len(report.answers)} requests failed; {learned.get('why')}",
    ])  # fmt: skip
    assert not report.failed_answers, report.failed_answers[0].error


@pytest.mark.timeout(600, func_only=True)
async def test_second_prefill_group_is_removed_after_the_burst(service: Decoders, hasty: Rig, tables: Tables) -> None:
    async with stream_of(service.url, CALM_PER_S, WITHIN_S) as report:
        began = time.monotonic()
        decided = await after(began, "one group is enough", BACK_WITHIN_S, lambda: wanted(service) == 1)
        gone = await after(began, "one group is left", BACK_WITHIN_S, lambda: len(service.leaders("engine")) == 1)
        await asyncio.sleep(5)
    tables.setdefault(HEADING, []).extend([
        f"from the end of the burst until a group less is wanted, with the times of {HASTY}  {decided:.1f} s",
        f"until it is gone  {gone:.1f} s; {len(report.failed_answers)} of {len(report.answers)} requests failed",
    ])  # fmt: skip
    assert not report.failed_answers, report.failed_answers[0].error
