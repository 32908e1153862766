"""Tests of what the registry remembers of its engines, and of the public summary."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.names import public_digest, slice_mark
from ome_operator.registry.answers import AnswerSigns
from ome_operator.registry.engine_load import UNKNOWN, EngineLoad, for_role, load_from_metrics, parse_loads
from ome_operator.registry.exposition import LARGEST, EnginePage, parse_engine_page
from ome_operator.registry.records import LeaderState
from ome_operator.registry.telemetry import (
    LEADERS,
    NEW,
    WINDOW,
    Foreign,
    LeaderMemory,
    RouterReading,
    summary,
    with_leader_state,
    with_load,
    with_work,
)

NOBODY = Foreign(0, None)
BUSY = EngineLoad(1.0, 0.0, 0.0)


def empty(at: float) -> EngineLoad:
    """Return the load of an engine without requests, taken at the time `at` of its own clock."""
    return EngineLoad(0.0, 0.0, 0.0, 0.0, 0.0, (at + 1e9,))


def leader(number: int = 0, **more: Any) -> LeaderState:
    """Return a leader that serves."""
    base = LeaderState(f"pod-{number}", f"uid-{number}", f"http://10.9.8.{number}:1", "decode", "serving", "", True, 1)
    return base._replace(**more)


def page(requests: float = 0.0, **buckets: float) -> EnginePage:
    """Return a metrics page. `buckets` contains the cumulative counts of the buckets with the bounds b1, b2, …"""
    bounds = {float(name[1:]): count for name, count in buckets.items()}
    return EnginePage("sglang", {"requests": requests}, {}, {"firstToken": bounds} if bounds else {})


def rank(running: Any = 1, waiting: Any = 2, inflight: Any = 3, **more: Any) -> dict[str, Any]:
    """Return the part of SGLang's load report that is about one rank."""
    apart = {"prefill_inflight_queue_reqs": inflight}
    core = {"num_running_reqs": running, "num_waiting_reqs": waiting, "token_usage": 0.5, "num_used_tokens": 8}
    return {**core, "timestamp": 1e9, "disaggregation": apart, **more}


LOADS: dict[str, tuple[Any, EngineLoad | None]] = {
    "every rank": ({"loads": [rank(), rank(token_usage=0.7)]}, EngineLoad(2.0, 4.0, 6.0, 0.7, 16.0, (1e9, 1e9))),
    "without the queues of transfers": (
        {"loads": [rank(disaggregation=None)]},
        EngineLoad(1.0, 2.0, None, 0.5, 8.0, (1e9,)),
    ),
    "an older engine": ([{"num_reqs": 3, "num_waiting_reqs": 1}, {"num_reqs": 0}], EngineLoad(3.0, 0.0)),
    "no rank": ({"loads": []}, None),
    "no rank of an older engine": ([], None),
    "a negative number": ({"loads": [rank(running=-1)]}, None),
    "text": ({"loads": [rank(running="1")]}, None),
    "no number": ({"loads": [rank(waiting=math.nan)]}, None),
    "more than is exact": ({"loads": [rank(inflight=10**400)]}, None),
    "a share that is none": ({"loads": [rank(token_usage="much")]}, EngineLoad(1.0, 2.0, 3.0, None, 8.0, (1e9,))),
    "ranks that are no list": ({"loads": {"0": rank()}}, None),
    "something else": ("hello", None),
    "nothing": (None, None),
}


@pytest.mark.parametrize("case", LOADS)
def test_engine_load_is_parsed(case: str) -> None:
    body, load = LOADS[case]
    assert parse_loads(body) == load


NOT_EMPTY = {
    "a request runs": empty(0)._replace(running=1.0),
    "a request waits": empty(0)._replace(waiting=1.0),
    "a request is in transfer": empty(0)._replace(in_transfer=2.0),
    "a request holds tokens": empty(0)._replace(locked=7.0),
    "transfers are unknown": empty(0)._replace(in_transfer=None),
    "running requests are unknown": empty(0)._replace(running=None),
    "tokens are unknown": empty(0)._replace(locked=None),
    "nothing is known": UNKNOWN,
}


@pytest.mark.parametrize("case", NOT_EMPTY)
def test_load_is_empty_only_if_all_numbers_are_known_and_zero(case: str) -> None:
    assert empty(0).is_empty and not NOT_EMPTY[case].is_empty


def test_computed_request_without_transfer_counts_only_for_prefill() -> None:
    load = parse_loads({"loads": [rank(0, 0, disaggregation=None, num_used_tokens=0)]})
    assert load is not None
    assert for_role(load, "decode").is_empty and for_role(load, "regular").is_empty
    assert not for_role(load, "prefill").is_empty


def test_metrics_gauges_give_the_load() -> None:
    assert load_from_metrics(EnginePage("vllm", {}, {"running": 1.0, "waiting": 2.0}, {})) == EngineLoad(1.0, 2.0)
    assert load_from_metrics(page()) == UNKNOWN


# --- empty readings -----------------------------------------------------------------------------------------------------

GOING = leader(state="draining", listed=False)


def test_empty_readings_count_only_after_the_router_removed_the_leader() -> None:
    memory = with_load(NEW, empty(1), 1.0, 1.1)
    assert memory.empty_readings == 0, "the router lists the leader"
    memory = with_leader_state(memory, GOING, 5.0)
    assert with_load(memory, empty(5), 4.9, 5.1).empty_readings == 0, "the router may have sent a request meanwhile"
    memory = with_load(memory, empty(5), 5.0, 5.1)
    memory = with_load(with_leader_state(memory, GOING, 8.0), empty(10), 10.0, 10.1)
    assert memory.empty_readings == 2


def after(*readings: EngineLoad | None) -> int:
    """Return the number of empty readings after these readings, taken every 5 s from a leader that the router has
    forgotten.
    """
    memory = with_load(with_leader_state(NEW, GOING, 0.0), empty(0), 0.0, 0.0)
    for number, each in enumerate(readings, 1):
        memory = with_load(memory, each, number * 5.0, number * 5.0)
    return memory.empty_readings


@pytest.mark.parametrize("load", [BUSY, None, UNKNOWN, *NOT_EMPTY.values()])
def test_request_or_failed_reading_resets_the_empty_count(load: EngineLoad | None) -> None:
    assert after(empty(5), empty(10)) == 2 and after(empty(5), empty(10), load) == 0


def test_zero_load_from_before_a_long_engine_step_is_not_empty() -> None:
    """Numbers from before a long step of the engine do not count as empty. SGLang reported 0 for 5 s while it computed a
    prompt of 1,870 tokens on a CPU.
    """
    assert after(empty(5), empty(5.1), empty(5.1)) == 0
    assert after(empty(5), empty(5.1), empty(15), empty(20)) == 2


def test_a_data_parallel_rank_that_is_in_a_long_step_is_not_empty() -> None:
    ranks = [empty(0)._replace(taken=(at + 1e9, other + 1e9)) for at, other in ((5, 5), (10, 5), (15, 15), (20, 20))]
    assert after(*ranks[:2]) == 0 and after(*ranks) == 2
    assert after(ranks[0], empty(10)) == 0, "one of the ranks does not report any more"


def test_engine_clock_that_was_set_back_resets_the_empty_count() -> None:
    assert after(empty(5), empty(-3600)) == 0


@pytest.mark.parametrize("again", [leader(), leader(state="adding", listed=False), leader(state="draining", listed=True)])
def test_leader_that_may_receive_requests_again_resets_the_empty_count(again: LeaderState) -> None:
    memory = with_load(with_load(with_leader_state(NEW, GOING, 0.0), empty(0), 0.0, 0.0), empty(5), 5.0, 5.0)
    assert memory.empty_readings == 1
    after = with_leader_state(memory, again, 6.0)
    assert after == memory._replace(forgotten_at=None, empty_readings=0, start_signs=after.start_signs)


def test_leader_not_listed_for_another_reason_is_not_empty() -> None:
    """A leader that is not in the router's list for another reason than its removal does not count as empty. It may become
    ready, be listed again and receive a request before the operator marks it.
    """
    memory = with_load(with_leader_state(NEW, leader(state="waiting", listed=False), 0.0), empty(0), 0.0, 0.0)
    assert with_load(memory, empty(5), 5.0, 5.0).empty_readings == 0


def test_failed_reading_keeps_the_numbers() -> None:
    memory = with_load(NEW, BUSY, 1.0, 1.0)
    assert with_load(memory, None, 9.0, 9.0) == memory


def test_empty_readings_are_reported_only_by_engines_with_complete_load() -> None:
    def reported(load: EngineLoad) -> object:
        memories = {"uid-0": with_load(NEW, load, 0.0, 0.0)}
        leaders = summary("s", [leader()], memories, RouterReading(), NOBODY, 1.0)["leaders"]
        return leaders[0]["load"].get("emptyReadings")

    assert reported(empty(0)) == 0 and reported(empty(0)._replace(running=3.0)) == 0
    for field in ("running", "waiting", "in_transfer", "locked"):
        assert reported(empty(0)._replace(**{field: None})) is None
    assert reported(empty(0)._replace(taken=())) is None


# --- rates --------------------------------------------------------------------------------------------------------------


def work(*readings: tuple[float, EnginePage]) -> dict[str, Any]:
    """Return the work in the summary after these readings, at the time of the last one."""
    memory = NEW
    for at, each in readings:
        memory = memory._replace(work=with_work(memory.work, each, at))
    found = summary("s", [leader()], {"uid-0": memory}, RouterReading(), NOBODY, readings[-1][0])
    return dict(found["leaders"][0]["work"])


def test_a_rate_needs_two_readings() -> None:
    assert work((0.0, page(5.0))) == {"age": 0, "window": 0}
    assert work((0.0, page(5.0)), (10.0, page(25.0))) == {"age": 0, "window": 10, "requests": 2}


def test_rates_cover_the_last_minute() -> None:
    assert work((0.0, page(0.0)), (30.0, page(3000.0)), (61.0 + 29.0, page(3060.0))) == {
        "age": 0,
        "window": WINDOW,
        "requests": 1,
    }


def test_decreased_counter_restarts_the_rate() -> None:
    found = work((0.0, page(100.0)), (10.0, page(3.0)))
    assert found == {"age": 0, "window": 0}, "unknown, and not 0"
    assert work((0.0, page(100.0)), (10.0, page(3.0)), (20.0, page(23.0)))["requests"] == 2


def test_bucket_counts_are_differences_over_the_window() -> None:
    before, after = page(0.0, b1=5, b2=9, binf=10), page(1.0, b1=6, b2=14, binf=15)
    assert work((0.0, before), (10.0, after))["firstToken"] == [[1.0, 1.0], [2.0, 4.0]]
    assert work((0.0, before), (10.0, page(1.0, b1=5, b2=9, binf=12)))["firstToken"] == [[None, 2.0]]


def test_changed_buckets_count_as_another_process() -> None:
    assert work((0.0, page(0.0, b1=5, binf=6)), (10.0, page(1.0, b2=5, binf=6))) == {"age": 0, "window": 0}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1e15)), min_size=1, max_size=12))
def test_rate_is_finite_and_not_negative_for_any_counters(steps: list[tuple[float, float]]) -> None:
    at, readings = 0.0, []
    for seconds, count in steps:
        at += seconds
        readings.append((at, page(count)))
    found = work(*readings)
    assert 0 <= found["window"] <= WINDOW
    assert all(math.isfinite(value) and value >= 0 for value in found.values())


# --- the summary --------------------------------------------------------------------------------------------------------


def test_summary_contains_no_names_or_addresses() -> None:
    """The summary contains no names and no addresses, because it is public, like the metrics (decisions 35)."""
    memory = with_load(NEW, BUSY, 1.0, 1.0)
    states = [leader(each, pod=f"secret-{each}", why="rank 1 of secret-pod is missing") for each in range(3)]
    text = json.dumps(summary(slice_mark("team", "a=svc"), states, {"uid-0": memory}, RouterReading(), NOBODY, 2.0))
    assert not any(word in text for word in ("secret", "uid-", "10.9.8", "http", "team", "svc"))
    assert public_digest("uid-1") in text


def test_unknown_numbers_are_omitted_from_the_summary() -> None:
    found = summary("s", [leader()], {}, RouterReading(), NOBODY, 1.0)
    assert found["leaders"] == [{"id": public_digest("uid-0"), "role": "decode", "state": "serving", "listed": True}]
    assert found["router"] == {} and found["strangers"] == {"found": 0, "age": None}
    part = summary("s", [leader()], {"uid-0": with_load(NEW, EngineLoad(1.0), 0.0, 0.5)}, RouterReading(), NOBODY, 2.0)
    assert part["leaders"][0]["load"] == {"age": 1.5, "running": 1}


def test_summary_contains_the_ages_of_router_numbers() -> None:
    readings = with_work(with_work((), page(0.0), 0.0), page(10.0), 5.0)
    found = summary("s", (), {}, RouterReading(readings, 4, 6.0), Foreign(2, 7.5), 8.0)
    assert found["router"] == {"age": 3, "window": 5, "requests": 2, "inFlight": 4, "inFlightAge": 2}
    assert found["strangers"] == {"found": 2, "age": 7.5}


def test_size_of_the_largest_summary_is_limited() -> None:
    buckets = {float(each): float(each * 1000) for each in range(1, 65)}
    full = LeaderMemory(BUSY, 1.0)
    for at in (0.0, 50.0):
        counters = dict.fromkeys(("requests", "promptTokens", "outputTokens", "failedTransfers"), 1e12 + at)
        histograms = {name: {bound: count * (1 + at) for bound, count in buckets.items()} for name in ("firstToken", "x")}
        full = full._replace(work=with_work(full.work, EnginePage("sglang", counters, {}, histograms), at))
    states = [leader(each) for each in range(LEADERS + 44)]
    found = summary("s", states, {each.uid: full for each in states}, RouterReading(), NOBODY, 50.0)
    assert len(found["leaders"]) == LEADERS and found["omitted"] == 44
    assert len(json.dumps(found)) < 1_100_000


def test_slice_mark_does_not_depend_on_selector_order() -> None:
    assert slice_mark("n", "a=1,b=2") == slice_mark("n", "b=2,a=1") != slice_mark("m", "a=1,b=2")


@pytest.mark.parametrize(("is_proven", "expected"), [(True, {"age": 3, "seconds": 9}), (False, None)])
def test_leader_is_reported_silent_only_if_proven(is_proven: bool, expected: Any) -> None:
    signs = AnswerSigns(failures=2, proven_since=1.0, proven_at=7.0, probed_at=9.0, proofs=int(is_proven))
    leader = LeaderState("p", "u", "http://h", "decode", "silent", "", False, None)
    memories = {"u": LeaderMemory(answer_signs=signs)}
    found = summary("s", [leader], memories, RouterReading(), NOBODY, 10.0)["leaders"][0]
    assert memories["u"].is_silent and found.get("silence") == expected


def test_numbers_in_the_summary_never_exceed_what_the_operator_accepts() -> None:
    """No number in the summary is larger than the operator accepts, although each of 300 ranks reports the largest number,
    and a bucket of a histogram has a larger bound.
    """
    names = ("sglang:num_running_reqs", "sglang:num_requests_total", "sglang:generation_tokens_total")
    lines = [f'{name}{{dp_rank="{rank}"}} {value}' for name in names for rank in range(300) for value in (2**53,)]
    first = "sglang:time_to_first_token_seconds_bucket"
    lines += [f'{first}{{dp_rank="{rank}",le="{bound}"}} {2**53}' for rank in range(9) for bound in ("1.0", "1e300", "+Inf")]
    page = parse_engine_page("\n".join(lines))
    values = [*page.gauges.values(), *page.counters.values(), *(x for one in page.histograms.values() for x in one.values())]
    assert values and max(values) == LARGEST
    assert all(bound <= LARGEST or bound == float("inf") for one in page.histograms.values() for bound in one)
    empty = EnginePage("sglang", dict.fromkeys(page.counters, 0.0), {}, {})
    readings = with_work(with_work((), empty, 0.0), page, 0.001)
    body = summary("s", [], {}, RouterReading(readings, 2**60, 0.0), NOBODY, 1.0)
    assert max(value for value in body["router"].values() if not isinstance(value, list)) <= LARGEST
