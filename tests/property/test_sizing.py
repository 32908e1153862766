"""Laws of `ome plan`: more GPUs never reduce the total throughput, longer inputs never cost less, and a lower price per
hour never costs more.
"""

import math

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.sizing.answer import cost
from ome_operator.sizing.constants import fitted
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.gpus import Price, gpu
from ome_operator.sizing.layouts import Layout, layouts
from ome_operator.sizing.queueing import Load, Pair, Role
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.shapes import shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

places = st.builds(
    ServingStack,
    st.sampled_from(["Kimi-K2-Instruct", "DeepSeek-R1", "Qwen3-235B-A22B"]).map(shape),
    st.sampled_from(["h200", "b200", "gb200", "mi300x"]).map(gpu),
    st.sampled_from(["sglang", "trtllm", "vllm"]),
)
lengths = st.builds(Load, st.integers(16, 20_000), st.integers(2, 4_000))
workers = st.sampled_from([Worker(8, 1, 1), Worker(1, 8, 1), Worker(1, 8, 8), Worker(1, 32, 32)])
FEW = 10
"""Number of nodes."""
ROUNDED = 1 - 1e-4


def best(ask: PlanRequest) -> Layout | None:
    try:
        return max(layouts(ask, fitted()), key=lambda layout: layout.state.rate)
    except PlanRefused:
        return None


@given(places, lengths, st.integers(2, FEW), st.integers(1, 4))
def test_more_nodes_are_never_slower_in_all(place: ServingStack, load: Load, nodes: int, more: int) -> None:
    small, large = (best(PlanRequest(place, (load,), count)) for count in (nodes, nodes + more))
    if small is not None:
        assert large is not None and large.state.rate >= small.state.rate * ROUNDED


@given(places, lengths, st.integers(2, FEW), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_longer_requests_are_never_cheaper(place: ServingStack, load: Load, nodes: int, into: float, out: float) -> None:
    long = Load(load.prompt * into, load.answer * out)
    short, longer = best(PlanRequest(place, (load,), nodes)), best(PlanRequest(place, (long,), nodes))
    if longer is not None:
        assert short is not None and short.state.rate >= longer.state.rate * ROUNDED


@given(places, lengths, workers, workers, st.floats(1, 5000), st.floats(1.0, 4.0))
def test_the_closed_loop_keeps_its_sums(
    place: ServingStack, load: Load, prefill: Worker, decode: Worker, concurrency: float, more: float
) -> None:
    """The results satisfy Little's law, prefill can keep up with the rate, and more requests do not reduce the
    throughput.
    """
    pair = Pair(place, Role(1, prefill), Role(2, decode), [load], fitted())
    state, busier = pair.closed(concurrency), pair.closed(concurrency * more)
    assert math.isclose(state.rate * state.whole, concurrency, rel_tol=1e-6)
    assert math.isclose(state.whole, state.ttft + (load.answer - 1) * state.tpot, rel_tol=1e-3)
    assert state.rate <= state.most_prefill * (1 + 1e-9)
    assert state.ttft >= state.own * ROUNDED
    assert busier.rate >= state.rate * 0.97, "waits of the first burst may cost a little"


@given(st.floats(0.1, 20), st.floats(1.0, 5.0))
def test_a_cheaper_hour_is_never_dearer(usd: float, times: float) -> None:
    load = Load(2000, 100)
    layout = best(PlanRequest(ServingStack(shape("Kimi-K2-Instruct"), gpu("h200"), "sglang"), (load,), 8))
    assert layout is not None
    low, high = (cost(layout, load, Price(price, "", ""), 8) for price in (usd, usd * times))
    assert low and high
    assert all(low[name] <= high[name] for name in low if name.startswith("usd"))


@given(places, lengths, st.floats(0.0, 0.95))
def test_a_cached_prefix_never_costs(place: ServingStack, load: Load, hit: float) -> None:
    cached = Load(load.prompt, load.answer, hit)
    without, with_it = (
        Pair(place, Role(1, Worker(1, 8, 8)), Role(1, Worker(1, 8, 8)), [each], fitted()) for each in (load, cached)
    )
    assert with_it.most >= without.most * ROUNDED
