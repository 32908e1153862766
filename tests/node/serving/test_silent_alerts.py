"""Tests of alerts on the real node, with real engines and a real Prometheus. An engine that stops, and a broken link
between two engines, fire their alerts, and the alerts clear after the repair.

Durations of the rules are divided as in test_engine_alerts.py.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from release import alerts
from tests.conftest import Tables
from tests.controlplane.alerts.conftest import OTHERS
from tests.node.conftest import Steps
from tests.node.serving import decoders
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, remove
from tests.node.serving.decoders import Decoders, derived, name_of, send
from tests.node.serving.test_engine_alerts import WITHIN_S, seen
from tests.support.prometheus import BY, Prometheus, divide_durations, joined, poll_until
from tests.support.rig import Rig
from tests.support.traffic import stream_of

pytestmark = [ON_OUR_NODE, pytest.mark.timeout(2 * READY_WITHIN_S + 3 * WITHIN_S, func_only=True)]
NAME = "kimi-k2-tiny-watched"
PER_SECOND = 2.0


def without_generation(runtime: dict[str, Any]) -> None:
    """Let the health check of the decode engines succeed as long as their HTTP server answers, so that an engine whose
    scheduler has stopped stays Ready.
    """
    env = {"name": "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "value": "false"}
    runtime["spec"]["decoderConfig"]["runner"].setdefault("env", []).append(env)


@pytest.fixture(scope="module")
def service(serving: Rig, ours: None, steps: Steps) -> Iterator[Decoders]:
    """Yield a service with one prefill and two decode groups, whose silent groups are reported and not recycled."""
    found = derived(serving, NAME, steps, without_generation)
    try:
        found.scale(2, silence="Observe")
        yield found
    finally:
        remove(serving, NAME)
        serving.delete("ClusterServingRuntime", "", f"{NAME}-rt")


@pytest.fixture(scope="module")
def asked(serving: Rig, service: Decoders) -> Iterator[Prometheus]:
    """Yield a Prometheus with divided durations that has scraped the operator."""
    with joined(serving.cluster, divide_durations(alerts.rules(), BY, OTHERS)) as made:
        poll_until("ome_leader is there", lambda: made.ask("ome_leader"), 60)
        yield made


async def fires_and_clears(
    service: Decoders, asked: Prometheus, alert: str, begin: Callable[[], None], end: Callable[[], None], tables: Tables
) -> None:
    """Check that the alert, and no other one, fires after `begin` under traffic, and that it clears after `end`. The same
    pods serve before and after.
    """
    leaders = [*map(name_of, service.leaders())]
    await seen("nothing fires before", lambda: not asked.alerts())
    began = time.monotonic()
    async with stream_of(service.url, PER_SECOND) as report:
        await asyncio.to_thread(begin)
        fires = await seen(f"{alert} fires", lambda: alert in asked.alerts())
        phases = sorted(group["phase"] for group in service.groups() if group["component"] == "decoder")
        await asyncio.to_thread(end)
        clears = await seen("nothing fires any more", lambda: not asked.alerts())
        await seen("both decode leaders are listed", lambda: service.has(2))
    lost = f"{len(report.failed_answers)} of {len(report.answers)} requests failed"
    took = f"divided by {BY} {fires:>6.0f} s to fire {clears:>6.0f} s to clear   {lost}   {phases}"
    tables.setdefault("silent engines and broken links, and alerts", []).append(f"{alert:<28}{took}")
    print(took)
    told = asked.ask(f'max_over_time(ALERTS{{alertstate="firing"}}[{int(time.monotonic() - began) + 1}s])')
    assert {each["metric"]["alertname"] for each in told} == {alert}
    assert [*map(name_of, service.leaders())] == leaders and service.recycles() == 0


async def test_stopped_engine_fires_the_silent_alert(service: Decoders, asked: Prometheus, tables: Tables) -> None:
    """The scheduler of a decode leader is stopped with SIGSTOP. OmeGroupsSilent fires, and clears after SIGCONT."""
    leader = service.leaders()[0]

    def stop() -> None:
        send(leader, "^sglang::scheduler", signal.SIGSTOP)

    def resume() -> None:
        send(leader, "^sglang::scheduler", signal.SIGCONT)

    await fires_and_clears(service, asked, "OmeGroupsSilent", stop, resume, tables)


async def test_broken_link_fires_the_transfer_alert(service: Decoders, asked: Prometheus, tables: Tables) -> None:
    """The prefill engine's connections for KV caches to one of two decode engines are refused. OmeTransfersFail fires, and
    clears after the repair.
    """
    (prefill,), decode = service.leaders("engine"), service.leaders()[0]

    def refuse() -> None:
        decoders.cut_transfers(prefill, decode, "REJECT", "--reject-with", "tcp-reset")

    await fires_and_clears(service, asked, "OmeTransfersFail", refuse, lambda: decoders.mend(prefill), tables)
