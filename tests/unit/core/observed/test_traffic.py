"""Tests of the numbers of a service, which are combined from the reports of its routers."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.telemetry import STALE, Buckets, LeaderLoad, LeaderReport, RouterReport, WorkRates
from ome_operator.core.observed.traffic import (
    BucketBounds,
    ServiceNumbers,
    by_role,
    client_metrics,
    combine_leaders,
    percentile,
    traffic,
)
from ome_operator.names import public_digest

NOW = 1000.0


def pod(uid: str, component: str = "engine", rank: int = 0, ready: bool = True) -> Pod:
    """Return a pod as the operator knows it."""
    place = {keys.POD_INDEX: str(rank), keys.GROUP_INDEX: "0"} | ({keys.WORKER_INDEX: "0"} if rank == 0 else {})
    labels = {"ome.io/inferenceservice": "svc", "component": component, "ome.io/revision": "r1", **place}
    conditions = [{"type": "Ready", "status": str(ready)}]
    metadata = {"namespace": "team", "name": uid, "uid": uid, "labels": labels}
    return from_api.pod({"metadata": metadata, "status": {"conditions": conditions}})


def load(at: float = NOW, **numbers: Any) -> LeaderLoad:
    return LeaderLoad(at, **{"running": 1, "waiting": 0, "cache_use": 0.5, **numbers})


def work(at: float = NOW, histograms: dict[str, Buckets] | None = None, **rates: float) -> WorkRates:
    return WorkRates(at, 60.0, rates, histograms or {})


def report(arrivals: WorkRates | None, at: float = NOW, **leaders: LeaderReport) -> RouterReport:
    return RouterReport(at, 0, 0.0, arrivals, 0, {public_digest(uid): leader for uid, leader in leaders.items()})


P, D, R, R2 = pod("p"), pod("d", "decoder"), pod("r", "router"), pod("r2", "router")
PREFILL = LeaderReport(
    "prefill", "serving", load(running=2, cache_use=0.9), work(requests=3, promptTokens=900, outputTokens=3)
)
DECODE = LeaderReport("decode", "serving", load(running=7, waiting=1), work(requests=3, promptTokens=900, outputTokens=300))


def found(*reports: RouterReport, pods: tuple[Pod, ...] = (P, D, R, R2)) -> ServiceNumbers:
    """Return the traffic that the first routers report."""
    return traffic(dict(zip(("r", "r2"), reports, strict=False)), pods, NOW)


def test_disaggregated_request_is_counted_once() -> None:
    seen = found(report(work(requests=3), p=PREFILL, d=DECODE))
    assert (
        client_metrics(seen).requests == 3
        and client_metrics(seen).output_tokens == 300
        and client_metrics(seen).prompt_tokens == 900
    )
    assert client_metrics(seen).running == 7 and client_metrics(seen).waiting == 1
    assert client_metrics(seen).cache_use == 0.9, "that of the leader with the highest value"
    assert {role: numbers.running for role, numbers in by_role(seen).items()} == {"prefill": 2, "decode": 7}


def test_arrivals_are_summed_over_routers_and_leaders_are_counted_once() -> None:
    newer = DECODE._replace(load=load(running=9), work=work(outputTokens=400))
    older = DECODE._replace(load=load(NOW - 3, running=5), work=work(NOW - 3, outputTokens=200))
    seen = found(report(work(requests=3), d=older), report(work(requests=2), d=newer))
    assert seen.requests == 5 and (seen.routers, seen.routers_heard) == (2, 2)
    assert client_metrics(seen).running == 9 and client_metrics(seen).output_tokens == 400, "every router reads every leader"


def test_partial_sum_states_number_of_leaders_it_contains() -> None:
    other = pod("d2", "decoder")
    seen = found(report(work(requests=3), d=DECODE, d2=DECODE._replace(load=None, work=None)), pods=(D, other, R, R2))
    numbers = by_role(seen)["decode"]
    assert (numbers.leaders, numbers.with_load, numbers.with_work) == (2, 1, 1) and numbers.running == 7
    assert (seen.routers, seen.routers_heard) == (2, 1)


@pytest.mark.parametrize("old", [STALE + 1, -1.0])
def test_old_and_future_readings_are_unknown_and_not_zero(old: float) -> None:
    leader = DECODE._replace(load=load(NOW - old), work=work(NOW - old, outputTokens=300))
    seen = found(report(work(NOW - old, requests=3), d=leader))
    assert (
        client_metrics(seen).requests is None
        and client_metrics(seen).running is None
        and client_metrics(seen).output_tokens is None
    )
    assert by_role(seen)["decode"].leaders == 1 and seen.at is None
    assert found(report(work(requests=3), at=NOW - old, d=DECODE)) == ServiceNumbers(2, 0, None, {}, None)


def test_all_numbers_are_unknown_without_router_reports() -> None:
    assert found() == ServiceNumbers(2, 0, None, {}, None)
    assert client_metrics(found()).running is None and by_role(found()) == {}


def test_only_leaders_of_the_service_that_may_have_requests_are_counted() -> None:
    """Only leaders of the service that may have requests count. A router may also report about pods of other services, and
    about a leader that it has not added yet, which has no requests.
    """
    waiting = DECODE._replace(state="waiting")
    seen = found(report(None, stranger=DECODE, w=DECODE, d=waiting), pods=(D, pod("w", rank=1), R, R2))
    assert seen.leaders == {}
    seen = found(report(None, d=DECODE._replace(state="draining", role="")))
    assert seen.leaders["d"].role == "engine", "an unknown role counts like an engine without disaggregation"


def test_a_router_that_is_not_ready_is_not_counted() -> None:
    starts = pod("r", "router", ready=False)
    assert found(report(work(requests=3)), pods=(starts, R2)) == ServiceNumbers(1, 0, None, {}, None)


def test_reading_without_rates_reports_no_work() -> None:
    """A leader whose counters were read only once reports no work: the first reading of a counter gives no rate."""
    seen = found(report(None, d=DECODE._replace(work=work())))
    assert by_role(seen)["decode"].with_work == 0 and client_metrics(seen).output_tokens is None


def test_the_time_is_that_of_the_oldest_number() -> None:
    seen = found(report(work(NOW - 2, requests=3), d=DECODE._replace(load=load(NOW - 9))))
    assert seen.at == NOW - 9


# --- percentiles --------------------------------------------------------------------------------------------------------


def test_percentile_is_returned_as_bucket_bounds() -> None:
    histograms: tuple[Buckets, ...] = (((0.4, 31.0), (0.6, 9.0)), ((0.4, 10.0), (math.inf, 1.0)))
    assert percentile(histograms, 0.5) == BucketBounds(0.0, 0.4)
    assert percentile(histograms, 0.9) == BucketBounds(0.4, 0.6)
    assert percentile(histograms, 1.0) == BucketBounds(0.4, math.inf)
    assert percentile((), 0.5) is None and percentile((((0.4, 0.0),),), 0.5) is None


EDGES = (0.1, 0.2, 0.3, 0.5, 1.0, math.inf)


@given(st.lists(st.lists(st.floats(0.01, 3.0), max_size=8), min_size=1, max_size=3), st.sampled_from((0.5, 0.95)))
def test_true_percentile_lies_within_the_returned_bounds(leaders: list[list[float]], share: float) -> None:
    """The true percentile of all leaders lies within the bounds that are computed from their histograms, although leaders of
    different versions may have different buckets.
    """
    histograms = []
    for number, values in enumerate(leaders):
        edges = EDGES[number:] if number < len(EDGES) else EDGES
        counts: dict[float, float] = {}
        for value in values:
            edge = next(edge for edge in edges if value <= edge)
            counts[edge] = counts.get(edge, 0.0) + 1
        histograms.append(tuple(sorted(counts.items())))
    every = sorted(value for values in leaders for value in values)
    bounds = percentile(histograms, share)
    if not every:
        assert bounds is None
        return
    value = every[max(0, math.ceil(share * len(every)) - 1)]
    assert bounds is not None and bounds.above < value <= bounds.up_to


def test_numbers_without_any_leader_are_unknown() -> None:
    assert combine_leaders(()).running is None and combine_leaders(()).first_token == ()
