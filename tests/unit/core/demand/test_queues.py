"""Tests of the formulas for the numbers of groups."""

import math

import pytest

from ome_operator.core.demand.curves import shown_rate
from ome_operator.core.demand.queues import MOST, decode_groups, late_share, prefill_groups, slowest_prefill


@pytest.mark.parametrize("patience", [0.0, 0.5, 2.0])
def test_one_server_is_the_queue_with_a_single_server(patience: float) -> None:
    """With one server, the formula for several servers gives the same result as the formula of an M/M/1 queue with the
    utilization ρ: a share of ρ exp(−(1 − ρ) t / S) waits longer than t.
    """
    assert late_share(1, 0.6, 0.3, patience) == pytest.approx(0.6 * math.exp(-0.4 * patience / 0.3), rel=1e-3)


def test_erlang_c_agrees_with_a_published_value() -> None:
    """The computed share of requests that have to wait equals the value in tables of the Erlang C formula: 40.9 % with 10
    servers and a load of 8 erlang.
    """
    assert late_share(10, 8.0, 1.0, 0.0) == pytest.approx(0.409, abs=0.001)


def test_a_load_of_all_servers_is_late() -> None:
    assert late_share(3, 3.0, 1.0, 100.0) == 1.0


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0, 5.0, 20.0, 100.0])
def test_one_group_less_would_not_be_enough(rate: float) -> None:
    number = prefill_groups(rate, 0.4, 1.0, 0.95)
    assert number is not None
    assert late_share(number, rate * 0.4, 0.4, 1.0) <= 0.05
    assert number == 1 or late_share(number - 1, rate * 0.4, 0.4, 1.0) > 0.05


def test_target_below_prefill_time_has_no_group_count() -> None:
    assert prefill_groups(1.0, 2.5, -0.5, 0.95) is None


def test_load_above_the_group_limit_returns_the_limit() -> None:
    assert prefill_groups(20.0, 60.0, 1.0, 0.95) == 1201
    assert prefill_groups(511.9, 1.0, 0.0, 0.95) == MOST


@pytest.mark.parametrize(("groups", "rate"), [(1, 0.01), (1, 2.0), (9, 20.0), (40, 3.0)])
def test_slowest_prefill_rate_is_that_at_which_the_groups_just_suffice(groups: int, rate: float) -> None:
    service = slowest_prefill(groups, rate, 2.0, 0.95, 1.0)
    assert service is not None
    assert prefill_groups(rate, 0.999 * service, 2.0 - 0.999 * service, 0.95) == groups or service > 1.99
    slower = prefill_groups(rate, 1.001 * service, 2.0 - 1.001 * service, 0.95)
    assert slower is None or slower > groups


CURVE = ((10.0, 0.02), (100.0, 0.04), (200.0, 0.08))


def test_decode_writes_the_tokens_with_a_margin_for_chance() -> None:
    # 100 requests at 40 ms write 2,500 tokens/s; two square roots below are 81.9 requests and 2,048 tokens/s.
    assert [decode_groups(tokens, CURVE, 0.04) for tokens in (10, 2040, 2060, 4000)] == [1, 1, 2, 2]
    assert decode_groups(10.0, CURVE, 0.017) is None
    assert decode_groups(2040, CURVE[1:2], 0.04) == 1


def test_decode_group_may_get_as_many_requests_as_measured_before() -> None:
    """A decode group may get as many requests again as it has been measured with. It was measured with a single request at
    40 ms; the margin for chance alone would leave a quarter of a request to each group.
    """
    one = ((1.0, 0.04),)
    assert decode_groups(75.0, one, 0.05) == 15
    assert decode_groups(75.0, one, 0.05, shown_rate(one, 0.05)) == 3
