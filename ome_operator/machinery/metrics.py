"""Prometheus metrics of the operator, in a registry of their own. What there is stands in `families.py`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ome_operator.machinery.metric_catalog import BY_NAME, COUNTER, Family

Values = Callable[[], Mapping[tuple[str, ...], float]]
"""Values of the labels -> number, read when somebody scrapes. Cheap: the event loop waits for it."""


class Metrics:
    """What is counted as it happens; `ask` adds what is read at scrape time."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series and nobody asks for them
        self.registry = CollectorRegistry()
        self.leader = self._gauge("ome_leader")
        self.stalls, self.lags = self._histogram("ome_loop_stall_seconds"), self._histogram("ome_loop_lag_seconds")
        self.starts = self._histogram("ome_service_start_seconds")
        self.start_parts = self._histogram("ome_service_start_part_seconds")
        self._passes, self._pass_seconds = self._counter("ome_passes_total"), self._histogram("ome_pass_seconds")
        self._requests = self._counter("ome_api_requests_total")
        self._request_seconds = self._histogram("ome_api_request_seconds")

    def request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """A request to the API server ended; code 0: without an answer."""
        self._requests.labels(verb, kind, str(code)).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def passed(self, kind: str, result: str, seconds: float) -> None:
        """A pass over a key of this kind ended."""
        self._passes.labels(kind, result).inc()
        self._pass_seconds.labels(kind).observe(seconds)

    def ask(self, name: str, values: Values) -> None:
        """A gauge or counter of `families.py` whose values are asked for at scrape time."""
        self.registry.register(_Asked(BY_NAME[name], values))

    async def page(self) -> str:
        """The text format, made in slices of a metric each: passes go on meanwhile."""
        parts = []
        for family in self.registry.collect():
            parts.append(generate_latest(_Alone(family)))
            await asyncio.sleep(0)
        return b"".join(parts).decode()

    def _gauge(self, name: str) -> Gauge:
        family = BY_NAME[name]
        return Gauge(name, family.text, family.labels, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        family = BY_NAME[name]
        return Counter(name, family.text, family.labels, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        family = BY_NAME[name]
        return Histogram(name, family.text, family.labels, registry=self.registry, buckets=family.buckets)


class _Alone(CollectorRegistry):
    """A single metric."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterable[Metric]:
        yield self._family


class _Asked(Collector):
    def __init__(self, family: Family, values: Values) -> None:
        self._family, self._values = family, values

    def collect(self) -> Iterable[Metric]:
        name, _, text, labels, _ = self._family
        kind = CounterMetricFamily if self._family.kind == COUNTER else GaugeMetricFamily
        found = kind(name, text, labels=labels)
        for values, number in self._values().items():
            found.add_metric(list(values), number)
        yield found
