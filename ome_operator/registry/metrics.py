"""Metrics of the registry, for Prometheus and the operator. Reading them needs no key, so they contain no names of pods
and no addresses (decisions 35).
"""

from collections import Counter as Count
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from ome_operator import keys
from ome_operator.registry.records import LeaderState
from ome_operator.registry.telemetry import Foreign

STATES = ("serving", "adding", "waiting", "draining", "silent")


class RegistryMetrics:
    """Metrics of one router's workers."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the creation times are not used
        self._registry = registry = CollectorRegistry()
        self._found, self._found_at = 0, 0.0
        about = (
            "Foreign workers found in the router's list of workers: workers that were not pods of the router's "
            "revision at any time in the last hour"
        )
        self._foreign = Counter(keys.FOREIGN_WORKERS, about, registry=registry)
        about = "Time at which the last foreign worker was found, in seconds since the epoch; 0: never"
        self._last = Gauge(keys.FOREIGN_WORKER_AT, about, registry=registry)
        self._leaders = Gauge(
            "ome_registry_leaders", "Leader pods of the router's revision by state", ["state"], registry=registry
        )

    def count_foreign(self, workers: int, now: float) -> None:
        """Increase the counter of foreign workers, which do not belong to this slice, by the number `workers` of foreign
        workers that have just been found. `now` is in seconds since the epoch.
        """
        if workers:
            self._foreign.inc(workers)
            self._last.set(now)
            self._found, self._found_at = self._found + workers, now

    def foreign(self, now: float) -> Foreign:
        """Return, for the summary, how many foreign workers have been found, and how long ago the last one was found. `now`
        is in seconds since the epoch.
        """
        return Foreign(self._found, max(0.0, now - self._found_at) if self._found else None)

    def render(self, leaders: Iterable[LeaderState]) -> str:
        """Return the metrics in the Prometheus text format."""
        states = Count(item.state for item in leaders)
        for state in STATES:
            self._leaders.labels(state).set(states[state])
        return generate_latest(self._registry).decode()
