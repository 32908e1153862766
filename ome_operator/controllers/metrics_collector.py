"""Collect the leader's metrics: each reconciliation reports the metrics of its object, and a scrape reads sums
(docs/metrics.md).
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

from ome_operator import keys
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.owned import stored_roles
from ome_operator.cache.resources import SERVICE, Resource
from ome_operator.core import service_metrics
from ome_operator.core.observed.objects import Ref
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.service_metrics import OTHER, ServiceFigures, seconds_since
from ome_operator.machinery.metrics import Metrics
from ome_operator.machinery.sums import Key, MetricSums, Slots

logger = logging.getLogger(__name__)

NODES = 500
"""Number of nodes that have their own series. The values of all other nodes are summed in a series with an empty label."""
_STATES = frozenset({keys.MODEL_READY, keys.MODEL_UPDATING, keys.MODEL_FAILED})
_SUMMED = (
    "ome_advised_services", "ome_demand_services", "ome_demand_surplus_services", "ome_moving_services",
    "ome_transfers_failing_services", "ome_groups", "ome_gangs_waiting", "ome_rollouts", "ome_service_ready",
    "ome_service_complete", "ome_service_groups", "ome_service_gpus_wanted", "ome_service_gpus_held",
    "ome_service_gpus_wasted", "ome_weights", "ome_node_weights_bytes", "ome_node_weights_missing_bytes",
    "ome_node_weights_bytes_per_second",
)  # fmt: skip


class MetricsCollector:
    """The metrics of services and nodes. When an object has been reconciled, only its own part of the sums is replaced, and
    a scrape reads only the sums that it returns.
    """

    def __init__(
        self, cluster: ClusterCache, metrics: Metrics, wall: Callable[[], datetime], per_service: int, nodes: int = NODES
    ) -> None:
        self._cluster, self._metrics, self._wall = cluster, metrics, wall
        self._sums: MetricSums[Ref] = MetricSums()
        self._figures: dict[Ref, tuple[str, ServiceFigures]] = {}
        """Maps a service to its UID and metrics."""
        self._own: Slots[Ref] = Slots(per_service, lambda ref: ref.namespace)
        self._nodes: Slots[Ref] = Slots(nodes)
        self._recycles: Counter[tuple[str, str]] = Counter()
        self._broken = False

    def watch(self) -> None:
        """Register the functions that compute metrics when they are scraped."""
        ask = self._metrics.ask
        for name in _SUMMED:
            ask(name, partial(self._sums.totals, name))
        ask("ome_services", self._services)
        for name in ("wanted", "held", "wasted"):
            ask(f"ome_gpus_{name}", partial(self._summed_gpus, name))
        ask("ome_gpus_allocatable", lambda: {(): self._allocatable()})
        ask("ome_gpus_idle", lambda: {(): max(0, self._allocatable() - self._gpus("held"))})
        ask("ome_nodes", self._node_states)
        ask("ome_rollout_oldest_seconds", self._oldest_rollouts)
        ask("ome_gang_oldest_seconds", lambda: {(): self._oldest(each.waits for _, each in self._figures.values())})
        ask("ome_group_recycles_total", self._recycled)
        ask("ome_services_summed", lambda: {(): self._own.queued_count})

    def update_metrics(self, ref: Ref) -> None:
        """Update the metrics of an object after its reconciliation. An error in this method affects only the metrics."""
        try:
            if ref.kind == SERVICE:
                self._service(ref)
            elif ref.kind == RECORD:
                self._record(ref)
        except Exception:
            if not self._broken:
                logger.exception("cannot compute metrics of %s %s/%s", *ref)
            self._broken = True

    # --- after reconciliations ----------------------------------------------------------------------------------------

    def _service(self, ref: Ref) -> None:
        resource = self._cluster.find_resource(ref)
        if resource is None:
            self._figures.pop(ref, None)
            self._sums.replace(ref, {})
            if (follows := self._own.remove_owner(ref)) is not None:
                self._update(follows)
            return
        pods = self._cluster.pods_of(ref.namespace, ref.name)
        uid, before = self._figures.get(ref, ("", None))
        now = service_metrics.service_figures(resource.status, pods, self._roles(resource))
        self._figures[ref] = resource.uid, now
        self._update(ref)
        if before is not None and uid == resource.uid:
            self._count_recycles(before, now)
            self._count_group_starts(before, now)
            if now.complete_at and not before.complete_at and not before.was_whole:
                self._started(service_metrics.start(resource.created, now.complete_at, pods))

    def _roles(self, resource: Resource) -> Mapping[str, StoredRole]:
        """Return the stored data of each component of the service's desired revision; {} if the revision is not known."""
        components: Mapping[str, Mapping[str, str]] = resource.status.get("components") or {}
        wanted = next((each["updateRevision"] for each in components.values() if each.get("updateRevision")), "")
        return stored_roles(self._cluster, resource.ref, wanted) if wanted else {}

    def _update(self, ref: Ref) -> None:
        found = self._figures.get(ref)
        if found is not None:
            own = (ref.namespace, ref.name) if self._own.has_slot(ref) else ("", "")
            self._sums.replace(ref, _numbers(found[1], own))
            if (displaced := self._own.pop_displaced()) is not None:
                self._update(displaced)

    def _count_recycles(self, before: ServiceFigures, now: ServiceFigures) -> None:
        for group, after in now.recycled.items():
            known = before.recycled.get(group)
            times = after.times - (known.times if known is not None else 0)
            if times > 0:
                self._recycles[after.reason, after.node] += times

    def _count_group_starts(self, before: ServiceFigures, now: ServiceFigures) -> None:
        """Record each start of a group in the histograms once, and each part of the start once its duration is known."""
        for group, (time, seconds, parts) in now.starts.items():
            known_time, _, known = before.starts.get(group, ("", 0.0, {}))
            if time != known_time:
                self._metrics.group_starts.observe(seconds)
            for part in parts.keys() - (known.keys() if time == known_time else ()):
                self._metrics.group_start_parts.labels(part).observe(parts[part])

    def _started(self, parts: Mapping[str, float]) -> None:
        if parts:
            self._metrics.starts.observe(sum(parts.values()))
        for part, seconds in parts.items():
            self._metrics.start_parts.labels(part).observe(seconds)

    def _record(self, ref: Ref) -> None:
        record = self._cluster.record(ref.name)
        if record is None:
            self._sums.replace(ref, {})
            if (follows := self._nodes.remove_owner(ref)) is not None:
                self._record(follows)
            return
        node = (ref.name if self._nodes.has_slot(ref) else "",)
        numbers: Counter[Key] = Counter()
        for each in record.holdings:
            numbers["ome_weights", (each.state if each.state in _STATES else OTHER,)] += 1
            numbers["ome_node_weights_bytes", node] += each.bytes
            numbers["ome_node_weights_missing_bytes", node] += max(0, each.total - each.bytes)
            numbers["ome_node_weights_bytes_per_second", node] += each.speed
        self._sums.replace(ref, numbers)

    # --- when metrics are scraped -------------------------------------------------------------------------------------

    def _services(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of services by state. Services that have not been reconciled yet are counted as Unknown, so that
        the total is right from the first scrape on.
        """
        found = dict(self._sums.totals("ome_services"))
        if (unseen := len(self._cluster.resources[SERVICE]) - len(self._figures)) > 0:
            key = ("Unknown", OTHER)
            found[key] = found.get(key, 0) + unseen
        return found

    def _summed_gpus(self, which: str) -> Mapping[tuple[str, ...], float]:
        return {(): self._gpus(which)}

    def _gpus(self, which: str) -> int:
        return sum(self._sums.totals(f"ome_service_gpus_{which}").values())

    def _allocatable(self) -> int:
        return sum(each.node.gpus for each in self._cluster.nodes if each.node.ready)

    def _node_states(self) -> Mapping[tuple[str, ...], float]:
        ready = sum(each.node.ready for each in self._cluster.nodes)
        return {("ready",): ready, ("unready",): len(self._cluster.nodes) - ready}

    def _oldest_rollouts(self) -> Mapping[tuple[str, ...], float]:
        now, oldest = self._wall(), dict[tuple[str, ...], float]()
        for _, each in self._figures.values():
            if each.step:
                oldest[each.step,] = max(oldest.get((each.step,), 0.0), seconds_since(each.stepped, now))
        return oldest

    def _oldest(self, moments: Iterable[str]) -> float:
        earliest = min((moment for moment in moments if moment), default="")
        return seconds_since(earliest, self._wall())

    def _recycled(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of recycled groups by reason and node. Nodes that no longer exist are left out, because
        otherwise the number of node names would have no limit.
        """
        for key in [key for key in self._recycles if key[1] and self._cluster.node(key[1]) is None]:
            del self._recycles[key]
        return {key: float(times) for key, times in self._recycles.items()}


def _numbers(now: ServiceFigures, own: tuple[str, str]) -> Mapping[Key, int]:
    found: dict[Key, int] = {
        ("ome_services", now.ready): 1,
        ("ome_service_ready", own): int(now.ready[0] == "True"),
        ("ome_service_complete", own): int(now.is_complete),
        ("ome_service_gpus_wanted", own): now.wanted,
        ("ome_service_gpus_held", own): now.held,
        ("ome_service_gpus_wasted", own): now.wasted,
    }
    if now.advice:
        found["ome_advised_services", (now.advice,)] = 1
    if now.follows:
        found["ome_demand_services", (now.follows,)] = 1
    if now.surplus_reason:
        found["ome_demand_surplus_services", (now.surplus_reason,)] = 1
    if now.moved_reason:
        found["ome_moving_services", (now.moved_reason,)] = 1
    if now.transfers_fail:
        found["ome_transfers_failing_services", ()] = 1
    if now.step:
        found["ome_rollouts", (now.step,)] = 1
    for place, number in now.groups.items():
        found["ome_groups", place] = number
        found["ome_service_groups", (*own, *place)] = number
    for place, number in now.waiting.items():
        found["ome_gangs_waiting", place] = number
    return found
