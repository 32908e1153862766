"""Request the summaries of routers' registries (docs/telemetry.md), concurrently with the reconciliations.

A registry must not write anything to the cluster. Its ServiceAccount may only get, list and watch pods, so that an attacker
who takes over a router gets no more rights. The registry therefore serves a summary, which the operator requests. The
responding pod belongs to a tenant, so the operator uses no text of the response, and keeps at most a quarter of its
connections for the routers of one namespace. Further limits are in `router_pages`.
"""

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.facts import pod_group
from ome_operator.cache.owned import own_routers
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.registry_page import foreign_workers
from ome_operator.controllers.router_pages import AT_ONCE, DirectPages, Opened, RouterPages
from ome_operator.core.observed.arrivals import Arrivals, arrivals, last_unserved_time
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.silence import Silence, hold_reason, silence_of
from ome_operator.core.observed.telemetry import (
    STALE,
    DrainReport,
    ForeignWorkers,
    LeaderStart,
    RouterReport,
    UnusableSummary,
    combined_start,
    drain_reports,
    failing_pairs,
    is_fresh,
    parse_report,
)
from ome_operator.core.observed.transfers import Transfers
from ome_operator.core.recovery.start import is_recent
from ome_operator.core.render import meta
from ome_operator.core.rollout.drain import EMPTY_READINGS
from ome_operator.machinery.background import repeat
from ome_operator.util.json_limits import MIB
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

OF_NAMESPACE = 2 * MIB
"""Maximum number of bytes of the last summaries of all routers of a namespace. The values of a summary take up to ten
times as much memory as its text. Parsing 2 MiB takes less than 0.1 s (measured with CPython 3.11)."""
OF_A_NAMESPACE = 8
"""Maximum number of routers of one namespace from which summaries are requested at the same time."""
SLOW_AFTER, SLOW = 3, 30.0
"""Number of failures in a row after which the summary of a router is requested only every `SLOW` seconds."""
OLD = 60.0
"""Seconds between two requests to a registry of a version without a summary."""
FRESH, WITHOUT, SILENT = "fresh", "old", "silent"
STATES = (FRESH, WITHOUT, SILENT)
"""States of a router: `fresh` if it has sent a summary recently, `old` if the version of its registry serves no summary, and
`silent` if it sends no usable response."""


def owned_routers(cache: ClusterCache) -> Iterator[Pod]:
    """Yield the pods of routers whose Deployment is controlled by a known service; the UID of the controller is compared."""
    for place in dict.fromkeys(pod_group(pod) for pod in cache.pods if pod.component == keys.ROUTER):
        yield from own_routers(cache, Ref(SERVICE, *place))


class _Known(NamedTuple):
    """What is known about one router."""

    report: RouterReport | None = None
    strangers: ForeignWorkers | None = None
    failures: int = 0
    due_at: float = 0.0
    trouble: str = ""
    """Why the last response could not be used; "" if it was used."""
    is_unsupported: bool = False
    """Whether the registry's version serves no summary."""
    silent_after: float = STALE
    """Seconds after the time of the report after which the router counts as silent."""
    unserved_at: float | None = None
    """Time of a request that no engine could serve, in seconds since the epoch. Only the time of a request that arrives
    at least `arrivals.APART` s later replaces this time."""


class Telemetry:
    """Requests the summary of each router every `interval` seconds. `changed` is called with a service if a fact on which
    decisions depend has changed; it is not called if only other values have changed. `opened` opens the connections to the
    routers.
    """

    def __init__(
        self,
        routers: Callable[[], Iterable[Pod]],
        changed: Callable[[Ref], None],
        wall: WallClock,
        interval: float,
        opened: Opened = DirectPages,
    ) -> None:
        self._routers, self._changed, self._wall, self._interval, self._opened = routers, changed, wall, interval, opened
        self._known: dict[str, _Known] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)  # fair, so that namespaces take turns
        self._busy: dict[str, asyncio.Task[None]] = {}
        """Namespace -> the task of its current round of requests."""
        self._pods: list[Pod] = []
        self._started = wall().timestamp()
        self._look_at = 0.0
        """Time of the next search for new routers."""
        self._sizes: dict[str, int] = {}
        """Maps the UID of a router to the bytes of the last response that was parsed."""
        self._of_namespace: Counter[str] = Counter()
        """Maps a namespace to the sum of the sizes in `_sizes` of its routers."""
        self.total = 0
        """Number of foreign workers found since the start, over all services."""

    async def run(self) -> None:
        """Request the summaries of all routers repeatedly. With the interval 0, do nothing."""
        if self._interval <= 0:
            logger.info(
                "router-watch is 0, so no load is requested from routers, and a group that is removed waits a fixed time "
                "for its last requests"
            )
            return
        async with self._opened() as pages:
            try:
                await repeat("the reading of routers' summaries", lambda: self._begin(pages), lambda: self._pause)
            finally:
                for task in self._busy.values():
                    task.cancel()

    @property
    def _pause(self) -> float:
        return min(1.0, self._interval / 4)

    async def _begin(self, pages: RouterPages) -> None:
        """Begin a round of requests for each namespace that has due routers and whose previous round has ended."""
        self._busy = {name: task for name, task in self._busy.items() if not task.done()}
        now = asyncio.get_running_loop().time()
        if now >= self._look_at:  # visits all pods, and is therefore done seldom
            self._look_at, self._pods = now + self._interval, self._present()
        due: dict[str, list[Pod]] = {}
        for pod in self._pods:
            known = self._known.get(pod.uid) or self._known.setdefault(pod.uid, self._new(pod, now, pages.spread))
            if pod.namespace not in self._busy and known.due_at <= now:
                due.setdefault(pod.namespace, []).append(pod)
        for namespace, pods in due.items():
            self._busy[namespace] = asyncio.create_task(self._round(pages, pods), name=f"routers of {namespace}")

    def _new(self, pod: Pod, now: float, spread: float) -> _Known:
        """Return the state of a new router. The first requests to routers are spread over the interval, but over at most
        `spread` seconds.
        """
        return _Known(due_at=now + zlib.crc32(pod.uid.encode()) % 1000 / 1000 * min(self._interval, spread))

    async def walk(self, pages: RouterPages) -> None:
        """Request the summary of every router once, in the way that `pages` defines."""
        self._pods = self._present()
        await self._round(pages, self._pods)

    def _present(self) -> list[Pod]:
        """Return the pods of the existing routers, and forget what is known about routers that no longer exist."""
        routers = [pod for pod in self._routers() if pod.ip and not pod.over]
        present = {pod.uid for pod in routers}
        if self._known.keys() - present:
            self._known = {uid: known for uid, known in self._known.items() if uid in present}
            self._sizes = {uid: size for uid, size in self._sizes.items() if uid in present}
            self._of_namespace = Counter()
            for pod in routers:
                self._of_namespace[pod.namespace] += self._sizes.get(pod.uid, 0)
        return routers

    async def _round(self, pages: RouterPages, pods: Iterable[Pod]) -> None:
        """Request the summaries of the routers of one namespace, from at most `OF_A_NAMESPACE` routers at the same time."""
        left = iter(pods)

        async def ask_next() -> None:
            for pod in left:  # all of the namespace's workers share the iterator
                async with self._slots:
                    await self._visit(pages, pod)

        async with asyncio.TaskGroup() as group:
            for _ in range(OF_A_NAMESPACE):
                group.create_task(ask_next())

    async def _visit(self, pages: RouterPages, pod: Pod) -> None:
        loop, before = asyncio.get_running_loop(), self._known.get(pod.uid, _Known())
        try:
            after = await self._ask(pages, pod, before)
        except UnusableSummary as error:
            after = self._failed(pod, before, str(error))
        except Exception as error:  # a pod of a tenant: a failure affects only this pod
            logger.debug("asking %s/%s failed", pod.namespace, pod.name, exc_info=True)
            after = self._failed(pod, before, f"{type(error).__name__}")
        pause = OLD if after.is_unsupported else SLOW if after.failures >= SLOW_AFTER else self._interval
        self._known[pod.uid] = after._replace(due_at=loop.time() + max(pause, self._interval))
        if self._decides(before) != self._decides(after):
            self._count(before.strangers, after.strangers)
            self._changed(Ref(SERVICE, pod.namespace, pod.service))

    async def _ask(self, pages: RouterPages, pod: Pod, before: _Known) -> _Known:
        status, text = await pages.read_page(pod, "summary")
        if status == 404:  # a registry of an earlier version: only its metrics are read
            status, text = await pages.read_page(pod, "metrics")
            found = foreign_workers(text.decode(errors="replace"), self._wall().timestamp()) if status == 200 else None
            return before._replace(
                report=None, strangers=found or before.strangers, failures=0, trouble="", is_unsupported=True
            )
        if status != 200:
            raise UnusableSummary(f"the response has the status {status}")
        self._count_bytes(pod, len(text))
        report = parse_report(text, meta.slice_mark(pod), self._wall().timestamp())
        strangers = ForeignWorkers(report.strangers, report.foreign_worker_at) if report.strangers else None
        after = before._replace(report=report, strangers=_same(before.strangers, strangers), silent_after=pages.silent_after)
        unserved_at = last_unserved_time(before.unserved_at, report.unserved_at)
        return after._replace(failures=0, trouble="", is_unsupported=False, unserved_at=unserved_at)

    def _count_bytes(self, pod: Pod, size: int) -> None:
        """Record the size in bytes of a response that is about to be parsed. Raises UnusableSummary if the responses of all
        routers in the namespace are too long together.
        """
        total = self._of_namespace[pod.namespace] - self._sizes.get(pod.uid, 0) + size
        if total > OF_NAMESPACE:
            raise UnusableSummary(f"the summaries of all routers in the namespace are longer than {OF_NAMESPACE // MIB} MiB")
        self._sizes[pod.uid], self._of_namespace[pod.namespace] = size, total

    def _failed(self, pod: Pod, before: _Known, reason: str) -> _Known:
        """Return the state of a router after a failed request; the last report is kept. `reason` is the reason, or "" if it
        is already logged. Of several failures in a row, the second is logged, and each later failure with another reason
        than before.
        """
        if reason and reason != before.trouble and before.failures:  # single failures are routers that start or end
            logger.info("the summary of the router %s/%s is not used: %s", pod.namespace, pod.name, reason)
        trouble = reason if before.failures else before.trouble
        return before._replace(failures=before.failures + 1, trouble=trouble)

    def _decides(self, known: _Known) -> tuple[Any, ...]:
        """Return the facts on which decisions depend: foreign workers; which leaders are empty, silent or paused; which
        parts of their starts are known; whether a request has arrived that no engine could serve; and which pairs fail.
        """
        leaders, pairs = (known.report.leaders.items(), known.report.pairs) if known.report is not None else ((), ())
        stopped = {(mark, each.is_paused) for mark, each in leaders if each.is_paused or each.silence is not None}
        empty = {
            mark for mark, each in leaders if each.load is not None and (each.load.empty_readings or 0) >= EMPTY_READINGS
        }
        starts = {(mark, *each.start.known_parts) for mark, each in leaders if each.start is not None}
        return known.strangers, empty, stopped, starts, known.unserved_at, {pair[:2] for pair in pairs}

    def _count(self, before: ForeignWorkers | None, after: ForeignWorkers | None) -> None:
        self.total += max(0, (after.found if after else 0) - (before.found if before else 0))

    # --- facts for reconciliations and metrics ------------------------------------------------------------------------

    def strangers(self, pods: Iterable[Pod]) -> dict[str, ForeignWorkers]:
        """Return the foreign workers in the worker list of each router, by the UID of the router's pod."""
        found = ((pod.uid, self._known.get(pod.uid, _Known()).strangers) for pod in pods if pod.component == keys.ROUTER)
        return {uid: strangers for uid, strangers in found if strangers is not None}

    def drains(self, pods: Iterable[Pod]) -> dict[str, tuple[DrainReport, ...]]:
        """Return what the routers report about the remaining requests in each draining leader of a service, by the leader's
        UID.
        """
        going = [pod for pod in pods if pod.draining]
        reports = self.reports(pods) if going else {}
        found = {pod.uid: drain_reports(reports.items(), names.public_digest(pod.uid)) for pod in going}
        return {uid: each for uid, each in found.items() if each}

    def starts(self, pods: Iterable[Pod]) -> dict[str, LeaderStart]:
        """Return the observed start of each leader of a service that became ready recently, by the UID
        of the leader's pod.
        """
        now, pods = self._wall(), tuple(pods)
        recent = [
            pod for pod in pods if pod.rank == 0 and pod.ready and pod.component != keys.ROUTER and is_recent(pod, now)
        ]
        reports = self.reports(pods).values() if recent else ()
        found = dict[str, LeaderStart]()
        for pod in recent:
            marked = (report.leaders.get(names.public_digest(pod.uid)) for report in reports)
            start = combined_start(each.start for each in marked if each is not None and each.start is not None)
            if start is not None:
                found[pod.uid] = start
        return found

    def silences(self, pods: Iterable[Pod]) -> dict[str, Silence]:
        """Return since when leaders of a service have not responded, by the leader's UID."""
        now, pods = self._wall().timestamp(), tuple(pods)
        reports = self.reports(pods)
        marks = {
            mark for report in reports.values() for mark, each in report.leaders.items() if each.silence or each.is_paused
        }
        found = dict[str, Silence]()
        for pod in pods if marks else ():
            if (mark := names.public_digest(pod.uid)) in marks:
                beside = [each for each in pods if each.component == keys.ROUTER and each.revision == pod.revision]
                routers = [reports.get(each.uid) for each in beside if not (each.over or each.deleting)]
                if (silence := silence_of(routers, mark, now)) is not None:
                    found[pod.uid] = silence
        why = self._hold(now) if any(not silence.is_paused for silence in found.values()) else ""
        return {uid: silence._replace(hold=why) for uid, silence in found.items()}

    def transfers(self, pods: Iterable[Pod]) -> Transfers:
        """Return the pairs of leaders whose transfers fail, by the UID of the router's pod."""
        return failing_pairs(self.reports(pods))

    def _hold(self, now: float) -> str:
        """Return why no leader of any service may be recycled now for not responding, as a sentence; "" if recycling is
        allowed.
        """
        silent: dict[Ref, set[float]] = {}
        for pod in self._pods:
            report = self._known.get(pod.uid, _Known()).report
            if report is not None and is_fresh(report.at, now):
                times = silent.setdefault(Ref(SERVICE, pod.namespace, pod.service), set())
                times.update(each.silence.since for each in report.leaders.values() if each.silence is not None)
        return hold_reason(silent.values(), now - self._started)

    def arrivals(self, pods: Iterable[Pod]) -> Arrivals:
        """Return when the last request arrived that no engine could serve, and when the last token was generated, according
        to the routers among these pods.
        """
        return arrivals(self.reports(pods).values())

    def reports(self, pods: Iterable[Pod]) -> dict[str, RouterReport]:
        """Return the fresh reports of the routers among these pods, by the UID of the router's pod."""
        now = self._wall().timestamp()
        found = ((pod.uid, self._known.get(pod.uid, _Known()).report) for pod in pods if pod.component == keys.ROUTER)
        return {uid: report for uid, report in found if report is not None and is_fresh(report.at, now)}

    def states(self) -> dict[tuple[str, ...], float]:
        """Return the number of routers in each state, with the state as the label of a metric."""
        now, found = self._wall().timestamp(), Counter(dict.fromkeys(STATES, 0))
        for known in self._known.values():
            answers = known.report is not None and 0 <= now - known.report.at <= known.silent_after
            found[WITHOUT if known.is_unsupported else FRESH if answers else SILENT] += 1
        return {(state,): float(number) for state, number in found.items()}


def _same(before: ForeignWorkers | None, after: ForeignWorkers | None) -> ForeignWorkers | None:
    """Return the foreign workers of a router to store after a response that reports `after`. If their number has not
    changed, return `before`: the time of the last foreign worker is calculated from its age, and varies by a second or
    two between responses. Return `before` also for a response without foreign workers (`after` is None).
    """
    if before is not None and after is not None and before.found == after.found:
        return before
    return after or before
