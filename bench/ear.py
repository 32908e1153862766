"""Measures the cost of the operator's requests for the summaries of routers, in this process and without a cluster. The
registries are simulated by another process, which answers on many loopback addresses.
"""

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.processes import resident_mib
from bench.results import Heard
from ome_local import ports
from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.router_pages import DirectPages
from ome_operator.controllers.telemetry import Telemetry, owned_routers
from ome_operator.core.observed.objects import Deps, Pod, Ref
from ome_operator.core.render import meta
from ome_operator.names import public_digest, slice_mark

INTERVAL = 5.0
NAMESPACES, PODS, LEADERS = 50, 10, 4
"""Number of namespaces, of engine pods of each service, and of the leaders among them."""
WARM_UP = 12.0


async def measure(routers: int, seconds: float) -> Heard:
    """Measure with `routers` services of ten engine pods and a router each, for `seconds` seconds after the first round of
    requests.
    """
    cluster, port = ClusterCache(Deps()), ports.choose(1)[0]
    for number in range(routers):
        _service(cluster, number)
    dirty = list[Ref]()
    opened = partial(DirectPages, port)
    telemetry = Telemetry(lambda: owned_routers(cluster), dirty.append, lambda: datetime.now(UTC), INTERVAL, opened)
    pods = list(owned_routers(cluster))
    gc.collect()
    gc.freeze()  # as the operator does when it begins to work
    before = _memory()
    async with _registries(port):
        running = asyncio.create_task(telemetry.run())
        await asyncio.sleep(WARM_UP)
        cpu, began, oldest, fresh = time.process_time(), time.monotonic(), 0.0, routers
        while time.monotonic() - began < seconds:
            await asyncio.sleep(0.5)
            oldest, fresh = max(oldest, _oldest(telemetry, pods)), min(fresh, int(telemetry.states()["fresh",]))
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        after = _memory()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    gc.unfreeze()
    return Heard(routers, fresh, share, after - before, oldest, len(dirty))


def _service(cluster: ClusterCache, number: int) -> None:
    """Put a service with its Deployment and pods into the cache."""
    name, namespace = f"s{number}", f"n{number % NAMESPACES}"
    about = {"namespace": namespace, "resourceVersion": "1"}
    cluster.store_observed(SERVICE, {"metadata": {**about, "name": name, "uid": name}, "spec": {}})
    labels = {**meta.labels(name, revision="r1"), keys.COMPONENT: keys.ROUTER}
    owner = {"apiVersion": keys.API_VERSION, "kind": SERVICE, "name": name, "uid": name, "controller": True}
    workload = f"{name}-router-r1"
    deployment = {**about, "name": workload, "uid": workload, "labels": labels, "ownerReferences": [owner]}
    cluster.store_observed("Deployment", {"metadata": deployment})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{workload}-5f4d", "uid": "x", "controller": True}
    pod = {**about, "name": workload, "uid": f"{name}-r", "labels": labels, "ownerReferences": [owner]}
    cluster.store_observed("Pod", {"metadata": pod, "status": {"podIP": _address(number)}})
    for rank in range(PODS):
        labels = {**meta.labels(name, keys.ENGINE, "r1"), keys.GROUP_INDEX: str(rank)}
        cluster.store_observed(
            "Pod", {"metadata": {**about, "name": f"{name}-{rank}", "uid": f"{name}-{rank}", "labels": labels}}
        )


def _address(number: int) -> str:
    return f"127.9.{number // 250}.{number % 250 + 1}"


def _memory() -> float:
    return resident_mib(Path("/proc/self/status").read_text())


def _oldest(telemetry: Telemetry, pods: list[Pod]) -> float:
    """Return the age in seconds of the oldest fresh report of all routers."""
    now = datetime.now(UTC).timestamp()
    reports = telemetry.reports(pods)
    return max((now - report.at for report in reports.values()), default=0.0)


# --- the simulated registries -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _registries(port: int) -> AsyncIterator[None]:
    """Run the process that answers on `port` of every loopback address."""
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.ear", str(port))
    try:
        await asyncio.sleep(1.0)
        yield
    finally:
        child.terminate()
        await child.wait()


class _Answers(asyncio.Protocol):
    """Answers each request with the summary of the simulated router whose loopback address the client connected to."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        parts = str(transport.get_extra_info("sockname")[0]).split(".")
        self._number, self._count = int(parts[2]) * 250 + int(parts[3]) - 1, 0

    def data_received(self, data: bytes) -> None:
        self._count += 1
        body = json.dumps(_summary(self._number, self._count)).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def _summary(router: int, count: int) -> dict[str, Any]:
    """Return a summary whose numbers differ from those of the previous response."""
    name, namespace = f"s{router}", f"n{router % NAMESPACES}"
    work = {"age": 3.1, "window": 50, "requests": count * 1.2, "promptTokens": count * 900, "outputTokens": count * 310.5}
    work |= {"firstToken": [[0.1 * each, count + each] for each in range(1, 9)]}
    work |= {"betweenTokens": [[0.002 * each, count * each] for each in range(1, 9)]}
    load = {"age": 0.8, "running": count % 99, "waiting": count % 3, "inTransfer": 0, "cacheUse": 0.41, "emptyReadings": 0}
    rest = {"role": "decode", "state": "serving", "listed": True, "load": load, "work": work}
    return {
        "version": 1,
        "slice": slice_mark(namespace, meta.requirement(meta.labels(name, revision="r1"))),
        "strangers": {"found": 0, "age": None},
        "router": {"age": 1.2, "window": 55, "requests": count * 2.4, "errors": 0, "inFlight": count % 99},
        "leaders": [{"id": public_digest(f"{name}-{each}"), **rest} for each in range(LEADERS)],
        "omitted": 0,
    }


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Answers, "0.0.0.0", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
