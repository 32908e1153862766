"""Tests in which real routers and engines are replaced under continuous traffic: no request fails, and none is sent to pods
of two revisions.

A router sends a request to one prefill and one decode group of its list. So the lists of all routers are read continuously,
and a router may only list pods of its own revision.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.node.conftest import Steps
from tests.node.serving.conftest import READY_WITHIN_S
from tests.node.serving.test_faults import CALM_S, PER_SECOND, TINY, ready_leaders, scale, workers
from tests.support.pod_history import recording
from tests.support.rig import Rig
from tests.support.traffic import stream_of

LOOK_S = 0.5
ROLLED_WITHIN_S = 420.0


class Lists:
    """The workers that routers have listed, and the revisions of the pods to which their addresses belonged."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.revisions: dict[str, set[str]] = {}
        """Address of an engine -> revisions of the engine pods that have had this address."""
        self.seen: set[tuple[str, str]] = set()
        """(revision of a router, address that it listed)."""
        self.looks = 0

    def look(self) -> None:
        """Read the list of every router once."""
        pods = self._rig.all("Pod", TINY)
        for pod in pods:
            labels, address = pod["metadata"]["labels"], pod["status"].get("podIP")
            if labels["component"] != "router" and address:
                self.revisions.setdefault(address, set()).add(labels["ome.io/revision"])
        for pod in pods:
            labels, address = pod["metadata"]["labels"], pod["status"].get("podIP")
            if labels["component"] != "router" or not address:
                continue
            with contextlib.suppress(OSError, ValueError):  # the router is starting or terminating
                told = workers(self._rig, address, timeout=2)
                listed = {one["url"].split("/")[2].partition(":")[0] for one in told["workers"]}
                self.seen |= {(labels["ome.io/revision"], one) for one in listed}
                self.looks += 1

    @property
    def strangers(self) -> list[tuple[str, str]]:
        """Return (revision of the router, address) for each address that a router listed and that belonged to a pod of
        another revision.
        """
        return [(router, one) for router, one in self.seen if router not in self.revisions.get(one, {router})]


@asynccontextmanager
async def read(rig: Rig) -> AsyncIterator[Lists]:
    """Read the routers' lists while the block runs."""
    lists, over = Lists(Rig(rig.cluster)), asyncio.Event()  # with a connection of its own

    async def again_and_again() -> None:
        while not over.is_set():
            await asyncio.to_thread(lists.look)
            await asyncio.sleep(LOOK_S)

    task = asyncio.create_task(again_and_again())
    try:
        yield lists
    finally:
        over.set()
        await task


def rollout(rig: Rig, strategy: dict[str, Any], number: int) -> str:
    """Set the strategy and change a variable of prefill, which creates a new revision. Return the previous revision."""
    found = rig.get("InferenceService", TINY, TINY)
    assert found is not None
    block = dict.fromkeys(("rollingUpdate", "blueGreen", "recreate")) | strategy
    env = [{"name": "TRY", "value": str(number)}]
    rig.patch("InferenceService", TINY, TINY, {"spec": {"rollout": block, "engine": {"runner": {"env": env}}}})
    return str(found["status"]["revision"])


def rolled(rig: Rig, old: str) -> bool:
    """Return whether the rollout to another revision is complete, and no other revision is left."""
    found = (rig.get("InferenceService", TINY, TINY) or {})["status"]["revision"]
    return found != old and "→" not in found and rig.condition(TINY, TINY, "RolledOut").get("status") == "True"


async def under_traffic(rig: Rig, url: str, steps: Steps, what: str, strategy: dict[str, Any], groups: int) -> None:
    """Roll out under traffic, record the results, and check that no request failed and that enough groups served."""
    wanted = {"engine": groups, "decoder": groups}
    with recording(rig, TINY) as film:
        async with read(rig) as lists, stream_of(url, PER_SECOND) as report:
            await asyncio.sleep(CALM_S)
            began = time.monotonic()
            old = await asyncio.to_thread(rollout, rig, strategy, groups)
            await asyncio.to_thread(rig.wait, what, lambda: rolled(rig, old), ROLLED_WITHIN_S)
            took = time.monotonic() - began
            await asyncio.sleep(CALM_S)
    every = film.capacity(TINY, wanted)
    lowest = min(every[next(number for number, one in enumerate(every) if one >= 1.0) :])
    failed = f"{len(report.failed_answers)} of {len(report.answers)} requests failed"
    mixed = f"{len(lists.strangers)} strangers in {lists.looks} lists of routers"
    steps.note(what, f"{took:>8.1f} s; {failed}; p99 {report.percentile(0.99):.1f} s; {mixed}; at least {lowest:.2f} served")
    assert not report.failed_answers, [one.error for one in report.failed_answers[:3]]
    assert len({router for router, _ in lists.seen}) == 2 and not lists.strangers
    assert lowest >= (0.5 if groups > 1 else 1.0)


@pytest.mark.timeout(600, func_only=True)
async def test_blue_green_loses_no_request(serving: Rig, tiny: str, steps: Steps) -> None:
    await under_traffic(serving, tiny, steps, "blueGreen of 1+1 groups", {"blueGreen": {}}, 1)


@pytest.mark.timeout(900, func_only=True)
async def test_a_rolling_update_loses_no_request(serving: Rig, tiny: str, steps: Steps) -> None:
    """Two prefill and two decode groups are replaced by a rolling update without any spare group, one of each role at a
    time. No request fails.
    """
    await asyncio.to_thread(scale, serving, 2)
    try:
        await asyncio.to_thread(serving.wait, "four leaders", lambda: len(ready_leaders(serving)) == 4, READY_WITHIN_S)
        await asyncio.to_thread(serving.ready, TINY, TINY, READY_WITHIN_S)
        await under_traffic(serving, tiny, steps, "rollingUpdate of 2+2 groups", {"rollingUpdate": {}}, 2)
    finally:
        await asyncio.to_thread(scale, serving, 1)
        await asyncio.to_thread(serving.wait, "two leaders", lambda: len(ready_leaders(serving)) == 2, READY_WITHIN_S)
