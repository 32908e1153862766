"""Tests of the latency that the router adds to a request.

One run sends each request through the router, and also directly to prefill and decode, as the router does.
"""

import pytest

from tests.node.conftest import Steps
from tests.node.serving.conftest import MINUTES
from tests.support.rig import Rig
from tests.support.traffic import Report, burst


def figures(report: Report) -> str:
    """Percentiles of the answers."""
    return f"p50 {report.percentile(0.5) * 1000:>6.0f} ms   p99 {report.percentile(0.99) * 1000:>6.0f} ms"


@MINUTES
@pytest.mark.parametrize(("concurrency", "count"), [(1, 100), (16, 320)])
async def test_router_overhead(serving: Rig, tiny: str, steps: Steps, concurrency: int, count: int) -> None:
    """Directly means the same two requests with the same fields, sent to both leaders by the client."""
    pods = {pod["metadata"]["labels"]["component"]: pod for pod in serving.all("Pod", "kimi-k2-tiny")}
    prefill, decode = (pods[role]["status"]["podIP"] for role in ("engine", "decoder"))
    meet = {"bootstrap_host": prefill, "bootstrap_port": 8998}
    urls = [f"http://{ip}:30000" for ip in (prefill, decode)]
    await burst(tiny, 2 * concurrency, concurrency)  # connections, caches
    for name, report in (
        ("router", await burst(tiny, count, concurrency)),
        ("direct", await burst(urls[1], count, concurrency, urls[:1], **meet)),
        ("router, again", await burst(tiny, count, concurrency)),
    ):
        assert not report.failed, report.failed[0].error
        steps.note(f"{count} requests, {concurrency} at a time, {name}", figures(report))
