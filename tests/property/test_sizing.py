"""Laws of `ome plan`: more GPUs never reduce the total throughput, longer inputs never cost less, and a lower price per
hour never costs more.
"""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.sizing import steps
from ome_operator.sizing.answer import cost
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.gpus import Price, gpu
from ome_operator.sizing.layouts import Layout, layouts
from ome_operator.sizing.queueing import Drafts, Load, Pair, Role, UnifiedDeployment
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.shapes import shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

places = st.builds(
    ServingStack,
    st.sampled_from(
        ["Kimi-K2-Instruct", "DeepSeek-R1", "Qwen3-235B-A22B", "DeepSeek-V3.2", "DeepSeek-V4-Flash", "MiniMax-M3", "Kimi-K3"]
    ).map(shape),
    st.sampled_from(["h100", "h200", "b200", "gb200", "gb300"]).map(gpu),
    st.sampled_from(["sglang", "trtllm", "vllm"]),
)
lengths = st.builds(Load, st.integers(16, 20_000), st.integers(2, 4_000))
workers = st.sampled_from([Worker(8, 1, 1), Worker(1, 8, 1), Worker(1, 8, 8), Worker(1, 32, 32)])
FEW = 10
"""Number of nodes in the generated plans."""
ROUNDED = 1 - 1e-4


def best(ask: PlanRequest) -> Layout | None:
    try:
        return max(layouts(ask, shipped_constants()), key=lambda layout: layout.state.rate)
    except PlanRefused:
        return None


@given(places, lengths, st.integers(2, FEW), st.integers(1, 4))
def test_more_nodes_never_reduce_total_throughput(place: ServingStack, load: Load, nodes: int, more: int) -> None:
    small, large = (best(PlanRequest(place, (load,), count)) for count in (nodes, nodes + more))
    if small is not None:
        assert large is not None and large.state.rate >= small.state.rate * ROUNDED


@given(places, lengths, st.integers(2, FEW), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_longer_requests_never_cost_less(place: ServingStack, load: Load, nodes: int, into: float, out: float) -> None:
    long = Load(load.prompt * into, load.answer * out)
    short, longer = best(PlanRequest(place, (load,), nodes)), best(PlanRequest(place, (long,), nodes))
    if longer is not None:
        assert short is not None and short.state.rate >= longer.state.rate * ROUNDED


@given(places, lengths, workers, workers, st.floats(1, 5000), st.floats(1.0, 4.0))
def test_closed_loop_satisfies_littles_law(
    place: ServingStack, load: Load, prefill: Worker, decode: Worker, concurrency: float, more: float
) -> None:
    """For any plan of engines in a closed loop, the results satisfy Little's law, prefill keeps up with the rate, and more
    requests never reduce the throughput.
    """
    pair = Pair(place, Role(1, prefill), Role(2, decode), [load], shipped_constants())
    state, busier = pair.closed(concurrency), pair.closed(concurrency * more)
    assert math.isclose(state.rate * state.whole, concurrency, rel_tol=1e-6)
    assert math.isclose(state.whole, state.ttft + (load.answer - 1) * state.tpot, rel_tol=1e-3)
    assert state.rate <= state.most_prefill * (1 + 1e-9)
    assert state.ttft >= state.own * ROUNDED
    assert busier.rate >= state.rate * 0.97, "the first burst may wait a little"


@given(st.floats(0.1, 20), st.floats(1.0, 5.0))
def test_lower_gpu_price_never_increases_the_cost(usd: float, times: float) -> None:
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
        Pair(place, Role(1, Worker(1, 8, 8)), Role(1, Worker(1, 8, 8)), [each], shipped_constants())
        for each in (load, cached)
    )
    assert with_it.most >= without.most * ROUNDED


modes = st.sampled_from([steps.PAIR, steps.TOGETHER])
batches = st.floats(0.1, 4000)


@given(places, workers, modes, batches, st.integers(1, 100_000))
def test_decode_step_is_never_faster_than_the_data_sheet(
    place: ServingStack, worker: Worker, mode: str, batch: float, context: int
) -> None:
    """A decode step takes at least as long as its bytes, its operations and its messages take at the rates of the data
    sheet.
    """
    step = steps.decoder(place, worker, context, shipped_constants(), mode)(batch)
    assert step >= steps.floor(steps.decode_terms(place, worker, batch, context))


@given(places, workers, modes, st.integers(1, 100_000))
def test_prefill_is_never_faster_than_the_data_sheet(place: ServingStack, worker: Worker, mode: str, prompt: int) -> None:
    seconds = steps.prefill(place, worker, prompt, prompt, shipped_constants(), mode)
    assert seconds >= steps.floor(steps.prefill_terms(place, worker, prompt, prompt))
    assert steps.single_prompt_ttft(place, worker, prompt, prompt, shipped_constants(), mode) >= seconds


MEDIUM, FURTHER = 8_000, 1.5
"""MEDIUM is a prompt length in tokens that many rows of the calibration have. Compared with the time of the data sheet, a
longer prompt may take at most FURTHER times as long as a prompt of MEDIUM tokens.
"""


@given(places, workers, modes, st.integers(MEDIUM, 200_000))
def test_predicted_time_of_long_prompts_stays_near_the_data_sheet(
    place: ServingStack, worker: Worker, mode: str, prompt: int
) -> None:
    """The ratio of the predicted time of a prefill to its time according to the data sheet hardly grows with the length of
    the prompt, although the factors are fitted to prompts of at most 15,000 tokens.
    """
    medium, long = (
        steps.prefill(place, worker, length, length, shipped_constants(), mode)
        / steps.floor(steps.prefill_terms(place, worker, length, length))
        for length in (MEDIUM, prompt)
    )
    assert long <= FURTHER * medium


better = st.fixed_dictionaries({name: st.floats(1.0, 4.0) for name in ("bandwidth", "flops", "link", "network", "memory")})


@given(places, workers, modes, batches, lengths, better)
def test_a_better_gpu_is_never_slower(
    place: ServingStack, worker: Worker, mode: str, batch: float, load: Load, times: dict[str, float]
) -> None:
    """A GPU of the same family with more bandwidth, more FLOPS or faster links never makes a step take longer."""
    fast = improved(place, times)
    for slow, quick in (
        (steps.decoder(each, worker, load.prompt, shipped_constants(), mode)(batch) for each in (place, fast)),
        (steps.prefill(each, worker, load.prompt, load.prompt, shipped_constants(), mode) for each in (place, fast)),
    ):
        assert quick <= slow * (1 + 1e-9)


@given(places, lengths, st.integers(1, 4), better)
def test_better_gpu_never_costs_more_at_the_same_price(
    place: ServingStack, load: Load, nodes: int, times: dict[str, float]
) -> None:
    slow, fast = (best(PlanRequest(each, (load,), nodes)) for each in (place, improved(place, times)))
    if slow is not None:
        assert fast is not None and fast.state.rate >= slow.state.rate * ROUNDED


def improved(place: ServingStack, times: dict[str, float]) -> ServingStack:
    gpu = place.gpu
    return replace(
        place,
        gpu=replace(
            gpu,
            bandwidth=gpu.bandwidth * times["bandwidth"],
            flops={name: rate * times["flops"] for name, rate in gpu.flops.items()},
            link=gpu.link * times["link"],
            network=min(gpu.network * times["network"], gpu.link),
            memory=gpu.memory * times["memory"],
        ),
    )


@given(places, workers, modes, batches, st.floats(1.0, 8.0), st.integers(1, 50_000), st.floats(1.0, 4.0))
def test_longer_contexts_and_larger_batches_are_never_faster(
    place: ServingStack, worker: Worker, mode: str, batch: float, more: float, context: int, longer: float
) -> None:
    step = steps.decoder(place, worker, context, shipped_constants(), mode)
    assert step(batch) <= step(batch * more) * (1 + 1e-9)
    assert step(batch) <= steps.decoder(place, worker, context * longer, shipped_constants(), mode)(batch) * (1 + 1e-9)


@given(places, lengths, workers, st.floats(1, 2000), st.floats(1.0, 4.0))
def test_combined_engines_satisfy_littles_law(
    place: ServingStack, load: Load, worker: Worker, concurrency: float, more: float
) -> None:
    """For engines that do both prefill and decode, Little's law holds, and neither more requests nor a prefix cache reduces
    the throughput.
    """
    both = UnifiedDeployment(place, Role(1, worker), [load], shipped_constants())
    state, busier = both.closed(concurrency), both.closed(concurrency * more)
    assert math.isclose(state.rate * state.whole, concurrency, rel_tol=1e-6)
    assert math.isclose(state.whole, state.ttft + (load.answer - 1) * state.tpot, rel_tol=1e-3)
    assert state.rate <= state.most_prefill * (1 + 1e-9)
    assert busier.rate >= state.rate * 0.97, "the first burst may wait a little"
    cached = UnifiedDeployment(place, Role(1, worker), [replace(load, hit=0.5)], shipped_constants()).closed(concurrency)
    assert cached.rate >= state.rate * ROUNDED


@given(places, lengths, st.integers(1, 8), st.floats(0.0, 1.0))
def test_more_accepted_draft_tokens_never_reduce_throughput(
    place: ServingStack, load: Load, tokens: int, part: float
) -> None:
    """At the same number of draft tokens, more accepted tokens never reduce the throughput."""
    few, many = (
        UnifiedDeployment(
            place, Role(1, Worker(8, 1, 1)), [load], shipped_constants(), drafts=Drafts(tokens, accepted)
        ).closed(16)
        for accepted in (part * tokens, tokens)
    )
    assert many.rate >= few.rate * ROUNDED


@given(places, lengths, st.floats(0.1, 0.89))
def test_percentiles_of_ttft_are_in_order(place: ServingStack, load: Load, busy: float) -> None:
    pair = Pair(place, Role(1, Worker(8, 1, 1)), Role(8, Worker(8, 1, 1)), [load], shipped_constants())
    state = pair.open_loop_state(pair.most * busy)
    if state is not None and (half := state.ttft_percentile(0.5)) is not None:
        ninth, last = state.ttft_percentile(0.9), state.ttft_percentile(0.99)
        assert ninth is not None and last is not None and state.own <= half <= ninth <= last
