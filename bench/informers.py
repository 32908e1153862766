"""Compares the informer of this project with the informer of the official client: `python -m bench.informers`.

A server on loopback serves a list of pods and then a watch that changes them. Each client reads both in its own process,
which reports its CPU time and memory. Only reading is measured: neither client processes the pods.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

PODS, EVENTS = 2_000, 20_000
TURNS = 3


def pod(number: int, version: int) -> dict[str, Any]:
    """Return a pod that is about as large as a pod of a wide service: 60 variables, ten mounts, managed fields (about 9
    KiB).
    """
    name = f"kimi-k2-engine-0a1b2c3d-{number}"
    variables = [{"name": f"NVSHMEM_VARIABLE_{item}", "value": f"value-{item}"} for item in range(60)]
    mounts = [{"name": f"volume-{item}", "mountPath": f"/mnt/volume-{item}"} for item in range(10)]
    fields = {f"f:{part}": {".": {}, "f:name": {}, "f:value": {}} for part in range(60)}
    container = {"name": "main", "image": "sglang", "env": variables, "volumeMounts": mounts}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"{number:08d}", "resourceVersion": str(version),
            "labels": {f"label-{item}": "value" for item in range(12)},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {"containers": [container], "nodeName": f"node-{number}"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


async def _answer(request: web.Request) -> web.StreamResponse:
    if request.query.get("watch") not in ("true", "True"):
        first = int(request.query.get("continue") or 0)
        last = min(PODS, first + int(request.query.get("limit") or PODS))
        more = {"continue": str(last)} if last < PODS else {}
        items = [pod(number, number + 1) for number in range(first, last)]
        metadata = {"resourceVersion": str(PODS), **more}
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for number in range(EVENTS):
        body = {"kind": "Pod", "apiVersion": "v1", **pod(number % PODS, PODS + number + 1)}
        await response.write(json.dumps({"type": "MODIFIED", "object": body}).encode() + b"\n")
    await asyncio.sleep(60)
    return response


class _Counter:
    """A sink that counts objects. `complete` is set when all objects have arrived."""

    def __init__(self) -> None:
        self._count = 0
        self.complete = asyncio.Event()

    def handle_object(self, kind: str, body: object) -> None:
        self._count += 1
        if self._count == PODS + EVENTS:
            self.complete.set()

    def handle_deletion(self, kind: str, body: object) -> None: ...

    def handle_relist(self, kind: str) -> None: ...


def read_with_informer(server: str) -> Callable[[], None]:
    """Read everything with our informer."""
    from ome_operator.watch.informer import Informer
    from ome_operator.watch.sink import WatchedKind

    async def read() -> None:
        sink = _Counter()
        async with aiohttp.ClientSession() as session:
            kinds = (WatchedKind("Pod", "", "v1", "pods"),)
            task = asyncio.create_task(Informer(kinds, sink, session=session, server=server, server_timeout=300).run())
            await sink.complete.wait()
            task.cancel()

    return lambda: asyncio.run(read())


def official(server: str) -> Callable[[], None]:
    """Read everything with the SharedInformer of the official client."""
    from kubernetes import client
    from kubernetes.informer import SharedInformer

    def read() -> None:
        configuration = client.Configuration()
        configuration.host = server
        seen = 0

        def count(_: object) -> None:
            nonlocal seen
            seen += 1

        informer = SharedInformer(client.CoreV1Api(client.ApiClient(configuration)).list_pod_for_all_namespaces)
        informer.add_event_handler("ADDED", count)
        informer.add_event_handler("MODIFIED", count)
        informer.start()
        while seen < PODS + EVENTS:
            time.sleep(0.02)

    return read


SIDES = {"ours": read_with_informer, "official": official}


def measure(side: str, server: str) -> dict[str, float]:
    """Return the CPU seconds, wall-clock seconds and maximum MiB of one side. The CPU time and the memory of its imports
    are not included.
    """
    read = SIDES[side](server)
    before, began = time.process_time(), time.monotonic()
    read()
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": time.process_time() - before, "wall_s": time.monotonic() - began, "mib": usage}


async def _main() -> None:
    app = web.Application()
    app.router.add_get("/api/v1/pods", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    print(f"{PODS} pods listed, {EVENTS} changes watched; a pod has {len(json.dumps(pod(0, 0)))} bytes")
    for _ in range(TURNS):
        for side in SIDES:
            words = [sys.executable, "-m", "bench.informers", side, server]
            process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
            text, _error = await process.communicate()
            found = json.loads(text)
            each, rest = found["cpu_s"] / (PODS + EVENTS) * 1e3, f"{found['wall_s']:.1f} s, {found['mib']:.0f} MiB"
            print(f"{side:<9} {found['cpu_s']:6.2f} CPU-s ({each:.3f} ms an object), {rest}")
    await runner.cleanup()


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measure(*sys.argv[1:])), flush=True)
        os._exit(0)  # the official informer's thread waits in a read that never ends
    asyncio.run(_main())
