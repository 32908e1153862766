"""Test that a leader is drained until its running requests have ended, with a real router, its registry, the operator's
requests for the summary, and the operator's decision. Only the engines and the API server are simulated.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial

from ome_operator import keys, names
from ome_operator.controllers.router_pages import DirectPages
from ome_operator.controllers.telemetry import Telemetry
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child, Pod, Ref
from ome_operator.core.observed.slices import Slice
from ome_operator.core.render import meta
from ome_operator.core.rollout.drain import NOTICE, Drain, retain_groups
from tests.router.conftest import REVISION, SERVICE, Stage, address
from tests.support.waiting import wait_until

P, D, E = address(11), address(21), address(22)
REQUESTS = 40
STEM = names.object_prefix(SERVICE, keys.DECODER, REVISION)
LIMIT = 120.0


def pod(name: str, component: str, uid: str, group: int, **annotations: str) -> Pod:
    """Return a pod as the operator knows it."""
    ranks = {keys.GROUP_INDEX: str(group), keys.POD_INDEX: "0", keys.WORKER_INDEX: "0"}
    labels = {**meta.labels(SERVICE, component, REVISION), **ranks}
    owner = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set", "uid": f"set-{group}", "controller": True}]
    metadata = {"namespace": "team", "name": name, "uid": uid, "labels": labels, "annotations": annotations}
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    state = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    status |= {"containerStatuses": [state]}
    spec = {"containers": [{"name": "main"}]}
    return from_api.pod({"metadata": {**metadata, "ownerReferences": owner}, "spec": spec, "status": status})


def leader_set(group: int) -> Child:
    """Return the StatefulSet of a group's leader."""
    labels = {**meta.labels(SERVICE, keys.DECODER, REVISION), keys.WORKER_INDEX: "0", keys.GROUP_INDEX: str(group)}
    name = names.leader(STEM, str(group))
    return Child("StatefulSet", "team", name, f"set-{group}", 1, "u", labels, "h", "h", False, 1, "", None)


class Operator:
    """The part of the operator that reads the summaries of registries, and decides when a leader is stopped."""

    def __init__(self, stage: Stage) -> None:
        self.router, self.dirty, self.mark = pod("router", keys.ROUTER, "router", 0), list[Ref](), ""
        wall = lambda: datetime.now(UTC)  # noqa: E731
        self.opened = partial(DirectPages, stage.probe)
        self._telemetry = Telemetry(lambda: [self.router], self.dirty.append, wall, 5.0, self.opened)

    async def stops(self) -> bool:
        """Read the registry's summary once, and return whether group 1 may be stopped now."""
        async with self.opened() as pages:
            await self._telemetry.walk(pages)
        leaders = [pod("d-0-0", keys.DECODER, "uid-d-0", 0)]
        leaders.append(pod("d-1-0", keys.DECODER, "uid-d-1", 1, **{keys.DRAINING: self.mark}))
        pods = (*leaders, self.router)
        drain = Drain(self._telemetry.drains(pods), LIMIT)
        found = Slice(REVISION, (leader_set(0), leader_set(1)), pods)
        return 1 not in retain_groups(keys.DECODER, (0,), found, datetime.now(UTC), drain=drain).numbers


async def test_leader_is_kept_until_its_last_request_ends(stage: Stage) -> None:
    body = {"text": "held", "sampling_params": {}}
    requests = [asyncio.create_task(stage.session.post(f"{stage.url}/generate", json=body)) for _ in range(REQUESTS)]

    async def all_run() -> bool:
        return stage.engines[D].running + stage.engines[E].running == REQUESTS

    await wait_until(all_run, within=10)
    assert stage.engines[E].running > 0, "otherwise the test proves nothing"
    operator = Operator(stage)
    operator.mark = datetime.now(UTC).isoformat(timespec="seconds")
    stage.api.run("d-1", "decoder", E, **{keys.DRAINING: operator.mark})
    await stage.lists(P, D, within=7)
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < NOTICE + 10:
        assert not await operator.stops(), "the leader still has requests, even after the time of notice"
        if asyncio.get_running_loop().time() - began < NOTICE:
            operator.dirty.clear()  # The durations of the leaders' starts become known only once.
        await asyncio.sleep(2)
    assert not operator.dirty, "only numbers have changed"
    for engine in stage.engines.values():
        engine.released.set()
    took = await wait_until(operator.stops, within=25)
    assert operator.dirty == [Ref("InferenceService", "team", SERVICE)]
    answers = [await each for each in requests]
    assert [each.status for each in answers] == [200] * REQUESTS
    print(f"{REQUESTS} requests, none failed; the leader may be stopped {took:.1f} s after the last one")
