"""Prometheus metrics of the operator in their own registry. `metric_catalog.py` declares them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ome_operator.machinery.metric_catalog import BY_NAME, COUNTER, Family

Values = Callable[[], Mapping[tuple[str, ...], float]]
"""A function that returns the values of a metric, as a map from the values of its labels to the value. It is called at
each scrape. It must be fast, because it blocks the event loop."""


class Metrics:
    """The operator's metrics. Most are updated by events; `ask` adds metrics that are computed at a scrape."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # _created series would double the number of series and are not used
        self.registry = CollectorRegistry()
        self.leader = self._gauge("ome_leader")
        self.stalls, self.lags = self._histogram("ome_loop_stall_seconds"), self._histogram("ome_loop_lag_seconds")
        self.starts = self._histogram("ome_service_start_seconds")
        self.start_parts = self._histogram("ome_service_start_part_seconds")
        self.group_starts = self._histogram("ome_group_start_seconds")
        self.group_start_parts = self._histogram("ome_group_start_part_seconds")
        self._passes, self._pass_seconds = self._counter("ome_passes_total"), self._histogram("ome_pass_seconds")
        self._requests = self._counter("ome_api_requests_total")
        self._request_seconds = self._histogram("ome_api_request_seconds")

    def request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """Record a request to the API server. `code` is the status code, or 0 if there was no response."""
        self._requests.labels(verb, kind, str(code)).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def record_pass(self, kind: str, result: str, seconds: float) -> None:
        """Record the result and the duration, in seconds, of a reconciliation of an object of the kind `kind`."""
        self._passes.labels(kind, result).inc()
        self._pass_seconds.labels(kind).observe(seconds)

    def ask(self, name: str, values: Values) -> None:
        """Add a gauge or counter of `metric_catalog.py` whose values the function `values` computes at each scrape."""
        self.registry.register(_Asked(BY_NAME[name], values))

    async def page(self) -> str:
        """Return all metrics in the Prometheus text format. The text is generated one metric at a time, so that other tasks
        can run in between.
        """
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
    """A Prometheus registry that contains a single metric, so that the page can be generated metric by metric."""

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
