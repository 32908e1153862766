"""Tests on the real node that load on a real engine fires the alerts about engines in a real Prometheus, and that the
alerts clear when the load ends.

Durations of the rules are divided by ten, or as tests/controlplane/alerts/conftest.py states. Other thresholds are
unchanged.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import aiohttp
import pytest

from release import alerts
from tests.conftest import Tables
from tests.controlplane.alerts.conftest import OTHERS
from tests.node.conftest import Steps
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, address, remove, tokens
from tests.node.serving.test_agent import engine
from tests.support import yamls
from tests.support.prometheus import BY, Prometheus, divide_durations, joined, poll_until
from tests.support.rig import Rig
from tests.support.traffic import generate

WITHIN_S = 240.0
pytestmark = [ON_OUR_NODE, pytest.mark.timeout(READY_WITHIN_S + 3 * WITHIN_S, func_only=True)]
SPACE = "alerts-tiny"
CACHE = 1024
"""Number of tokens that fit into the engine's KV cache."""
FLAGS = (
    "--enable-metrics",
    f"--max-total-tokens={CACHE}",
    "--max-running-requests=2",
    # The engine sets its gauges with each prefill, and not in the moment between two requests, when the cache is free.
    "--decode-log-interval=10000",
)


class Load(NamedTuple):
    """A number of clients. Each sends its next request when the previous one is answered."""

    clients: int
    prompt: int
    """Number of tokens of the prompt. All requests have the same prompt, so the engine stores these tokens once as long as
    any request uses them.
    """
    answer: int
    """Number of generated tokens. Some clients ask for one or two more, so that not all requests end at the same time."""


LOADS: Mapping[str, Load] = {
    "OmeEngineQueue": Load(clients=110, prompt=8, answer=1),
    "OmeFirstTokenSlow": Load(clients=90, prompt=8, answer=400),
    "OmeCacheFull": Load(clients=4, prompt=CACHE - 14, answer=3),
}
"""Alert -> a load that fires only this alert. With the first load, requests wait in the queue for a short time. With the
others, the queue is short. Only the last one fills the cache.
"""


async def ask(url: str, load: Load) -> None:
    """Send requests until the task is cancelled or the time limit is reached. Then the connections are closed, and the
    engine aborts these requests.
    """

    async def client(number: int) -> None:
        options = {"temperature": 0, "max_new_tokens": load.answer + number % 3, "ignore_eos": True}
        while True:
            answer = await generate(session, url, "x" * load.prompt, WITHIN_S, sampling_params=options)
            assert not answer.error, answer.error

    many = aiohttp.TCPConnector(limit=0)
    async with asyncio.timeout(WITHIN_S), aiohttp.ClientSession(connector=many) as session, asyncio.TaskGroup() as clients:
        for number in range(load.clients):
            clients.create_task(client(number))


@asynccontextmanager
async def loaded(url: str, load: Load) -> AsyncIterator[asyncio.Task[None]]:
    """Apply load while the block runs. An error of the load is raised at the end of the block."""
    asking = asyncio.create_task(ask(url, load))
    try:
        yield asking
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


@pytest.fixture(scope="module")
def url(serving: Rig, steps: Steps) -> Iterator[str]:
    """Yield the URL of a service whose engine has a small KV cache."""
    runtime = engine()
    runtime["metadata"]["name"] = SPACE
    runner = runtime["spec"]["engineConfig"]["runner"]
    runner["args"] += FLAGS
    # It has to be set before anything imports prometheus_client, or else the metrics lack the counts of requests.
    runner["env"].append({"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/tmp"})
    serving.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}, runtime)
    try:
        with steps.measure("service with a small cache, apply to Ready"):
            serving.create(yamls.service(SPACE, SPACE, SPACE, "engine", model="kimi-k2-tiny"))
            serving.ready(SPACE, SPACE, READY_WITHIN_S)
        found = address(serving, SPACE, SPACE)
        serving.wait("tokens", lambda: tokens(found, "Hello", 1), 60)
        yield found
    finally:
        remove(serving, SPACE)
        serving.delete("ClusterServingRuntime", "", SPACE)


@pytest.fixture(scope="module")
def asked(serving: Rig, url: str) -> Iterator[Prometheus]:
    """Yield a Prometheus with divided durations that has scraped the operator and the engine."""
    with joined(serving.cluster, divide_durations(alerts.rules(), BY, OTHERS)) as made:
        for series in ("ome_leader", f'sglang:num_queue_reqs{{namespace="{SPACE}"}}'):
            poll_until(f"{series} is there", lambda series=series: made.ask(series), 60)
        yield made


async def seen(what: str, holds: Callable[[], bool]) -> float:
    """Wait until the condition holds, and return the seconds that it took."""
    began = time.monotonic()
    await asyncio.to_thread(poll_until, what, holds, WITHIN_S, 1.0)
    return time.monotonic() - began


@pytest.mark.parametrize("alert", LOADS)
async def test_load_fires_its_alert_and_the_alert_clears_afterwards(
    url: str, asked: Prometheus, alert: str, tables: Tables
) -> None:
    """Load on the engine fires the alert that belongs to it, and the alert clears when the load ends. No other alert fires
    from the beginning of the load until all alerts have cleared.
    """
    await seen("nothing fires before", lambda: not asked.alerts())
    began = time.monotonic()
    async with loaded(url, LOADS[alert]) as asking:
        fires = await seen(f"{alert} fires", lambda: asking.done() or alert in asked.alerts())
    clears = await seen("nothing fires any more", lambda: not asked.alerts())
    took = f"divided by {OTHERS.get(alert, BY)} {fires:>6.0f} s to fire {clears:>6.0f} s to clear"
    tables.setdefault("load on an engine, and alerts", []).append(f"{alert:<28}{took}")
    told = asked.ask(f'max_over_time(ALERTS{{alertstate="firing"}}[{int(time.monotonic() - began) + 1}s])')
    assert {each["metric"]["alertname"] for each in told} == {alert}
