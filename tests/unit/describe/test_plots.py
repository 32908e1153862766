"""Plots of an engine's metrics, whatever it says."""

import pytest

from ome_operator.describe import plots
from ome_operator.describe.plots import FIRST_COUNT, FIRST_SUM, REQUESTS, TOKENS, WAITS, Sample

PAGE = """
# HELP sglang:num_requests_total Number of requests processed.
sglang:num_requests_total{model_name="a",is_streaming="true"} 2.0
sglang:num_requests_total{model_name="a } 9",is_streaming="false"} 3
sglang:generation_tokens_total{} 7.5e3
sglang:num_queue_reqs 4
sglang:time_to_first_token_seconds_sum{x="y"} NaN
sglang:time_to_first_token_seconds_count{x="y"} +Inf
sglang:time_to_first_token_seconds_bucket{le="1"} 12
other:num_queue_reqs 99
vllm:num_requests_waiting many
"""


def test_a_page_is_summed_over_labels_and_what_is_no_number_is_left_out() -> None:
    assert plots.read_metrics(PAGE) == {REQUESTS: 5, TOKENS: 7500, WAITS: 4}
    assert plots.read_metrics('vllm:request_success_total{finished_reason="stop"} 1') == {REQUESTS: 1}


@pytest.mark.parametrize(
    "text", ["", "<html>", "sglang:num_queue_reqs", "sglang:num_queue_reqs{", "\x00\n" * 9, "sglang:x{" + "}" * 10**6]
)
def test_any_text_is_read(text: str) -> None:
    assert plots.read_metrics(text) == {}


def sample(at: float, pods: str = "a", **values: float) -> Sample:
    return Sample(at, values, frozenset(pods))


def told(*samples: Sample) -> list[str]:
    return [plot.now for plot in plots.plots(samples)]


def test_rates_and_means_are_of_the_time_between_two_samples() -> None:
    first = sample(0, **{REQUESTS: 10, TOKENS: 0, FIRST_SUM: 1, FIRST_COUNT: 1, WAITS: 2})
    second = sample(5, **{REQUESTS: 20, TOKENS: 60_000, FIRST_SUM: 6, FIRST_COUNT: 11, WAITS: 3})
    assert told(first, second) == ["2/s", "12k/s", "0.5 s", "3"]


def test_nothing_is_told_before_the_second_sample_and_of_counters_that_began_anew() -> None:
    first, anew = sample(0, **{REQUESTS: 10}), sample(5, **{REQUESTS: 3})
    assert told(first)[0] == told(first, anew)[0] == told()[0] == "–"
    assert told(first, anew, sample(10, **{REQUESTS: 8}))[0] == "1/s"


def test_other_pods_are_no_growth() -> None:
    """A second group comes: what it has served since it started was not served just now."""
    assert told(sample(0, "a", **{REQUESTS: 10}), sample(5, "ab", **{REQUESTS: 500}))[0] == "–"


def test_a_request_that_passes_prefill_and_decode_counts_once_and_waits_in_both() -> None:
    page = {REQUESTS: 5.0, WAITS: 2.0}
    assert plots.summed(0, {"prefill": page, "decode": page}, ["decode"]).values == {REQUESTS: 5, WAITS: 4}


def test_a_plot_stays_within_its_box() -> None:
    (plot, *_) = plots.plots([sample(at, **{REQUESTS: at * at}) for at in range(9)])
    places = [tuple(map(float, place.split(","))) for place in plot.points.split()]
    assert len(places) == 8 and all(0 <= x <= plots.WIDTH and 0 <= y <= plots.HEIGHT for x, y in places)
    assert plot.most == plot.now == "15/s"
