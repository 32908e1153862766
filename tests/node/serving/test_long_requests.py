"""Tests in which a decode group ends while requests run on it for a minute and longer: it is removed by scaling down,
replaced by a rollout, or evicted. None of the requests fails.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import aiohttp
import pytest

from ome_operator.names import public_digest
from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import remove
from tests.node.serving.decoders import Decoders, Pod, after, derived, name_of, replace_arg
from tests.support.rig import Rig, path

NAME = "kimi-k2-tiny-long"
REQUESTS, AT_LEAST_S = 200, 60.0
ARRIVE_WITHIN_S = 40.0
ENDS_AFTER_S = 25.0
LONGEST_S = 400
MOST_TOKENS = 3_900
"""Maximum number of tokens that a request asks for. The model's context has 4,096 tokens, which also contain the prompt."""
TRIAL, TRIAL_TOKENS = 100, 48


class Long(NamedTuple):
    """The result of a request."""

    began: float
    seconds: float
    tokens: int
    error: str


def patient(runtime: dict[str, Any]) -> None:
    """Let a runtime serve many long requests at the same time."""
    for role in ("engineConfig", "decoderConfig"):
        config = runtime["spec"][role]
        config["timeoutSeconds"] = LONGEST_S
        replace_arg(config, f"--max-total-tokens={REQUESTS * 4096}")
        replace_arg(config, f"--max-running-requests={REQUESTS}")
    router = runtime["spec"]["routerConfig"]
    router["terminationGracePeriodSeconds"] = LONGEST_S + 25
    replace_arg(router, f"--request-timeout-secs={LONGEST_S}")
    replace_arg(router, f"--shutdown-grace-period-secs={LONGEST_S}")


@pytest.fixture(scope="module")
def service(serving: Rig, steps: Steps) -> Iterator[Decoders]:
    """Yield a service with two decode groups that serves requests of minutes."""
    found = derived(serving, NAME, steps, patient)
    with steps.measure("one more decode group"):
        found.scale(2)
    yield found
    remove(serving, NAME)


async def send(session: aiohttp.ClientSession, url: str, number: int, tokens: int, wait: float = 0.0) -> Long:
    """Send a request for this number of tokens, after some seconds."""
    await asyncio.sleep(wait)
    began = time.monotonic()
    limits = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    try:
        async with session.post(f"{url}/generate", json={"text": f"story {number}", "sampling_params": limits}) as reply:
            said = await reply.json(content_type=None) if reply.status == 200 else {}
            error = "" if reply.status == 200 else f"{reply.status} {(await reply.text())[:200]}"
    except (aiohttp.ClientError, TimeoutError, ValueError) as problem:
        said, error = {}, repr(problem)
    count = int(said.get("meta_info", {}).get("completion_tokens", 0))
    return Long(began, time.monotonic() - began, count, error)


def scale_away(service: Decoders, leaving: Pod) -> Callable[[], bool]:
    """Reduce the decode groups to one, and return a function that returns whether only one exists. The newest group, to
    which `leaving` belongs, is removed.
    """
    body = {"spec": {"decoder": {"minReplicas": 1, "maxReplicas": 1}}}
    service.rig.patch("InferenceService", NAME, NAME, body)
    return lambda: len(service.leaders()) == 1


def roll_out(service: Decoders, leaving: Pod) -> Callable[[], bool]:
    """Begin a rollout with a complete second set of groups, and return a function that returns whether it has ended."""
    old = str((service.rig.get("InferenceService", NAME, NAME) or {})["status"]["revision"])
    env = [{"name": "TRY", "value": old}]
    body = {"spec": {"rollout": {"blueGreen": {}}, "decoder": {"runner": {"env": env}}}}
    service.rig.patch("InferenceService", NAME, NAME, body)

    def ended() -> bool:
        found = (service.rig.get("InferenceService", NAME, NAME) or {})["status"]["revision"]
        return found != old and service.rig.condition(NAME, NAME, "RolledOut").get("status") == "True"

    return ended


def evict(service: Decoders, leaving: Pod) -> Callable[[], bool]:
    """Evict a leader as `kubectl drain` does, and return a function that returns whether its pod is gone."""
    name, uid = name_of(leaving), leaving["metadata"]["uid"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAME}}
    service.rig.api.request("POST", f"{path('Pod', NAME, name)}/eviction", body)
    return lambda: ((service.rig.get("Pod", NAME, name) or {}).get("metadata") or {}).get("uid") != uid


@pytest.mark.timeout(1200, func_only=True)
@pytest.mark.parametrize(
    ("what", "end"), [("removed by scaling down", scale_away), ("replaced by a rollout", roll_out), ("evicted", evict)]
)
async def test_minute_long_requests_do_not_fail_when_their_group_is_removed(
    service: Decoders, tables: Tables, what: str, end: Callable[[Decoders, Pod], Callable[[], bool]]
) -> None:
    leaving = service.leaders()[-1]
    connector, limit = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(LONGEST_S)
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
        trial = await asyncio.gather(*(send(session, service.url, each, TRIAL_TOKENS) for each in range(TRIAL)))
        per_token = statistics.median(one.seconds for one in trial) / TRIAL_TOKENS
        tokens = min(MOST_TOKENS, int(2 * AT_LEAST_S / per_token))
        waits = [ARRIVE_WITHIN_S * each / REQUESTS for each in range(REQUESTS)]
        running = [asyncio.create_task(send(session, service.url, each, tokens, wait)) for each, wait in enumerate(waits)]
        await asyncio.sleep(ENDS_AFTER_S)
        began, on_it = time.monotonic(), running_on(service, leaving["metadata"]["uid"])
        ended = await asyncio.to_thread(end, service, leaving)
        gone = await after(began, what, LONGEST_S + 200, ended)
        done = await asyncio.gather(*running)
    failed = [one for one in done if one.error or one.tokens != tokens]
    took = sorted(one.seconds for one in done)
    tables.setdefault("a decode group of two ends under long requests", []).append(
        f"{what}: {len(failed)} of {len(done)} requests failed, {tokens} tokens each, {took[0]:.0f} to {took[-1]:.0f} s "
        f"(median {statistics.median(took):.0f} s); {on_it:.0f} requests ran on the group; ended after {gone:.1f} s"
    )
    assert not failed, failed[0]
    assert took[len(took) // 10] >= AT_LEAST_S and on_it > 0, "fewer than nine of ten requests ran for a minute"
    await asyncio.to_thread(service.scale, 2)


def running_on(service: Decoders, uid: str) -> float:
    """Return the number of requests that run in a leader, as its registry reports it."""
    (leader,) = [one for one in service.summary()["leaders"] if one["id"] == public_digest(uid)]
    return float(leader["load"]["running"])
