"""The formulas for the numbers of groups."""

import math

import pytest

from ome_operator.core.demand.queues import decode_batch, decode_groups, late_share, prefill_groups


@pytest.mark.parametrize("patience", [0.0, 0.5, 2.0])
def test_one_server_is_the_queue_with_a_single_server(patience: float) -> None:
    """In an M/M/1 queue with the utilization ρ, a share of ρ exp(−(1 − ρ) t / S) waits longer than t."""
    assert late_share(1, 0.6, 0.3, patience) == pytest.approx(0.6 * math.exp(-0.4 * patience / 0.3), rel=1e-3)


def test_erlang_c_agrees_with_a_published_value() -> None:
    """10 servers with a load of 8 erlang: 40.9 % wait (Erlang C tables)."""
    assert late_share(10, 8.0, 1.0, 0.0) == pytest.approx(0.409, abs=0.001)


def test_a_load_of_all_servers_is_late() -> None:
    assert late_share(3, 3.0, 1.0, 100.0) == 1.0


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0, 5.0, 20.0, 100.0])
def test_one_group_less_would_not_be_enough(rate: float) -> None:
    number = prefill_groups(rate, 0.4, 1.0, 0.95)
    assert number is not None
    assert late_share(number, rate * 0.4, 0.4, 1.0) <= 0.05
    assert number == 1 or late_share(number - 1, rate * 0.4, 0.4, 1.0) > 0.05


def test_no_number_of_groups_is_faster_than_a_group() -> None:
    assert prefill_groups(1.0, 2.5, -0.5, 0.95) is None


CURVE = ((10.0, 0.02), (100.0, 0.04), (200.0, 0.08))


@pytest.mark.parametrize(("target", "batch"), [(0.03, 55.0), (0.04, 100.0), (0.06, 150.0), (0.12, 300.0), (0.01, 0.0)])
def test_the_batch_is_read_from_the_curve(target: float, batch: float) -> None:
    assert decode_batch(CURVE, target) == pytest.approx(batch)


def test_decode_writes_the_tokens_with_a_margin_for_chance() -> None:
    # 100 requests at 40 ms write 2,500 tokens/s; two square roots below are 81.9 requests and 2,048 tokens/s.
    assert [decode_groups(tokens, CURVE, 0.04) for tokens in (10, 2040, 2060, 4000)] == [1, 1, 2, 2]
    assert decode_groups(10.0, CURVE, 0.019) is None
    assert decode_groups(2040, CURVE[1:2], 0.04) == 1
