"""The scheduler of a real decode leader is stopped under traffic, beside another decode leader: seconds until it is out of
the router, until its group is recycled, and until no request fails any more.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ome_operator.names import mark
from tests.node.conftest import Steps
from tests.node.serving.conftest import DIRECT, MINUTES, READY_WITHIN_S
from tests.node.serving.test_recovery import SEND, first_good
from tests.support.rig import Rig, is_ready
from tests.support.traffic import stream_of

pytestmark = MINUTES
NAME = "kimi-k2-tiny"
PER_SECOND = 2.0
CALM_S = 10.0
OUT_WITHIN_S, DECIDED_WITHIN_S, BACK_WITHIN_S = 20.0, 75.0, 240.0


@pytest.fixture(scope="module")
def decoders(serving: Rig, tiny: str, steps: Steps) -> Iterator[str]:
    """Yield the URL of the service with one prefill and two decode groups."""
    with steps.measure("one more decode group"):
        scale(serving, 2)
        serving.wait("two decode leaders", lambda: len(listed(serving)) == 2, READY_WITHIN_S)
    yield tiny
    scale(serving, 1)
    serving.wait("one decode leader", lambda: len(leaders(serving)) == 1, 120)


def scale(rig: Rig, groups: int) -> None:
    """Set the number of decode groups."""
    rig.patch("InferenceService", NAME, NAME, {"spec": {"decoder": {"minReplicas": groups, "maxReplicas": groups}}})


def leaders(rig: Rig) -> list[dict[str, Any]]:
    """Return the decode leaders that are ready and not being deleted."""
    pods = rig.all("Pod", NAME, "component=decoder")
    return [pod for pod in pods if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")]


def reported(rig: Rig) -> list[dict[str, Any]]:
    """Return what the router's registry reports about each decode leader."""
    for pod in rig.all("Pod", NAME, "component=router"):
        if is_ready(pod):
            with DIRECT.open(f"http://{pod['status']['podIP']}:29001/summary", timeout=5) as answer:
                return [leader for leader in json.loads(answer.read())["leaders"] if leader["role"] == "decode"]
    return []


def listed(rig: Rig) -> set[str]:
    """Return the marks of the decode leaders that the router lists."""
    return {leader["id"] for leader in reported(rig) if leader["listed"]}


def group(rig: Rig, pod: str) -> dict[str, Any]:
    """Return the entry of a group in the status."""
    found = (rig.get("InferenceService", NAME, NAME) or {}).get("status", {}).get("groups", ())
    return next((one for one in found if one["name"] == pod), {})


def send(rig: Rig, pod: str, signal: str) -> None:
    """Send a signal to the scheduler of the leader."""
    words = ("exec", "-n", NAME, pod, "-c", "ome-container", "--", "python3", "-c", SEND.replace("{signal}", signal))
    assert "sent" in rig.cluster.kubectl(*words), f"no scheduler in {pod}"


async def after(began: float, what: str, within: float, test: Callable[[], bool]) -> float:
    """Wait for a condition, and return the seconds from `began` until it holds."""
    while not await asyncio.to_thread(test):
        assert time.monotonic() - began < within, f"not within {within:.0f} s: {what}"
        await asyncio.sleep(0.25)
    return time.monotonic() - began


@pytest.mark.timeout(500, func_only=True)
async def test_a_stopped_scheduler_is_out_of_the_router_and_recycled(serving: Rig, decoders: str, steps: Steps) -> None:
    pod = min(leaders(serving), key=lambda one: str(one["metadata"]["name"]))
    name, leader = str(pod["metadata"]["name"]), mark(pod["metadata"]["uid"])
    before = group(serving, name)
    async with stream_of(decoders, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        await asyncio.to_thread(send, serving, name, "SIGSTOP")
        out = await after(began, "out of the router", BACK_WITHIN_S, lambda: leader not in listed(serving))
        recycled = lambda: group(serving, name).get("recycles", 0) > before.get("recycles", 0)  # noqa: E731
        decided = await after(began, "recycled", BACK_WITHIN_S, recycled)
        back = await after(began, "two decode leaders", BACK_WITHIN_S, lambda: len(listed(serving)) == 2)
        await asyncio.sleep(CALM_S)
    lost = f"{len(report.failed)} of {len(report.answers)} requests failed"
    tokens = first_good(report, began)
    said = f"out {out:.1f} s   decided {decided:.1f} s   good tokens {tokens:.1f} s   both serve {back:.1f} s   {lost}"
    steps.note("SIGSTOP of a decode leader's scheduler", said)
    assert out < OUT_WITHIN_S and decided < DECIDED_WITHIN_S, said


@pytest.mark.timeout(300, func_only=True)
async def test_a_scheduler_that_continues_is_listed_again_and_not_recycled(
    serving: Rig, decoders: str, steps: Steps
) -> None:
    pod = max(leaders(serving), key=lambda one: str(one["metadata"]["name"]))
    name, leader = str(pod["metadata"]["name"]), mark(pod["metadata"]["uid"])
    before = group(serving, name)
    began = time.monotonic()
    await asyncio.to_thread(send, serving, name, "SIGSTOP")
    out = await after(began, "out of the router", BACK_WITHIN_S, lambda: leader not in listed(serving))
    continued = time.monotonic()
    await asyncio.to_thread(send, serving, name, "SIGCONT")
    back = await after(continued, "listed again", 60.0, lambda: leader in listed(serving))
    steps.note("SIGSTOP, then SIGCONT of a decode leader's scheduler", f"out {out:.1f} s   listed again {back:.1f} s")
    assert group(serving, name).get("recycles", 0) == before.get("recycles", 0)
    assert out < OUT_WITHIN_S
