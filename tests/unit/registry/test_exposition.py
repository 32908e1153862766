"""Tests of what the registry reads from the metrics pages of engines, and of what it ignores."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.engines.telemetry import engine_series
from ome_operator.registry.exposition import BUCKETS, EMPTY_PAGE, LARGEST, SAMPLES, parse_engine_page, parse_number

DATA = Path(__file__).parents[2] / "data/engines"
MODEL = 'engine_type="unified",model_name="m"'
PAGE = f"""# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{{MODEL},is_streaming="true"}} 40.0
sglang:generation_tokens_total{{{MODEL},is_streaming="false"}} 2.0
sglang:prompt_tokens_total{{{MODEL}}} 1.5e3
sglang:num_requests_total{{{MODEL}}} 7
sglang:num_requests_totally{{{MODEL}}} 9
sglang:time_to_first_token_seconds_bucket{{le="0.1",{MODEL}}} 1.0
sglang:time_to_first_token_seconds_bucket{{le="+Inf",{MODEL}}} 3.0
sglang:time_to_first_token_seconds_sum{{{MODEL}}} 99.0
"""


def test_counters_and_buckets_of_sglang() -> None:
    page = parse_engine_page(PAGE)
    assert page.engine == "sglang" and page.gauges == {}
    assert page.counters == {"outputTokens": 42.0, "promptTokens": 1500.0, "requests": 7.0}
    assert page.histograms == {"firstToken": {0.1: 1.0, float("inf"): 3.0}}


def test_numbers_from_real_engine_metrics_equal_those_of_its_clients() -> None:
    """The numbers that the registry reads from a real engine's metrics are those that its clients counted: 175 prompt
    tokens and 336 generated tokens. The page was recorded from SGLang 0.5.23 on CPUs with two data-parallel ranks (DP
    attention), after 13 requests.
    """
    page = parse_engine_page((DATA / "sglang-0.5.23-dp2.prom").read_text())
    assert page.counters == {"requests": 13.0, "promptTokens": 175.0, "outputTokens": 336.0}
    assert max(page.histograms["firstToken"].values()) == 13.0
    assert "betweenTokens" not in page.histograms, "the engine measures it only for requests that stream"


def test_data_parallel_series_are_summed_and_tensor_parallel_copies_ignored() -> None:
    """The series of data-parallel ranks are added up. The series of tensor-parallel ranks are copies, and count once. With
    --enable-metrics-for-all-schedulers, each tensor-parallel rank of a data-parallel rank has its own series.
    """
    name = "sglang:num_transfer_failed_reqs_total"
    rows = [('dp_rank="0",tp_rank="0"', 2), ('dp_rank="0",tp_rank="1"', 2), ('dp_rank="1",tp_rank="2"', 3)]
    page = parse_engine_page("".join(f"{name}{{{labels}}} {value}\n" for labels, value in rows))
    assert page.counters == {"failedTransfers": 5.0}


def test_only_the_total_over_priorities_is_counted() -> None:
    name = "sglang:num_transfer_failed_reqs_total"
    assert parse_engine_page(f'{name}{{priority=""}} 5\n{name}{{priority="1"}} 4\n').counters == {"failedTransfers": 5.0}


def test_load_of_vllm_is_parsed_from_its_metrics() -> None:
    page = parse_engine_page(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:num_requests_waiting{engine="0"} 1\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
        'vllm:request_success_total{finished_reason="stop"} 5\nvllm:request_success_total{finished_reason="length"} 6\n'
    )
    assert page.gauges == {"running": 7.0, "waiting": 1.0, "cacheUse": 0.9} and page.counters == {"requests": 11.0}


WRONG = [
    "NaN", "-1", "+Inf", "-Inf", "text", "", "1e99", f"{2**54}", "0x10", '"', "1" * 5000, "é", "None", "true", "1_000", "١٢",
    "²",
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG)
def test_invalid_counter_value_is_left_out(value: str) -> None:
    name = "sglang:num_requests_total"
    assert parse_engine_page(f"{name}{{{MODEL}}} {value}\n") == EMPTY_PAGE
    assert parse_engine_page(f"{name}{{{MODEL}}} {value}\n{PAGE}").counters["requests"] == 7.0


@pytest.mark.parametrize("value", [True, None, [], {}, -1, float("nan"), float("inf"), 10**400, "x", -(10**400)])
def test_invalid_number_in_exposition_is_none(value: object) -> None:
    assert parse_number(value) is None


@pytest.mark.parametrize(
    "text", ["", "hello", "<html>", "{}", "sglang:num_requests_total", "sglang:num_requests_total{", "\0" * 99, "}" * 9999]
)
def test_invalid_metrics_page_gives_nothing(text: str) -> None:
    assert parse_engine_page(text) == EMPTY_PAGE


def test_a_histogram_with_too_many_buckets_is_left_out() -> None:
    name = "sglang:time_to_first_token_seconds_bucket"
    rows = "".join(f'{name}{{le="{bound}"}} {bound}\n' for bound in range(1, BUCKETS + 2))
    assert parse_engine_page(PAGE + rows).histograms == {}


def made_up(rows: int) -> str:
    """Return the page of an engine that invents labels."""
    return "".join(f'sglang:num_requests_total{{dp_rank="{each}"}} 1\n' for each in range(rows))


def test_invented_labels_use_little_memory() -> None:
    assert parse_engine_page(made_up(SAMPLES)).counters == {"requests": SAMPLES}
    text = made_up(4 * 2**20 // 45)
    tracemalloc.start()
    assert parse_engine_page(text) == EMPTY_PAGE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20, "the container may use 256 MiB"


NAMES = sorted({name for each in engine_series().values() for name in (*each.counters, *each.gauges, *each.histograms)})
LABELS = st.text(alphabet='le="{}\\,0123.+Infdp_rank \n', max_size=40)
LINES = st.builds("{}{{{}}} {}".format, st.sampled_from(NAMES), LABELS, st.text(max_size=20) | st.floats().map(str))


@given(st.text() | st.lists(LINES, max_size=30).map("\n".join))
def test_any_text_gives_numbers_in_range(text: str) -> None:
    page = parse_engine_page(text)
    rows = text.count("\n") + 1
    for value in (*page.counters.values(), *page.gauges.values()):
        assert 0 <= value <= rows * LARGEST
    for buckets in page.histograms.values():
        assert len(buckets) <= BUCKETS and all(bound > 0 and count >= 0 for bound, count in buckets.items())
