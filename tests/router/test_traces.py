"""Test that the spans of a real sglang-router, started as the operator starts it, reach a collector, and that prefill and
decode join its trace.
"""

import sys
from pathlib import Path

import aiohttp

from ome_local import ports
from ome_operator.core.traces.pods import SpanOrigin, add_trace_arguments
from ome_operator.engines.traces import trace_obstacle
from tests.router.conftest import PORT, Engine, address, router_process
from tests.support.otlp import Collector
from tests.support.waiting import wait_until

CALLER = f"{0xABC:032x}"


async def test_request_becomes_one_trace_through_router_prefill_and_decode(tmp_path: Path) -> None:
    collector, engines = Collector(), [Engine(address(31), "prefill"), Engine(address(32), "decode")]
    box = {
        "image": "sglang-router:0.3.2",
        "env": [{"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "deployment.environment=test"}],
    }
    assert trace_obstacle(box, {}) == ""
    box = add_trace_arguments(box, await collector.start(), SpanOrigin("svc", "team", "r1", "router"))
    env = {each["name"]: each["value"].replace("$(POD_NAME)", "svc-router-r1-x") for each in box["env"]}
    port, metrics = ports.choose(2)
    workers = [f"http://{engine.ip}:{PORT}" for engine in engines]
    words = "--pd-disaggregation", "--prefill", workers[0], "8998", "--decode", workers[1], *box["args"]
    env = {"PATH": str(Path(sys.executable).parent), **env}
    router = router_process(tmp_path, port, metrics, *words, env=env)
    for engine in engines:
        await engine.start()
    await router.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def answers() -> bool:
                headers = {"traceparent": f"00-{CALLER}-{1:016x}-01"}
                url = f"http://127.0.0.1:{port}/generate"
                try:
                    async with session.post(url, json={"text": "0"}, headers=headers) as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            async def told() -> bool:
                return len(collector.spans) > 0

            await wait_until(answers, within=30)
            await wait_until(told, within=10)
    finally:
        await router.stop()
        await collector.stop()
        for engine in engines:
            await engine.stop()
    (span,) = [span for span in collector.spans if span.name == "http_request"]
    assert [engine.traces for engine in engines] == [[f"00-{span.trace}-{span.id}-01"]] * 2, (
        "the spans of prefill and decode must be children of the router's span"
    )
    ours = {"ome.service": "svc", "ome.revision": "r1", "ome.role": "router", "k8s.namespace.name": "team"}
    assert ours.items() <= span.resource.items() and span.resource["k8s.pod.name"] == "svc-router-r1-x"
    assert 0 < span.seconds < 60
    assert span.resource["deployment.environment"] == "test", "attributes that the user sets must stay"
    # docs/traces.md states two facts about this version.
    assert span.resource["service.name"] == "smg" and (span.parent, span.trace != CALLER) == ("", True)
