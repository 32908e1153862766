"""Tests of which summaries the operator accepts, whoever sent them."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.core.observed.telemetry import (
    BUCKETS,
    LARGEST,
    LEADERS,
    STALE,
    DrainReport,
    LeaderLoad,
    LeaderStart,
    RouterReport,
    UnusableSummary,
    combined_start,
    drain_reports,
    failing_pairs,
    is_fresh,
    parse,
    requests,
)
from ome_operator.core.observed.transfers import PAIRS, FailingPair
from ome_operator.names import public_digest, slice_mark
from ome_operator.registry import telemetry as registry
from ome_operator.registry.exposition import EnginePage
from ome_operator.registry.records import LeaderState

NOW = 1000.0
SLICE = slice_mark("team", "a=svc")
LEADER = LeaderState("p", "uid", "http://10.0.0.1:1", "prefill", "draining", "", False, 1)


def sent(now: float = 70.0) -> dict[str, Any]:
    """Return the summary of a registry of this version, about a leader with every number."""
    memory = registry.with_leader_state(registry.NEW, LEADER, 0.0)
    for at in (55.0, 60.0):
        load = registry.EngineLoad(0.0, 0.0, 0.0, 0.25, 0.0, (1e9 + at,))
        memory = registry.with_load(memory, load, at, at + 1)
    readings: tuple[registry.WorkReading, ...] = ()
    for at, count in ((10.0, 0.0), (60.0, 100.0)):
        buckets = {0.5: count, math.inf: count * 2}
        page = EnginePage("sglang", {"requests": count, "outputTokens": count * 5}, {}, {"firstToken": buckets})
        readings = registry.with_work(readings, page, at)
    router = registry.RouterReading(readings, 3, 69.0)
    memories = {"uid": memory._replace(work=readings)}
    body = registry.summary(SLICE, [LEADER], memories, router, registry.Foreign(2, 5.0), now)
    return dict(json.loads(json.dumps(body)))


def read(body: Any) -> RouterReport:
    return parse(body, SLICE, NOW)


def test_summary_of_current_registry_is_parsed() -> None:
    found = read(sent())
    assert (found.at, found.strangers, found.foreign_worker_at, found.in_flight) == (NOW, 2, NOW - 5, 3)
    assert found.work is not None and found.work.rates["requests"] == 2 and found.work.at == NOW - 10
    (leader,) = found.leaders.values()
    assert (leader.role, leader.state) == ("prefill", "draining")
    assert leader.load == LeaderLoad(NOW - 9, 0, 0, 0, 0.25, 1)
    assert leader.work is not None
    assert leader.work.rates == {"requests": 2.0, "outputTokens": 10.0} and leader.work.window == 50
    assert leader.work.histograms == {"firstToken": ((0.5, 100.0), (math.inf, 100.0))}


def test_a_newer_registry_may_send_more() -> None:
    body = sent() | {"version": 9, "more": {"x": [1]}}
    body["leaders"][0] |= {"state": "sleeping", "role": "encoder", "more": 1}
    (leader,) = read(body).leaders.values()
    assert (leader.role, leader.state) == ("", "")


def test_summary_of_registry_without_readings_is_parsed() -> None:
    body = registry.summary(SLICE, [LEADER], {}, registry.RouterReading(), registry.Foreign(0, None), 1.0)
    found = read(json.loads(json.dumps(body)))
    assert found.work is None and found.in_flight is None and found.strangers == 0 and found.foreign_worker_at == 0.0
    (leader,) = found.leaders.values()
    assert leader.load is None and leader.work is None


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a summary with a changed field."""
    body: Any = sent()
    *parts, last = path.split(".")
    part = body
    for each in parts:
        part = part[int(each)] if each.isdigit() else part[each]
    part[last] = value
    return dict(body)


FIELDS = ["version", "strangers.found", "strangers.age", "router.age", "router.requests", "router.inFlight"]
FIELDS += [f"leaders.0.load.{name}" for name in ("age", "running", "waiting", "inTransfer", "cacheUse", "emptyReadings")]
FIELDS += [f"leaders.0.work.{name}" for name in ("age", "window", "requests", "firstToken")]


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 2**54, 10**400, "1", True, [1], {"a": 1}, [[1]], [[1, -1]]])
def test_invalid_number_makes_the_summary_unusable_and_is_named(path: str, value: Any) -> None:
    with pytest.raises(UnusableSummary, match=path.rpartition(".")[2]):
        read(changed(path, value))


WRONG: dict[str, Any] = {
    "not a map": [],
    "nothing": None,
    "another slice": changed("slice", slice_mark("team", "a=other")),
    "no slice": changed("slice", None),
    "version 0": changed("version", 0),
    "no leaders": changed("leaders", None),
    "too many leaders": changed("leaders", [sent()["leaders"][0]] * (LEADERS + 1)),
    "leaders that are none": changed("leaders", ["a"]),
    "a leader without a mark": changed("leaders.0.id", 7),
    "a long mark": changed("leaders.0.id", "x" * 999),
    "a load that is none": changed("leaders.0.load", [1]),
    "buckets that do not increase": changed("leaders.0.work.firstToken", [[2, 1], [1, 1]]),
    "too many buckets": changed("leaders.0.work.firstToken", [[each, 1] for each in range(1, BUCKETS + 2)]),
    "no strangers": changed("strangers", 1),
    "no age": changed("leaders.0.load", {"running": 1}),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_summary_raises_short_error(case: str) -> None:
    with pytest.raises(UnusableSummary) as error:
        read(WRONG[case])
    assert 10 < len(str(error.value)) < 120 and "\n" not in str(error.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*FIELDS, "leaders", "leaders.0", "leaders.0.load", "leaders.0.work", "router", "strangers"]), JSON)
def test_parsed_numbers_are_in_range_or_the_summary_is_unusable(path: str, value: Any) -> None:
    try:
        found = read(changed(path, value) if path != "leaders.0" else changed("leaders", [value]))
    except UnusableSummary:
        return
    assert 0 <= found.strangers <= LARGEST and found.foreign_worker_at <= NOW
    for leader in found.leaders.values():
        if leader.load is not None:
            assert leader.load.at <= NOW and 0 <= leader.load.empty_readings <= LARGEST
            assert leader.load.cache_use is None or 0 <= leader.load.cache_use <= 1
        if leader.work is not None:
            assert all(0 <= rate <= LARGEST for rate in leader.work.rates.values())


@pytest.mark.parametrize(("age", "usable"), [(0.0, True), (STALE, True), (STALE + 0.1, False), (-0.1, False)])
def test_old_and_future_readings_are_unknown(age: float, usable: bool) -> None:
    assert is_fresh(NOW - age, NOW) is usable


def test_the_requests_of_an_engine() -> None:
    assert requests(LeaderLoad(NOW, 1, 2, 3)) == 6 and requests(LeaderLoad(NOW, 1)) == 1
    assert requests(LeaderLoad(NOW, None, 2)) is None


def test_drain_reports_of_a_leader_come_from_each_router() -> None:
    found = drain_reports([("r1", read(sent())), ("r2", read(changed("leaders", [])))], public_digest("uid"))
    assert found == (DrainReport("r1", NOW - 9, 0, 1),)
    assert drain_reports([("r1", read(sent()))], public_digest("other")) == ()


def with_start(start: Any) -> dict[str, Any]:
    """Return a summary with a leader that reports this about its start."""
    leader = {"id": "m", "role": "decode", "state": "serving", "start": start}
    return {"version": 1, "slice": "s", "strangers": {"found": 0}, "router": {}, "leaders": [leader]}


def test_leader_start_is_parsed_into_durations_and_times() -> None:
    start = {"own": 30, "weights": 12.5, "cache": 0, "other": 3, "healthyFor": 4.0, "listedFor": 3, "succeededFor": 1}
    found = parse(with_start(start), "s", NOW).leaders["m"].start
    assert found == LeaderStart({"own": 30.0, "weights": 12.5}, None, NOW - 4, NOW - 3, NOW - 1)
    assert found is not None and found.known_parts == ("own", "weights", "healthy_at", "listed_at", "succeeded_at")


def test_first_answer_is_unknown_from_a_registry_of_the_previous_version() -> None:
    found = parse(with_start({"listedFor": 3}), "s", NOW).leaders["m"].start
    assert found == LeaderStart({}, None, None, NOW - 3, None)
    assert combined_start([found, LeaderStart({}, None, None, NOW - 2, NOW - 1)]) == found._replace(succeeded_at=NOW - 1)


@pytest.mark.parametrize("wrong", [7, {"own": "30"}, {"listedFor": -1}, {"succeededFor": "1"}, {"weights": math.nan}])
def test_invalid_start_value_makes_the_summary_unusable(wrong: Any) -> None:
    with pytest.raises(UnusableSummary):
        parse(with_start(wrong), "s", NOW)


def test_earliest_times_of_several_registries_are_used() -> None:
    one = LeaderStart({"own": 30.0}, None, 990.0, 1005.0, 1006.0)
    other = LeaderStart({}, 980.0, 991.0, 1001.0, 1009.0)
    assert combined_start([one, other]) == LeaderStart({"own": 30.0}, 980.0, 990.0, 1001.0, 1006.0)
    assert combined_start([]) is None


PAIR = {"prefill": "a", "decode": "b", "probes": 20, "failed": 14, "prefillWorksWith": "c"}


def test_failed_pairs_are_parsed_and_optional() -> None:
    found = read({**sent(), "pairs": [PAIR]})
    assert failing_pairs({"r": found, "s": read(sent())}) == {"r": (FailingPair("a", "b", 20, 14, "c"),)}


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ({}, "pairs is not a list of at most 32 pairs"),
        ([PAIR] * (PAIRS + 1), "pairs is not a list of at most 32 pairs"),
        ([1], "an entry of pairs is not a map"),
        ([{**PAIR, "decode": 3}], "decode of a pair is not a text of at most 64 characters"),
        ([{**PAIR, "prefillWorksWith": "x" * 65}], "prefillWorksWith of a pair is not a text of at most 64 characters"),
        ([{**PAIR, "failed": -1}], "failed"),
        ([{**PAIR, "probes": math.nan}], "probes"),
    ],
)
def test_summary_with_invalid_pairs_is_unusable(pairs: Any, why: str) -> None:
    with pytest.raises(UnusableSummary, match=why):
        read({**sent(), "pairs": pairs})
