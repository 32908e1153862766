"""Tests in which a service on a real node is scaled to zero under traffic, and a request brings it back. They show what
clients see, and measure the time from the request until the first token.
"""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.conftest import Steps
from tests.node.serving.conftest import DIRECT, READY_WITHIN_S, tokens
from tests.support.rig import Rig
from tests.support.traffic import stream_of

NAME = "kimi-k2-tiny"
ROLES = ("engine", "decoder")
CALM_S = 5.0
HEALTH = ("/health", "/health_generate", "/v1/models", "/readiness", "/liveness")


@pytest.fixture(scope="module")
def asleep(serving: Rig, tiny: str) -> Iterator[str]:
    """Yield the URL of the service, which may be scaled to zero."""
    bounds = {"minReplicas": 0, "maxReplicas": 1}
    serving.patch("InferenceService", NAME, NAME, {"spec": dict.fromkeys(ROLES, bounds)})
    serving.wait("its scales", lambda: all(serving.get("RoleScale", NAME, f"{NAME}-{role}") for role in ROLES), 30)
    yield tiny
    one = {"minReplicas": 1, "maxReplicas": 1}
    serving.patch("InferenceService", NAME, NAME, {"spec": {**dict.fromkeys(ROLES, one), "scalingPolicy": None}})
    serving.ready(NAME, NAME, READY_WITHIN_S)


def ask(url: str, path: str = "/generate", method: str = "POST") -> tuple[int, dict[str, str], dict[str, Any]]:
    """Return status, headers and body of a response; status 0 if the connection is refused."""
    body = json.dumps({"text": "hello", "sampling_params": {"max_new_tokens": 4}}).encode() if method == "POST" else None
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"}, method=method)
    try:
        with DIRECT.open(request, timeout=30) as reply:
            return reply.status, dict(reply.headers), {}
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, dict(error.headers), json.loads(text) if text.startswith(b"{") else {}
    except OSError:
        return 0, {}, {}


def groups(rig: Rig) -> int:
    """Return the number of engine pods."""
    return sum(len(rig.all("Pod", NAME, f"component={role}")) for role in ROLES)


def answered(url: str) -> bool:
    """Return whether the registry answers."""
    status, headers, _ = ask(url, "/health", "GET")
    return status == 503 and "Retry-After" in headers


def zero(rig: Rig) -> dict[str, Any]:
    """Return the field `zero` of the status."""
    return dict((rig.get("InferenceService", NAME, NAME) or {})["status"].get("zero") or {})


@pytest.mark.timeout(400, func_only=True)
async def test_scaling_to_zero_loses_no_request_that_was_accepted(serving: Rig, asleep: str, steps: Steps) -> None:
    async with stream_of(asleep, 2.0) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        for role in ROLES:
            serving.cluster.kubectl("scale", "-n", NAME, f"rolescale/{NAME}-{role}", "--replicas=0")
        while not await asyncio.to_thread(answered, asleep):
            assert time.monotonic() - began < 120, "the registry does not answer"
            await asyncio.sleep(0.5)
        took = time.monotonic() - began
        await asyncio.sleep(CALM_S)
    with steps.measure("scaled to zero: no pod of an engine is left"):
        serving.wait("no engine", lambda: groups(serving) == 0, 120)
    broken = [answer.error for answer in report.failed_answers if not answer.error.startswith("503 ")]
    sent, failed = len(report.answers), len(report.failed_answers)
    steps.note("scaled to zero: the registry answers", f"{took:>8.1f} s  {failed} of {sent} requests got 503")
    assert not broken, f"requests were lost: {broken[:5]}"


@pytest.mark.timeout(200, func_only=True)
def test_clients_get_503_with_retry_after_at_zero_and_health_checks_do_not_wake(serving: Rig, asleep: str) -> None:
    time.sleep(25)  # requests of the last 20 s would wake the service
    policy = {"spec": {"scalingPolicy": {"wakeOnRequest": True}}}
    serving.patch("InferenceService", NAME, NAME, policy)
    for path in HEALTH:
        status, headers, _ = ask(asleep, path, "GET")
        assert (path, status, headers.get("Retry-After")) == (path, 503, "30")
    time.sleep(25)  # the operator reads the registry every 5 s
    assert groups(serving) == 0 and "since" in zero(serving)


@pytest.mark.timeout(500, func_only=True)
def test_request_wakes_both_roles(serving: Rig, asleep: str, steps: Steps) -> None:
    began = time.monotonic()
    status, headers, body = ask(asleep)
    assert (status, headers["Retry-After"], body["error"]["code"]) == (503, "30", "no_engine")
    serving.wait("both roles have pods again", lambda: groups(serving) >= 2, 60)
    woken = time.monotonic() - began
    refused = 0
    while (last := ask(asleep)[0]) != 200:
        refused += last == 0
        assert time.monotonic() - began < READY_WITHIN_S, f"no token after {READY_WITHIN_S} s: {last}"
        time.sleep(0.5)
    first = time.monotonic() - began
    assert refused == 0, "a connection was refused"
    serving.wait("the first token is in the status", lambda: "firstTokenAfterSeconds" in zero(serving).get("wake", {}), 60)
    wake = zero(serving)["wake"]
    steps.note("from the request at zero to the first token", f"{first:>8.1f} s  pods after {woken:.1f} s; {wake}")
    assert wake["by"] == "Request" and 0 < wake["servedAfterSeconds"] <= first + 10
    assert tokens(asleep, "hello")
