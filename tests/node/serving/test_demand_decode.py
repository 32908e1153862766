"""Tests of decode engines with the class Demand on the real node: a burst of requests with long answers adds a second decode
group, which is removed after the burst. No request fails (docs/demand.md).
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import fmean

import pytest

from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import remove
from tests.node.serving.decoders import Decoders, after, derived
from tests.node.serving.test_demand import (
    BACK_WITHIN_S,
    CALM_PER_S,
    DECIDED_WITHIN_S,
    DEMAND,
    HASTY,
    SERVED_WITHIN_S,
    WITHIN_S,
    busy,
    narrow,
    scaling,
)
from tests.support.rig import Rig
from tests.support.traffic import stream_of

pytestmark = [pytest.mark.usefixtures("ours")]
NAME = "kimi-k2-tiny-answers"
LONG = {"sampling_params": {"temperature": 0, "max_new_tokens": 64, "ignore_eos": True}}
LEARN_S = 130.0
"""Seconds of the first burst. The operator measures prefill and decode over a minute."""
READ_S, EVERY_S = 50.0, 2.0
"""The registry states the output tokens per second over about `READ_S` seconds. Running requests are read every `EVERY_S`
seconds.
"""
QUIET_S, DECIDES_S = 90.0, 30.0
"""QUIET_S is how many seconds without requests follow the first burst. The rates that the operator uses are means over a
minute and up to 20 s old, so a shorter pause would let the burst count as present load. DECIDES_S is how many seconds the
operator gets to decide with the new target.
"""
ABOVE = 1.1
"""The ratio of the target to the time between tokens during the first burst. With a smaller ratio, the target might be
unreachable. With a ratio above 1 / 0.9, the burst would count as served in time (`core/demand/curves.py`), and no group
would be added.
"""
FEW_CLIENTS, FEW_S = 2, 60.0
"""Number of clients after the burst, and the seconds for which they send requests. The operator then measures decode with
few requests, too.
"""
HEADING = "class Demand with real decode engines"


@pytest.fixture(scope="module")
def service(serving: Rig, steps: Steps) -> Iterator[Decoders]:
    """Yield a service whose decode groups follow the demand between one and two, and that has one prefill group. Its target
    for the time between tokens is met by any load.
    """
    found = derived(serving, NAME, steps, narrow)
    decoder = {"minReplicas": 1, "maxReplicas": 2, "autoscaler": {"class": "Demand"}}
    serving.patch("InferenceService", NAME, NAME, {"spec": {"decoder": decoder, "scalingPolicy": {"demand": DEMAND}}})
    serving.wait("the demand decides", lambda: scaling(found).get("applied") == {"decoder": 1}, 90)
    yield found
    remove(serving, NAME)


def wanted(service: Decoders) -> int:
    """Return the wanted number of decode groups."""
    return int((scaling(service).get("applied") or {}).get("decoder", 0))


async def seconds_between_tokens(service: Decoders) -> float:
    """Return the mean time between tokens of the decode group in seconds: its running requests, divided by its output tokens
    per second (Little's law). Takes `READ_S` seconds, in which the load should be steady.
    """
    running = list[float]()
    for _ in range(int(READ_S / EVERY_S)):
        found = [one for one in service.summary()["leaders"] if one["role"] == "decode"]
        assert len(found) == 1, (found, scaling(service))
        running.append(found[0]["load"]["running"])
        await asyncio.sleep(EVERY_S)
    return fmean(running) / float(found[0]["work"]["outputTokens"])


@pytest.mark.timeout(1000, func_only=True)
async def test_a_burst_of_long_answers_adds_a_second_decode_group(service: Decoders, tables: Tables) -> None:
    """During a first burst the operator measures both roles, and the test derives a target from the time between tokens. A
    second burst of the same size then adds a decode group. The operator runs as the chart installs it, so the measured times
    are real.
    """
    async with busy(service.url, **LONG) as first:
        await asyncio.sleep(LEARN_S - READ_S)
        between = await seconds_between_tokens(service)
    assert wanted(service) == 1
    target = {"timeBetweenTokens": f"{round(ABOVE * between * 1000)}ms"}
    await asyncio.sleep(QUIET_S)  # with the target, the requests of the first burst would need a second group
    service.rig.patch("InferenceService", NAME, NAME, {"spec": {"scalingPolicy": {"demand": target}}})
    await asyncio.sleep(DECIDES_S)
    assert wanted(service) == 1
    async with busy(service.url, **LONG) as second:
        began = time.monotonic()
        decided = await after(began, "a second group is wanted", DECIDED_WITHIN_S, lambda: wanted(service) == 2)
        served = await after(began, "the router lists both", SERVED_WITHIN_S, lambda: len(service.listed()) == 2)
        await asyncio.sleep(5)
    failed, sent = [*first.failed_answers, *second.failed_answers], len(first.answers) + len(second.answers)
    tables.setdefault(HEADING, []).extend([
        f"time between tokens during the first burst {between * 1000:.0f} ms; the target is {target['timeBetweenTokens']}",
        f"from the second burst until the decision  {decided:>6.1f} s",
        f"from the same burst until the router sends requests to the second group  {served:>6.1f} s",
        f"{len(failed)} of {sent} requests failed; {scaling(service).get('why')}",
    ])  # fmt: skip
    assert not failed, failed[0].error


@pytest.mark.timeout(700, func_only=True)
async def test_the_second_decode_group_is_removed_after_the_burst(service: Decoders, hasty: Rig, tables: Tables) -> None:
    """A few clients, and then even fewer requests, remain after the burst. One of the two decode groups is removed, and no
    request fails.
    """
    async with busy(service.url, FEW_CLIENTS, **LONG) as few:
        await asyncio.sleep(FEW_S)
    async with stream_of(service.url, CALM_PER_S, WITHIN_S) as calm:
        began = time.monotonic()
        decided = await after(began, "one group is enough", BACK_WITHIN_S, lambda: wanted(service) == 1)
        gone = await after(began, "one group exists", BACK_WITHIN_S, lambda: len(service.leaders("decoder")) == 1)
        await asyncio.sleep(5)
    failed, sent = [*few.failed_answers, *calm.failed_answers], len(few.answers) + len(calm.answers)
    tables.setdefault(HEADING, []).extend([
        f"from the end of the load until a group less is wanted, with the times of {HASTY}  {decided:.1f} s",
        f"until it is gone  {gone:.1f} s; {len(failed)} of {sent} requests failed",
    ])  # fmt: skip
    assert not failed, failed[0].error
