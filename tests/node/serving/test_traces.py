"""Test that a request to real pods becomes one trace through router, prefill and decode, whose spans name their service,
role and pod (docs/traces.md).
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
import yaml

from ome_operator import keys
from tests.node.conftest import Steps
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, SINGLE, address, reached, remove, tokens
from tests.support.otlp import Collector, Span
from tests.support.rig import ROOT, Rig

SPACE = "traced"
PREFILL = {"prefill_bootstrap", "prefill_waiting", "prefill_forward", "prefill_transfer_kv_cache"}
DECODE = {"decode_bootstrap", "decode_transferred", "decode_waiting", "decode_forward", "fake_output"}


class Listening:
    """A trace collector that runs in its own thread, at an address of this machine."""

    def __init__(self, host: str) -> None:
        self.collector, self._loop = Collector(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.endpoint = asyncio.run_coroutine_threadsafe(self.collector.start(host), self._loop).result(10)

    def stop(self) -> None:
        """Stop the collector and its thread."""
        asyncio.run_coroutine_threadsafe(self.collector.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def requests(self) -> list[list[Span]]:
        """Return the spans of each trace that began in a router. Traces of probes do not begin there."""
        spans = [*self.collector.spans]
        roots = [span.trace for span in spans if span.name == "http_request"]
        return [[span for span in spans if span.trace == trace] for trace in roots]


@pytest.fixture(scope="module")
def listening(serving: Rig) -> Iterator[Listening]:
    found = Listening(serving.cluster.node.host)
    yield found
    found.stop()


@ON_OUR_NODE
def test_request_becomes_one_trace_through_router_prefill_and_decode(
    serving: Rig, listening: Listening, steps: Steps
) -> None:
    namespace, service = yaml.safe_load_all((ROOT / SINGLE).read_text())
    namespace["metadata"]["name"] = SPACE
    service["metadata"] = {"name": SPACE, "namespace": SPACE, "annotations": {keys.TRACES: listening.endpoint}}
    serving.cluster.apply(namespace)
    try:
        with steps.measure("1 prefill + 1 decode + router with traces, apply to Ready"):
            serving.create(service)
            serving.ready(SPACE, SPACE, READY_WITHIN_S)
        assert "does nothing" not in str(serving.condition(SPACE, SPACE, "Advice"))
        url = address(serving, SPACE, SPACE)
        serving.wait("kube-proxy knows the endpoints", lambda: reached(url), 30)
        assert tokens(url, "The future of AI is", 4)

        def whole() -> list[Span]:
            """Return the spans of a trace that contains the ended spans of prefill and decode; [] if there is no such trace
            yet.
            """
            found = listening.requests()
            return next((spans for spans in found if {span.name for span in spans} >= PREFILL | DECODE), [])

        spans = serving.wait("a whole trace", whole, 60)
        pods = {pod["metadata"]["name"]: pod["metadata"]["labels"] for pod in serving.all("Pod", SPACE)}
    finally:
        remove(serving, SPACE)
        serving.delete("Namespace", "", SPACE)
    roles = Counter(span.resource["ome.role"] for span in spans)
    assert roles.keys() == {"router", "prefill", "decode"}, roles
    for span in spans:
        said, labels = span.resource, pods[span.resource["k8s.pod.name"]]
        assert (said["ome.service"], said["k8s.namespace.name"]) == (SPACE, SPACE)
        assert said["ome.revision"] == labels[keys.REVISION] and said.get("ome.group") == labels.get(keys.GROUP_INDEX)
        role = said["ome.role"]
        assert said["service.name"] == ("smg" if role == "router" else f"{SPACE}-{role}")
    (root,) = [span for span in spans if not span.parent]
    assert root.name == "http_request"
    assert sum(span.parent == root.id for span in spans) == 2, "the spans of prefill and of decode follow that of the router"
    for span in sorted(spans, key=lambda span: span.resource["ome.role"]):
        steps.note(f"span {span.resource['ome.role']} {span.name}", f"{span.seconds * 1000:>8.1f} ms")
