"""Tests of when the registry reads and probes its engines and reads its router, and of how it interprets the responses."""

import asyncio
from typing import Any

import pytest

from ome_operator.registry.engine_client import PAGE_BYTES, TIMEOUT
from ome_operator.registry.silence import QUIET
from ome_operator.registry.telemetry import Foreign
from tests.unit.registry.conftest import Engine

pytestmark = pytest.mark.looptime
LOADS = {"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 2, "token_usage": 0.25, "disaggregation": {"mode": "null"}}]}
VLLM = "vllm:num_requests_running 5\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 7\n"


async def test_the_load_is_read_every_five_seconds_and_the_metrics_every_ten(engine: Engine) -> None:
    engine.pages |= {"/v1/loads": (200, LOADS), "/metrics": (200, "sglang:num_requests_total 5\n")}
    found = await engine.read()
    assert found["leaders"][0]["load"] == {
        "age": 0,
        "running": 1,
        "waiting": 2,
        "inTransfer": 0,
        "cacheUse": 0.25,
    }
    for _ in range(40):
        await engine.read(after=1.0)
    assert (engine.times("/v1/loads"), engine.times("/metrics")) == (9, 5)
    assert ("/v1/loads", "Bearer key") in engine.asked, "with the key, like the router"


async def test_engine_without_metrics_is_read_once_a_minute(engine: Engine) -> None:
    engine.pages["/v1/loads"] = 200, LOADS
    for _ in range(100):
        found = await engine.read(after=1.0)
    assert engine.times("/metrics") == 2 and "work" not in found["leaders"][0]


async def test_load_of_vllm_is_read_from_its_metrics(engine: Engine) -> None:
    engine.pages["/metrics"] = 200, VLLM
    found = await engine.read()
    assert found["leaders"][0]["load"]["running"] == 5
    engine.pages["/metrics"] = 200, VLLM.replace("total 7", "total 27")
    found = await engine.read(after=10.0)
    assert found["leaders"][0]["work"] == {"age": 0, "window": 10, "outputTokens": 2}
    assert engine.times("/v1/loads") == engine.times("/get_load") == 1


async def test_load_of_an_older_engine_is_read_from_get_load(engine: Engine) -> None:
    engine.pages["/get_load"] = 200, [{"num_reqs": 3}]
    assert (await engine.read())["leaders"][0]["load"]["running"] == 3 and engine.reader.request_count("u") == 3


ODD: dict[str, tuple[int, Any]] = {
    "it refuses": (401, {}),
    "it is broken": (500, "x"),
    "it sends elsewhere": (302, "http://169.254.169.254/latest"),
    "more values than memory": (200, {"loads": [[]] * 2**18}),
    "more bytes than are read": (200, {"loads": [], "more": "x" * 2**20}),
    "something else": (200, {"loads": [{}]}),
    "no JSON": (200, "hello"),
    "nested too deep": (200, "[" * 100_000),
}


@pytest.mark.parametrize("case", ODD)
async def test_malformed_response_is_a_failed_reading(engine: Engine, case: str) -> None:
    engine.pages["/v1/loads"] = 200, LOADS
    await engine.read()
    engine.pages["/v1/loads"] = ODD[case]
    found = await engine.read(after=5.0)
    assert found["leaders"][0]["load"]["running"] == 1 and found["leaders"][0]["load"]["age"] == 5


async def test_oversized_metrics_page_is_not_read_completely(engine: Engine) -> None:
    engine.pages["/metrics"] = 200, "sglang:num_requests_total 5\n" + "#" * PAGE_BYTES
    assert "work" not in (await engine.read())["leaders"][0]


async def test_hanging_engine_delays_no_other_reading(engine: Engine) -> None:
    engine.hangs = True
    assert TIMEOUT.total is not None
    async with asyncio.timeout(3 * TIMEOUT.total + 1):
        found = await engine.read()
    assert "load" not in found["leaders"][0]


async def test_unreachable_engine_has_no_load(engine: Engine) -> None:
    engine.leaders = [engine.leaders[0]._replace(url="http://127.0.0.1:1")]
    assert "load" not in (await engine.read())["leaders"][0]


async def test_waiting_leader_is_not_read_and_removed_leader_is_dropped(engine: Engine) -> None:
    engine.pages["/v1/loads"] = 200, LOADS
    waiting = engine.leaders[0]._replace(state="waiting", listed=False)
    engine.leaders = [waiting]
    await engine.read()
    assert engine.times("/v1/loads") == 0
    engine.leaders = [waiting._replace(state="draining")]
    await engine.read(after=1.0)
    assert engine.times("/v1/loads") == 1 and engine.reader.request_count("u") == 3
    engine.reader.update_leaders((), ())
    assert engine.reader.request_count("u") is None


async def test_a_draining_leader_is_empty_after_two_readings(engine: Engine) -> None:
    engine.pages["/v1/loads"] = 200, LOADS
    engine.leaders = [engine.leaders[0]._replace(state="draining", listed=False)]
    engine.reader.update_leaders(engine.leaders, ())
    await engine.read()
    counts = []
    for at in (5, 10, 15, 15.2):
        idle = {"num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": 0, "timestamp": 1e9 + at}
        engine.pages["/v1/loads"] = 200, {"loads": [{**idle, "disaggregation": {"mode": "null"}}]}
        counts.append((await engine.read(after=5.0))["leaders"][0]["load"]["emptyReadings"])
    assert counts == [0, 1, 2, 0], "the first load had no time, and the last one is from before a step of the engine"


async def test_summary_contains_received_and_running_requests_of_the_router(engine: Engine) -> None:
    name = "smg_http_responses_total"
    text = f'smg_router_requests_total{{a="b"}} %d\n{name}{{status_code="200"}} 9\n{name}{{status_code="503"}} %d\n'
    engine.pages["/router"] = 200, text % (10, 1)
    found = await engine.read()
    assert found["router"] == {"age": 0, "window": 0, "inFlight": 4, "inFlightAge": 0}, "both engines count each"
    engine.pages["/router"] = 200, text % (60, 6)
    found = await engine.read(after=5.0)
    assert found["router"] == {"age": 0, "window": 5, "requests": 10, "errors": 1, "inFlight": 4, "inFlightAge": 5}


async def test_many_clients_cause_one_summary_per_second(engine: Engine) -> None:
    first = await engine.read()
    assert engine.reader.summary("s", Foreign(0, None)) is first
    engine.now += 1.0
    assert engine.reader.summary("s", Foreign(0, None)) is not first


async def test_exception_in_the_reader_is_logged_and_does_not_end_it(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.leaders = None  # type: ignore[assignment]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await engine.reader.run()
    assert "cannot read the load of engines" in caplog.text


# --- silence ------------------------------------------------------------------------------------------------------------

STANDING = {"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 0, "timestamp": 5.0}]}


async def stops(engine: Engine) -> None:
    """Read an engine that works and then stops."""
    engine.pages["/v1/loads"] = 200, {"loads": [{**STANDING["loads"][0], "timestamp": 0.0}]}
    await engine.read()
    engine.pages["/v1/loads"] = 200, STANDING
    await engine.read(after=5.0)


async def probe(engine: Engine, after: float = 0.0) -> None:
    """Let time pass, and wait for the probes that are due."""
    engine.now += after
    await engine.reader.begin_probes()
    await asyncio.gather(*engine.reader._probes.values())


async def test_stalled_engine_without_probe_answer_is_silent(engine: Engine) -> None:
    engine.pages["/health_generate"] = 0, ""
    await stops(engine)
    await probe(engine, after=QUIET - 0.1)
    assert engine.times("/health_generate") == 0
    await probe(engine, after=0.1)
    assert not engine.reader.silent_leaders and not engine.changes
    await probe(engine, after=1.0)
    assert engine.reader.silent_leaders == {"u"} and engine.changes == 1
    found = await engine.read(after=2.0)
    assert found["leaders"][0]["silence"] == {"age": 2, "seconds": 3}
    moved = {**STANDING["loads"][0], "timestamp": 9.0}
    engine.pages["/v1/loads"] = 200, {"loads": [moved]}
    found = await engine.read(after=5.0)
    assert not engine.reader.silent_leaders and engine.changes == 2 and "silence" not in found["leaders"][0]


async def test_engine_that_answers_a_probe_is_probed_again_later(engine: Engine) -> None:
    engine.pages["/health_generate"] = 200, ""
    await stops(engine)
    for _ in range(20):
        await probe(engine, after=1.0)
    assert not engine.reader.silent_leaders and engine.times("/health_generate") == 2


@pytest.mark.parametrize("status", [401, 404, 503])
async def test_an_answer_without_the_scheduler_proves_nothing(engine: Engine, status: int) -> None:
    engine.pages["/health_generate"] = status, ""
    await stops(engine)
    for _ in range(30):
        await probe(engine, after=1.0)
    assert not engine.reader.silent_leaders and engine.times("/health_generate") == 5


async def test_a_paused_engine_is_not_silent(engine: Engine) -> None:
    """A paused engine does not count as one that does not answer. If a paused engine has not answered a health request for
    20 s, it also reports that it is unhealthy.
    """
    engine.pages |= {"/health_generate": (0, ""), "/ready": (503, ""), "/ping": (200, "")}
    await stops(engine)
    await probe(engine, after=QUIET)
    assert (await engine.read())["leaders"][0]["paused"] is True
    engine.pages["/ping"] = 503, ""
    for _ in range(60):
        await probe(engine, after=1.0)
    assert not engine.reader.silent_leaders and engine.times("/health_generate") == 13


async def test_only_leaders_that_receive_requests_are_probed(engine: Engine) -> None:
    engine.pages["/health_generate"] = 0, ""
    await stops(engine)
    listed = engine.leaders[0]
    for state in (listed._replace(state="draining"), listed._replace(state="waiting", listed=False)):
        engine.leaders = [state]
        await probe(engine, after=60.0)
        assert engine.times("/health_generate") == 0
    engine.leaders = [listed._replace(state="silent", listed=False)]
    await probe(engine)
    await engine.read()
    assert engine.times("/health_generate") == 1 and engine.times("/v1/loads") == 4, "silent leaders are also read"


async def test_engine_that_does_not_report_its_times_is_never_probed(engine: Engine) -> None:
    engine.pages |= {"/v1/loads": (200, LOADS), "/health_generate": (0, "")}
    await engine.read()
    await probe(engine, after=600.0)
    assert engine.times("/health_generate") == 0


async def test_summary_contains_the_uptime_of_the_registry(engine: Engine) -> None:
    assert (await engine.read(after=90.0))["upFor"] == 90


async def test_starting_engine_is_read_until_healthy(engine: Engine) -> None:
    """An engine that is starting is asked until it is healthy. Then a reconciliation begins at once, and others follow
    closely until the leader is ready.
    """
    (ready,) = engine.leaders
    engine.leaders = [ready._replace(state="waiting", why="the leader is not ready", listed=False, is_starting=True)]
    engine.reader.update_leaders(engine.leaders, [])
    for answer, moments in ((0, []), (503, ["answersFor"]), (200, ["answersFor", "healthyFor"])):
        engine.pages["/ping"] = answer, "x"
        assert not engine.reader.expects_leaders and engine.changes == 0
        engine.now += 1.0
        await engine.reader.watch_starts()
        assert [*(await engine.read(after=1.0))["leaders"][0].get("start", {})] == moments
    assert engine.reader.expects_leaders and engine.changes == 1
    engine.now += 1.0
    assert engine.reader.healthy_seconds == {ready.uid: 2.0}
    for answer, found in ((200, {ready.uid: 2.0}), (503, {}), (200, {ready.uid: 0.0})):
        engine.pages["/ping"] = answer, "x"
        await engine.reader.watch_starts()
        assert engine.reader.healthy_seconds == found
    assert engine.times("/ping") == 6 and engine.changes == 1
    engine.reader.update_leaders([ready], [])
    assert not engine.reader.expects_leaders and not engine.reader.healthy_seconds
    await engine.reader.watch_starts()
    assert engine.times("/ping") == 6, "it is ready"


async def test_answer_of_an_ended_container_is_ignored(engine: Engine) -> None:
    starts = engine.leaders[0]._replace(state="waiting", listed=False, is_starting=True, started=5.0)
    engine.leaders = [starts]
    engine.reader.update_leaders(engine.leaders, [])

    def restarted() -> str:
        engine.reader.update_leaders([starts._replace(started=6.0)], [])
        return "x"

    engine.pages["/ping"] = 503, restarted
    await engine.reader.watch_starts()
    engine.pages["/ping"] = 200, "x"
    engine.leaders = [starts._replace(started=6.0)]
    await engine.reader.watch_starts()
    assert engine.times("/ping") == 2 and not engine.reader.healthy_seconds


async def test_startup_phases_of_an_engine_are_in_the_summary(engine: Engine) -> None:
    labels = 'model_name="m",engine_type="decode"'
    engine.pages["/metrics"] = (
        200,
        "\n".join(
            [
                f'sglang:startup_time_seconds{{{labels},phase="load_weight"}} 12.5',
                f'sglang:startup_time_seconds{{{labels},phase="scheduler_e2e"}} 25.0',
                f'sglang:startup_time_seconds{{{labels},phase="tokenizer_e2e"}} 30.0',
                f'sglang:startup_time_seconds{{{labels},phase="kv_cache_allocation"}} 0.0',
                f'sglang:startup_cuda_graph_time_seconds{{{labels},phase="prefill"}} 3.0',
                f'sglang:startup_cuda_graph_time_seconds{{{labels},phase="decode"}} 5.0',
            ]
        ),
    )
    found = (await engine.read())["leaders"][0]["start"]
    assert found == {"weights": 12.5, "own": 30, "graphs": 8}, "a phase without any time is left out"


async def test_first_successful_request_of_a_leader_is_in_the_summary(engine: Engine) -> None:
    (ready,) = engine.leaders
    page = f'smg_worker_cb_outcomes_total{{worker="{ready.url}",outcome="success"}} %d\n'
    starts = ready._replace(state="waiting", listed=False, is_starting=True)
    found = []
    for leader, succeeded in ((starts, 3), (starts, 3), (ready, 3), (ready, 4), (ready, 9)):
        engine.pages["/router"] = 200, page % succeeded
        engine.leaders = [leader]
        engine.reader.update_leaders(engine.leaders, [])
        found.append((await engine.read(after=2.0))["leaders"][0].get("start", {}))
    assert found == [{}, {}, {"listedFor": 2}, {"listedFor": 4, "succeededFor": 0}, {"listedFor": 6, "succeededFor": 2}]
    assert engine.times("/router") == 5


async def test_router_counts_are_not_assigned_to_a_leader_without_address(engine: Engine) -> None:
    starts = engine.leaders[0]._replace(url="", state="waiting", listed=False)
    engine.pages["/router"] = 200, 'smg_worker_cb_outcomes_total{worker="",outcome="success"} 3\n'
    engine.leaders = [starts]
    engine.reader.update_leaders(engine.leaders, [])
    await engine.read()
    assert engine.reader._memories["u"].answer_signs.succeeded is None
