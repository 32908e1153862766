"""What the registry counts. Its page is open: it names no pod and no address (decisions 35). The operator reads it, too."""

from collections import Counter as Count
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from ome_operator import keys
from ome_operator.registry.reconcile import LeaderState

STATES = ("serving", "adding", "waiting", "draining")


class RegistryMetrics:
    """Of a router."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody asks for them
        self._registry = registry = CollectorRegistry()
        about = "Workers in the router's list that were no pods of its slice, nor had been lately"
        self._strangers = Counter(keys.STRANGERS, about, registry=registry)
        about = "When the last of them was found, in seconds since the epoch; 0: never"
        self._last = Gauge(keys.STRANGER_AT, about, registry=registry)
        self._leaders = Gauge("ome_registry_leaders", "Leaders of the slice by their state", ["state"], registry=registry)

    def found(self, strangers: int, now: float) -> None:
        """So many new strangers."""
        if strangers:
            self._strangers.inc(strangers)
            self._last.set(now)

    def render(self, leaders: Iterable[LeaderState]) -> str:
        """The text format."""
        states = Count(item.state for item in leaders)
        for state in STATES:
            self._leaders.labels(state).set(states[state])
        return generate_latest(self._registry).decode()
