"""Measures what events cost the operator as a fleet grows, in this process and without a cluster.

Objects take the path of a watch: through the pages and lines of an informer into the cache, and from there to the
reconcilers, whose writes are answered at once. Only the CPU time of this thread is measured, without the time for creating
the objects.
"""

import asyncio
import contextlib
import ctypes
import gc
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.alone import steady_state
from bench.crowd import MODEL, NODE, RECORD, RUNTIME, SERVICE, Crowd, Size, encoded
from bench.processes import resident_mib
from bench.results import Fleet, Wave
from bench.scenarios import Manifest
from bench.stalls import Longest, Stopwatch
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler, Urgency
from ome_operator.controllers import status_writer
from ome_operator.controllers.base import CORE
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.nodemodels import NodeModelsReconciler
from ome_operator.controllers.watched_kinds import watches_of
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.kube.client import ApplyResult, Client
from ome_operator.machinery import garbage_collection
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.util import memoize
from ome_operator.watch.informer import PAGE, Informer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS, TIMES = 3, 4
"""Number of sizes of each dimension, and the factor between two sizes. The factor is large because chance would dominate the
difference between similar sizes."""
BASE = Size()
FIRST = Size(nodes=250, models=50, services=100, records=50, strangers=500)
"""The smallest value of each dimension. While one dimension grows, the others stay at BASE."""
LARGEST = Size(nodes=5000, models=200, services=1820)
"""A fleet of 20,020 pods: each service has ten engine pods and a router."""
KNOWN = Size(nodes=300, models=207, services=50)
"""The fleet on which the event loop was blocked for ten seconds."""
ROUNDS = 4
"""Number of parts into which the events of a wave are divided. The passes run after each part: the operator delays its
passes by a second, during which further events arrive."""
CHUNK = 128 * 1024
"""Bytes that a connection delivers at a time."""


def measure(steps: int = STEPS, repeat: int = 1) -> list[Fleet]:
    """Measure `steps` sizes of each dimension, `repeat` times, and then LARGEST and KNOWN once. Each measurement has a
    process of its own, so that its memory use is known.
    """
    sizes = [
        (name, replace(BASE, **{name: first * TIMES**step}))
        for name, first in asdict(FIRST).items()
        for step in range(steps)
    ]
    rounds = [[measure_in_process(*size) for size in sizes] for _ in range(repeat)]
    return [*map(cheapest, zip(*rounds, strict=True)), measure_in_process("", LARGEST), measure_in_process("", KNOWN)]


def cheapest(runs: Sequence[Fleet]) -> Fleet:
    """Combine several runs of a size. The result has the cheapest run of each wave, because other load on the machine
    only adds cost, and the longest stall of all runs.
    """
    first, *_ = runs
    waves = []
    for same in zip(*(run.waves for run in runs), strict=True):
        longest = max(same, key=lambda wave: wave.stall_s)
        waves.append(replace(longest, cpu_s=min(wave.cpu_s for wave in same)))
    return replace(first, waves=waves, decode_s=min(run.decode_s for run in runs))


def measure_in_process(grows: str, size: Size) -> Fleet:
    """Measure a size in a process of its own. `grows` is the name of the dimension in which the size differs from BASE; ""
    for LARGEST and KNOWN.
    """
    words = [sys.executable, "-m", "bench.fleet", grows, json.dumps(asdict(size))]
    told = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return Fleet(**told | {"waves": [Wave(**wave) for wave in told["waves"]]})


async def run(grows: str, size: Size) -> Fleet:
    """Run all waves on a fleet of this size, one after another."""
    fleet, crowd = _Fleet(), Crowd(size)
    beat = asyncio.create_task(fleet.watch.beat())
    waves = [await fleet.wave("start", lambda: fleet.start(crowd))]
    with fleet.watch.besides():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        await fleet.tidy()
        at_rest = _resident_mib()
    nodes, models, services = range(size.all_nodes), range(size.models), range(size.services)
    later: dict[str, tuple[str, Callable[[], list[Manifest]]]] = {
        "labels go": (NODE, lambda: [crowd.node(each) for each in nodes]),
        "labels set": (NODE, lambda: [crowd.node(each, "Ready") for each in nodes]),
        "a label flips": (NODE, lambda: [crowd.node(each, "Ready", other="Updating") for each in nodes]),
        "nodes flap": (NODE, lambda: [crowd.node(each, "Ready", ready=up) for up in (False, True) for each in nodes]),
        "heartbeats": (NODE, lambda: [crowd.node(each, "Ready") for each in nodes]),
        "models edited": (MODEL, lambda: [crowd.model(each, 2) for each in models]),
        "the runtime of all edited": (RUNTIME, lambda: [crowd.runtime(2)]),
        "services come": (SERVICE, lambda: [crowd.service(each + size.services) for each in services]),
        "records change": (RECORD, lambda: [crowd.record(each, 10**9) for each in range(size.records)]),
    }
    for what, (kind, bodies) in later.items():
        waves.append(await fleet.wave(what, lambda kind=kind, bodies=bodies: fleet.tell(kind, bodies)))  # type: ignore[misc]
    gone = {SERVICE: lambda: [crowd.service(each) for each in services], NODE: lambda: [crowd.node(each) for each in nodes]}
    for kind, bodies in gone.items():
        what = f"{kind} objects go"
        waves.append(await fleet.wave(what, lambda kind=kind, bodies=bodies: fleet.tell(kind, bodies, "DELETED")))  # type: ignore[misc]
    for task in (tasks := (beat, fleet.informing, fleet.garbage)):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return Fleet(grows, asdict(size), waves, fleet.decode_s, at_rest, peak, fleet.largest)


class _Fleet(Client):
    """The operator's cache and reconcilers, and the simulated API server that they use."""

    def __init__(self) -> None:
        self.watch, self.decode_s = Stopwatch(), 0.0
        self.largest = 0
        """Bytes of the largest status that was written."""
        self._dirty: dict[Ref, None] = {}
        self.cluster = ClusterCache(Deps())
        self.handler = EventHandler(self.cluster, self._note, CORE.models_of, CORE.runtimes_of)
        self.handle_deletion = lambda kind, body: self.handler.handle_deleted(kind, body["metadata"]["uid"])
        self._queue: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=9.0, jitter=lambda: 0.5)
        self._catalog = CatalogReconciler(self.handler, self, self._queue, 600.0, lambda: NOW)
        self._records = NodeModelsReconciler(self.handler, self, self._queue, 600.0)
        self._said: dict[Ref, status_writer.Written] = {}
        self._observed: dict[Ref, Observed] = {}
        self._pages: dict[str, Iterator[bytes]] = {}
        self._lines: dict[str, asyncio.Queue[bytes]] = {}

    def _note(self, ref: Ref, haste: Urgency) -> None:
        self._dirty.update(dict.fromkeys(self.handler.services_concerned_by(ref) if haste == Urgency.SHARED else (ref,)))

    # --- the API server ---------------------------------------------------------------------------------------------

    def get(self, url: str, params: dict[str, str], timeout: object) -> Any:  # type: ignore[override]
        """Answer a GET request: a page of a list, or a watch."""
        kind = next(each.kind for each in self._kinds if url.endswith(each.path))
        if "watch" in params:
            return _answer(Answer(lines=self._lines[kind]))
        with self.watch.besides():
            page = next(self._pages[kind])
            began = time.thread_time()
            json.loads(page)
            self.decode_s += time.thread_time() - began
        return _answer(Answer(page))

    async def apply(self, manifest: Manifest, uid: str = "", *, subresource: str = "", dry_run: bool = False) -> ApplyResult:
        """Answer a server-side apply. The answer to a write of a status is the object with a newer version; any other
        manifest is returned unchanged. No event reports the write.
        """
        self.largest = max(self.largest, len(encoded(manifest.get("status") or {})))
        kind, metadata = manifest["kind"], manifest["metadata"]
        found = (
            self.cluster.find_resource(Ref(kind, metadata.get("namespace", ""), metadata["name"])) if subresource else None
        )
        if found is None:
            return ApplyResult(manifest, ())
        stored = {"uid": found.uid, "generation": found.generation, "resourceVersion": str(found.version + 1)}
        return ApplyResult({**manifest, "metadata": metadata | stored, "spec": found.parsed.spec.dump()}, ())

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def wave(self, what: str, work: Callable[[], Any]) -> Wave:
        """Run `work`, which delivers the events of a wave and runs the passes that follow. Return its cost under the name
        `what`.
        """
        watch = self.watch
        watch.longest, began = Longest(), watch.now()
        await work()
        longest = watch.longest
        return Wave(what, watch.now() - began, longest.seconds, longest.garbage_s, longest.where)

    async def start(self, crowd: Crowd) -> None:
        """Deliver the lists of all kinds, and run all passes."""
        with self.watch.besides():
            for kind, bodies in crowd.everything().items():
                self._lines[kind], self._pages[kind] = asyncio.Queue(), _pages(bodies)
        self._kinds = watches_of(self._lines)
        session: Any = self
        informer = Informer(self._kinds, self, session=session, server="", server_timeout=600)  # type: ignore[arg-type]
        self.informing = asyncio.create_task(informer.run())
        garbage_collection.collect_rarely()
        await informer.complete.wait()
        garbage_collection.freeze_existing()
        self.garbage = asyncio.create_task(garbage_collection.collect_periodically(lambda: not self._dirty))
        await self._passes()

    async def tell(self, kind: str, bodies: Callable[[], list[Manifest]], what: str = "MODIFIED") -> None:
        """Deliver events of a kind as a watch does, in ROUNDS parts, and run the passes after each part. `what` is the type
        of the events.
        """
        with self.watch.besides():
            lines = [encoded({"type": what, "object": body}) + b"\n" for body in bodies()]
            share = -(-len(lines) // ROUNDS) or 1
            rounds = [list(_chunks(lines[at : at + share])) for at in range(0, len(lines), share)]
            del lines
        for chunks in rounds:
            for chunk in chunks:
                self._lines[kind].put_nowait(chunk)
            await self._lines[kind].join()
            await self._passes()

    async def _passes(self) -> None:
        while self._dirty:
            ref = next(iter(self._dirty))
            del self._dirty[ref]
            if ref.kind == SERVICE:
                await self._service(ref)
            elif ref.kind == RECORD:
                await self._records.reconcile(ref)
            else:
                await self._catalog.reconcile(ref)
            await asyncio.sleep(0)

    async def tidy(self) -> None:
        """Do what the operator does in two periodic intervals without changes: reconcile all services, and discard cached
        results that were not used. Afterwards the memory that remains can be measured.
        """
        for _ in range(2):
            for each in [*self.cluster.services()]:
                await self._service(each.ref)
            for _ in memoize.forget_unused():
                pass

    async def _service(self, ref: Ref) -> None:
        """Run a pass of a service, if it exists. After its first pass, all of its objects exist and are ready."""
        if (found := self.cluster.find_resource(ref)) is None:
            return
        memoize.resize(len(self.cluster.resources[SERVICE]))
        observed = self._observed.get(ref, Observed())
        plan = CORE.sync(found.parsed, self.cluster.deps(), observed, NOW)
        if status_writer.status_differs(found, plan.status, self._said.get(ref, ("", ""))):
            self._said[ref] = await status_writer.write(self, self.handler, found, plan.status) or ("", "")
        if ref not in self._observed:
            with self.watch.besides():
                self._observed[ref] = steady_state(found.parsed, self.cluster.deps(), plan)[1]

    # --- the sink -----------------------------------------------------------------------------------------------------

    def handle_object(self, kind: str, body: Any) -> None:
        """Record that an object exists."""
        self.handler.handle_observed(kind, body)


class Answer:
    """A page of a list, or a watch."""

    status = 200

    def __init__(self, page: bytes = b"", lines: "asyncio.Queue[bytes] | None" = None) -> None:
        self._page, self._queue = page, lines

    @property
    def content(self) -> "Answer":
        """Return this object, which is also the stream of its body. An attribute would be a reference cycle, which keeps
        the page in memory: objects that exist at the start are never collected (`freeze_existing`).
        """
        return self

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the body of a list, or the chunks of a watch. When the next chunk is requested, the previous one has been
        processed.
        """
        if self._queue is None:
            await asyncio.sleep(0)
            yield self._page
            return
        while True:
            yield await self._queue.get()
            self._queue.task_done()
            await asyncio.sleep(0)


def _resident_mib() -> float:
    """Return the resident memory of the process after it has returned unused memory."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(0)
    return resident_mib(Path("/proc/self/status").read_text())


async def _answer(answer: Answer) -> Answer:
    return answer


def _pages(bodies: Iterator[Manifest]) -> Iterator[bytes]:
    """Yield the pages of a list. Each is created on demand and not kept, because an operator never holds all of them."""
    ahead = list(itertools.islice(bodies, 1))
    while True:
        items = [*ahead, *itertools.islice(bodies, PAGE - len(ahead))]
        ahead = list(itertools.islice(bodies, 1))
        yield _page(items, more=bool(ahead))


def _page(items: list[Manifest], *, more: bool) -> bytes:
    page = encoded({"metadata": {"resourceVersion": "1", **({"continue": "more"} if more else {})}, "items": items})
    items.clear()
    return page


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    whole = b"".join(lines)
    return (whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK))


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(run(sys.argv[1], Size(**json.loads(sys.argv[2])))))))
