"""Prometheus metrics of an operator, in a registry of their own."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Values = Callable[[], Mapping[str, float]]
"""Label value -> number, read when somebody scrapes."""


class Metrics:
    """What is counted as it happens; `watch` adds what is read at scrape time."""

    def __init__(self, prefix: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series and nobody asks for them
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self.leader = Gauge(f"{prefix}_leader", "1 while this process leads", registry=self.registry)
        self._passes = Counter(f"{prefix}_passes", "Passes", ["kind", "result"], registry=self.registry)
        self._seconds = Histogram(
            f"{prefix}_pass_seconds",
            "Seconds of a pass",
            ["kind"],
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60),
            registry=self.registry,
        )
        self._requests = Counter(
            f"{prefix}_api_requests", "Requests to the API server", ["verb", "kind", "code"], registry=self.registry
        )
        self._request_seconds = Histogram(
            f"{prefix}_api_request_seconds",
            "Seconds of a request to the API server",
            ["verb"],
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60),
            registry=self.registry,
        )

        self.stalls = Histogram(
            f"{prefix}_loop_stall_seconds",
            "Seconds for which the event loop did not answer",
            buckets=(0.25, 1, 5, 15, 60),
            registry=self.registry,
        )

    def request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """A request to the API server ended; code 0: without an answer."""
        self._requests.labels(verb, kind, str(code)).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def passed(self, kind: str, result: str, seconds: float) -> None:
        """A pass over a key of this kind ended."""
        self._passes.labels(kind, result).inc()
        self._seconds.labels(kind).observe(seconds)

    def watch(self, name: str, text: str, label: str, values: Values) -> None:
        """A gauge by one label whose values are asked for at scrape time."""
        self.registry.register(_Asked(f"{self._prefix}_{name}", text, label, values))

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)


class _Asked(Collector):
    def __init__(self, name: str, text: str, label: str, values: Values) -> None:
        self._name, self._text, self._label, self._values = name, text, label, values

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._text, labels=[self._label])
        for value, number in self._values().items():
            family.add_metric([value], number)
        yield family
