"""Read the metrics of the router, and the load and the metrics of its leaders. Probe leaders that may have stopped
responding.

Reading and probing run in tasks of their own, so that a slow engine delays no pass of the registry.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp

from ome_operator.registry import starting
from ome_operator.registry.answer_prober import AnswerProber
from ome_operator.registry.answers import AnswerSigns, RouterCounts
from ome_operator.registry.engine_client import AFTER_PROBE, HEALTHY_PATH, PAGE_BYTES, EngineClient
from ome_operator.registry.engine_load import UNKNOWN, EngineLoad, for_role, load_from_metrics
from ome_operator.registry.exposition import EMPTY_PAGE, EnginePage
from ome_operator.registry.pages import parse_router_counters, parse_worker_counts
from ome_operator.registry.pair_prober import PairProber
from ome_operator.registry.records import LeaderState, Worker
from ome_operator.registry.silence import PROBE, ProbeResult, is_due, with_probe_result
from ome_operator.registry.telemetry import (
    DECIMALS,
    NEW,
    Foreign,
    LeaderMemory,
    RouterReading,
    summary,
    with_counts,
    with_leader_state,
    with_load,
    with_page,
    with_work,
)
from ome_operator.registry.unserved import UnservedRequests

logger = logging.getLogger(__name__)

LOAD_INTERVAL, METRICS_INTERVAL, RARE_INTERVAL = 5.0, 10.0, 60.0
"""Seconds between two readings: of a leader's load, of its metrics, and of a page that the engine does not have. An
engine needs much more time for its metrics than for its load."""
ROUTER_INTERVAL = 2.0
"""Seconds between two readings of the metrics of the router, which runs in the same pod."""
LOAD, METRICS = "load", "metrics"
TICK = 1.0
"""Seconds between two checks for leaders whose reading is due."""
START_TICK = 0.5
"""Seconds between two health requests to a leader that is starting. The requested page costs the engine next to nothing."""
AT_ONCE = 16
"""Maximum number of leaders that are read at the same time, and of leaders that are probed at the same time."""
PROBE_PATH = "/health_generate"
"""Path of the probe of SGLang, a request that the scheduler answers."""


class TelemetryReader:
    """Reads one router and its leaders. `leaders` returns the leaders of the last pass. `changed` is called when a leader
    stops responding, responds again, or is about to become ready, so that a pass follows at once.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        router_metrics: str,
        leaders: Callable[[], Iterable[LeaderState]],
        worker_key: str = "",
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[], None] = lambda: None,
        unserved: UnservedRequests | None = None,
        has_engines: Callable[[], bool | None] = lambda: None,
    ) -> None:
        self._router_metrics, self._leaders, self._clock = router_metrics, leaders, clock
        self._client = EngineClient(session, worker_key)
        self._memories: dict[str, LeaderMemory] = {}
        self._due: dict[tuple[str, str], float] = {}
        """Maps (UID of a leader, path) to the time of the next reading."""
        self._router = RouterReading()
        self._served: tuple[float, dict[str, Any]] | None = None
        self._on_change, self._started = changed, clock()
        self._unserved = unserved or UnservedRequests(clock)
        self._has_engines, self._was_empty = has_engines, False
        """`_has_engines` returns whether the router lists an engine of each role; None if that is unknown. `_was_empty`
        is true if `_has_engines` returned False when the router's metrics were last read."""
        self._pair_prober = PairProber(self._client, leaders, clock, changed)
        self._answer_prober = AnswerProber(self._client, self._store_answers, clock)
        self._probes: dict[str, asyncio.Task[None]] = {}
        """Maps the UID of a leader to its probe that is in progress."""

    async def run(self) -> None:
        """Read and probe forever, concurrently with the passes of the registry."""
        try:
            await asyncio.gather(
                *map(self._repeat, (self.read_due, self.begin_probes, self.begin_pair_probe)),
                self._repeat(self.watch_starts, START_TICK),
            )
        finally:
            self._pair_prober.end()
            self._answer_prober.end()
            for task in self._probes.values():
                task.cancel()

    async def _repeat(self, step: Callable[[], Awaitable[None]], pause: float = TICK) -> None:
        while True:
            try:
                await step()
            except Exception:  # a fault here must not end the registry, which keeps the router's list correct
                logger.exception("cannot read the load of engines")
            await asyncio.sleep(pause)

    def update_leaders(self, leaders: Iterable[LeaderState], workers: Iterable[Worker]) -> None:
        """Update the stored state after a pass of the registry. `leaders` are the leaders that the pass has found, and
        `workers` are the workers in the router's list.
        """
        now, found = self._clock(), {leader.uid: leader for leader in leaders}
        self._memories = {uid: with_leader_state(self._memories.get(uid, NEW), leader, now) for uid, leader in found.items()}
        self._due = {key: at for key, at in self._due.items() if key[0] in found or not key[0]}
        running: dict[str, int] = {}
        for worker in workers:
            running[worker.worker_type] = running.get(worker.worker_type, 0) + max(0, worker.running)
        # With disaggregation, the router counts each request at a prefill worker and at a decode worker.
        self._router = self._router._replace(in_flight=max(running.values(), default=0), in_flight_at=now)

    def request_count(self, uid: str) -> int | None:
        """Return the number of requests in the leader with the UID `uid`, as its engine reports it. Requests of all routers
        are included. Return None if the number is unknown.
        """
        return self._memories.get(uid, NEW).load.total

    def summary(self, slice_: str, foreign: Foreign) -> dict[str, Any]:
        """Return the summary that the registry serves. `slice_` is the digest that identifies the slice, and `foreign`
        describes the workers that do not belong to it. The summary is calculated at most once in `TICK` seconds, because
        every client that can reach the port may request it.
        """
        now = self._clock()
        if self._served is None or not 0 <= now - self._served[0] < TICK:
            body = summary(slice_, self._leaders(), self._memories, self._router, foreign, now)
            pairs = {"pairs": found} if (found := self._pair_prober.summary()) else {}
            more = {"upFor": round(now - self._started), **self._unserved_part(), **pairs}
            self._served = now, {**body, **more}
        return self._served[1]

    async def read_due(self) -> None:
        """Read the router and all leaders once, each only if its reading is due."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def limited(leader: LeaderState) -> None:
            async with slots:
                await self._read(leader)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_router())
            for leader in self._leaders():
                if leader.url and (leader.listed or leader.state in ("draining", "adding", "silent")):
                    group.create_task(limited(leader))

    def _is_due(self, uid: str, path: str, interval: float) -> bool:
        now = self._clock()
        if now < self._due.get((uid, path), 0.0):
            return False
        self._due[uid, path] = now + interval
        return True

    async def _read(self, leader: LeaderState) -> None:
        if self._is_due(leader.uid, METRICS, METRICS_INTERVAL):
            page = await self._client.page(leader.url)
            if page is EMPTY_PAGE:
                self._due[leader.uid, METRICS] = self._clock() + RARE_INTERVAL
            elif page is not None:
                self._store_page(leader, page)
        if self._is_due(leader.uid, LOAD, LOAD_INTERVAL):
            began = self._clock()
            load = await self._client.load(leader.url)
            if load is UNKNOWN:
                self._due[leader.uid, LOAD] = self._clock() + RARE_INTERVAL
            else:
                self._store_load(leader, load, began)

    def _store_page(self, leader: LeaderState, page: EnginePage) -> None:
        if (memory := self._memories.get(leader.uid)) is None:  # the leader has been deleted meanwhile
            return
        now = self._clock()
        self._store_memory(leader.uid, with_page(memory, page, now))
        if (load := load_from_metrics(page)) != UNKNOWN:
            self._store_load(leader, load, now)

    def _store_load(self, leader: LeaderState, load: EngineLoad | None, began: float) -> None:
        if (memory := self._memories.get(leader.uid)) is not None:
            known = None if load is None else for_role(load, leader.role)
            self._store_memory(leader.uid, with_load(memory, known, began, self._clock()))

    def _store_memory(self, uid: str, memory: LeaderMemory) -> None:
        was_silent = self._memories[uid].is_silent
        self._memories[uid] = memory
        if memory.is_silent != was_silent:
            self._on_change()

    # --- probes -------------------------------------------------------------------------------------------------------

    @property
    def silent_leaders(self) -> frozenset[str]:
        """The UIDs of the leaders that no longer respond."""
        return frozenset(uid for uid, memory in self._memories.items() if memory.is_silent)

    async def begin_probes(self) -> None:
        """Begin a probe of each leader whose probe is due, unless a probe of the leader is in progress."""
        self._probes = {uid: task for uid, task in self._probes.items() if not task.done()}
        now = self._clock()
        for leader in self._leaders():
            memory = self._memories.get(leader.uid, NEW)
            if leader.state != "silent" and (not leader.listed or leader.state == "draining"):
                continue  # it gets no requests
            self._answer_prober.begin(leader, memory, now)
            is_free = leader.uid not in self._probes and len(self._probes) < AT_ONCE
            if is_free and is_due(memory.silence, now):
                self._probes[leader.uid] = asyncio.create_task(self._probe(leader), name=f"probe of {leader.pod}")

    def _store_answers(self, uid: str, change: Callable[[AnswerSigns], AnswerSigns]) -> None:
        if (memory := self._memories.get(uid)) is not None:
            self._store_memory(uid, memory._replace(answer_signs=change(memory.answer_signs)))

    async def _probe(self, leader: LeaderState) -> None:
        """Probe a leader. If the leader does not answer, read its load again: the probe is recorded as failed only if this
        reading shows no new numbers.
        """
        began = self._clock()
        status = await self._client.status(leader.url + PROBE_PATH, aiohttp.ClientTimeout(total=PROBE))
        ended = self._clock()
        result = ProbeResult.ANSWERED if status == 200 else ProbeResult.FAILED if status is None else ProbeResult.UNCLEAR
        if result is ProbeResult.FAILED:
            load_began = self._clock()
            load, is_paused = await asyncio.gather(
                self._client.load(leader.url, AFTER_PROBE), self._client.is_paused(leader.url)
            )
            self._store_load(leader, load, load_began)
            result = ProbeResult.PAUSED if is_paused else result
        if (memory := self._memories.get(leader.uid)) is not None:
            self._store_memory(leader.uid, memory._replace(silence=with_probe_result(memory.silence, result, began, ended)))

    @property
    def faulty_leaders(self) -> frozenset[str]:
        """The UIDs of the leaders to which or from which transfers fail."""
        return self._pair_prober.faulty_leaders

    async def begin_pair_probe(self) -> None:
        """Begin a probe of a pair of a prefill and a decode leader if there are signs that transfers fail."""
        readings = self._router.readings
        errors = [reading.counters.get("errors", 0.0) for reading in (*readings[:1], *readings[-1:])]
        self._pair_prober.begin(self._memories, router_fails=len(errors) > 1 and errors[1] > errors[0])

    # --- starts -------------------------------------------------------------------------------------------------------

    @property
    def expects_leaders(self) -> bool:
        """Whether some leader will probably become ready soon."""
        now = self._clock()
        return any(starting.is_expected(memory.start_signs, now) for memory in self._memories.values())

    @property
    def healthy_seconds(self) -> dict[str, float]:
        """Return a mapping from the UID of each leader that is starting to the number of seconds for which its engine has
        been healthy. Leaders whose engines have not proven that they are healthy are left out.
        """
        now = self._clock()
        found = {uid: starting.healthy_seconds(memory.start_signs, now) for uid, memory in self._memories.items()}
        return {uid: age for uid, age in found.items() if age is not None}

    async def watch_starts(self) -> None:
        """Send one health request to each starting leader for which such a request is due (`starting.is_due`)."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def ask(leader: LeaderState) -> None:
            async with slots:
                status = await self._client.status(leader.url + HEALTHY_PATH, AFTER_PROBE)
            memory = self._memories.get(leader.uid)
            if memory is not None and memory.start_signs.started_at == leader.started:  # not of a container that has ended
                signs = starting.with_health_answer(memory.start_signs, status, self._clock())
                self._store_memory(leader.uid, memory._replace(start_signs=signs))
                if signs.ready_soon_at != memory.start_signs.ready_soon_at:
                    self._on_change()

        due = [leader for leader in self._leaders() if starting.is_due(self._memories.get(leader.uid, NEW).start_signs)]
        async with asyncio.TaskGroup() as group:
            for leader in due:
                group.create_task(ask(leader))

    # --- the router ---------------------------------------------------------------------------------------------------

    async def _read_router(self) -> None:
        if not self._router_metrics or not self._is_due("", METRICS, ROUTER_INTERVAL):
            return
        if text := await self._client.text(self._router_metrics, PAGE_BYTES):
            page = EnginePage("router", parse_router_counters(text), {}, {})
            self._count_unserved(page.counters["requests"])
            now, workers = self._clock(), parse_worker_counts(text)
            self._router = self._router._replace(readings=with_work(self._router.readings, page, now))
            for leader in self._leaders():
                memory = self._memories.get(leader.uid)
                if memory is not None and leader.url:
                    counts = workers.get(leader.url.rstrip("/"), RouterCounts())
                    self._store_memory(leader.uid, with_counts(memory, counts, now))

    def _count_unserved(self, requests: float) -> None:
        """Count the requests that the router has received while it had no engine. They come from clients with open
        connections, which do not notice that the Service now has the registry as its endpoint. `requests` is the router's
        counter of received requests.
        """
        is_empty, before = self._has_engines() is False, self._router.readings[-1:]
        if is_empty and self._was_empty and before:
            self._unserved.count(int(requests - before[0].counters.get("requests", requests)))
        self._was_empty = is_empty

    def _unserved_part(self) -> dict[str, Any]:
        age = self._unserved.age
        return {} if age is None else {"unserved": {"requests": self._unserved.total, "age": round(age, DECIMALS)}}
