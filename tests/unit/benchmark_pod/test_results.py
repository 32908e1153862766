"""Tests of the results, the summary and the page that are made from the output of SGLang's benchmark."""

import json
import re
from typing import Any

import pytest

from ome_operator.api.benchmark import BenchmarkReport
from ome_operator.benchmark_pod.inside import CUT
from ome_operator.benchmark_pod.page import page as rendered
from ome_operator.benchmark_pod.page import plot
from ome_operator.benchmark_pod.results import SUMMARY_BYTES, has_failed, results, summary

TRACE = "Traceback (most recent call last):\n  File\naiohttp.ClientError: gone\n"


def plan(*runs: tuple[str, int], program: str = "serving") -> dict[str, Any]:
    """Return the plan that the containers receive."""
    told = [{"scenario": name, "concurrency": number, "program": program} for name, number in runs]
    return {"name": "team/speed", "target": "http://svc", "service": {"gpuType": "H100"}, "runs": told}


def outcome(completed: int = 10, errors: tuple[str, ...] = (), throughput: float = 60.0) -> dict[str, Any]:
    """Return the result of one run."""
    which = ("ttft", "tpot", "e2e_latency")
    shares = {f"{share}_{one}_ms": 10.0 for share in ("mean", "median", "p90", "p99") for one in which}
    said = [*errors, *[""] * completed]
    lists: dict[str, Any] = {"errors": said, "generated_texts": ["…"] * len(said), "server_info": {"secret": 1}}
    lists |= {"request_rate": float("inf"), "random_input_len": 1024}
    rates = {"output_throughput": throughput, "request_throughput": 1.0}
    return {"result": {"completed": completed, **rates, **shares, **lists}}


def test_results_of_successful_run_contain_metrics() -> None:
    found = results(plan(("D(1,1)", 4)), {0: outcome()})
    (run,) = found["runs"]
    assert (run["requests"], run["failed"], run["unfinished"], run["errors"]) == (10, 0, 0, [])
    assert run["metrics"]["median_ttft_ms"] == 10.0
    assert run["metrics"].keys() == {name for name in outcome()["result"] if name.endswith(("_ms", "_throughput"))}
    assert "Infinity" not in json.dumps(found), "no JSON"
    assert not has_failed(found)


def test_failed_requests_count_as_failures_but_cancelled_ones_do_not() -> None:
    found = results(plan(("D(1,1)", 4)), {0: outcome(5, (TRACE, TRACE, "Bad Gateway: ", CUT))})
    (run,) = found["runs"]
    assert (run["requests"], run["failed"], run["unfinished"]) == (5, 3, 1)
    assert run["errors"] == [{"error": "aiohttp.ClientError: gone", "count": 2}, {"error": "Bad Gateway:", "count": 1}]
    assert has_failed(found)
    assert not has_failed(results(plan(("D(1,1)", 4)), {0: outcome(5, (CUT, CUT))}))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({0: {"error": "Warmup failed"}}, "Warmup failed"),
        ({}, "the container exited before"),
        ({0: outcome(0, (CUT, CUT))}, "no request was completed within spec.maxTimePerIteration"),
    ],
)
def test_a_run_without_an_answer_is_a_failure(raw: dict[int, Any], words: str) -> None:
    found = results(plan(("D(1,1)", 4)), raw)
    assert has_failed(found)
    assert words in found["runs"][0]["errors"][0]["error"]


def test_summary_can_be_parsed_by_the_operator() -> None:
    raw = {0: outcome(10, throughput=50.0), 1: outcome(8, (TRACE,), throughput=70.0)}
    found = results(plan(("D(1,1)", 1), ("D(1,1)", 4)), raw)
    report = BenchmarkReport.model_validate_json(summary(found, "/out/speed"), by_alias=True, by_name=False)
    assert (report.requests, report.failed, report.concurrency, report.tokens_per_second) == (18, 1, 4, "70.0")
    assert (report.output, report.error, report.ttft) == ("/out/speed", "aiohttp.ClientError: gone", "10.0")
    assert [one.concurrency for one in report.results or ()] == [1, 4]


def test_long_summary_is_truncated_to_the_termination_message_limit() -> None:
    names = [(f"N({n},240)/(300,150)", c) for n in range(10) for c in range(1, 10)]
    text = summary(results(plan(*names), {n: outcome() for n in range(90)}), "s3://bucket/a")
    assert len(text.encode()) <= SUMMARY_BYTES
    report = BenchmarkReport.model_validate_json(text, by_alias=True, by_name=False)
    assert report.requests == 900, "the totals are those of all runs"
    assert 10 < len(report.results or ()) < 90


def test_results_of_gsm8k_contain_accuracy() -> None:
    raw = {"result": {"questions": 200, "accuracy": 0.96, "invalid": 0.0, "latency": 15.9, "output_throughput": 1231.7}}
    found = results(plan(("gsm8k", 128), program="gsm8k"), {0: raw})
    assert json.loads(summary(found, "x"))["accuracy"] == "0.960"
    assert "accuracy" in rendered(found)


def test_result_page_is_self_contained_and_escapes_server_texts() -> None:
    raw = {0: outcome(10), 1: outcome(10, throughput=90.0), 2: {"error": "<script>alert(1)</script>"}}
    text = rendered(results(plan(("D(1,1)", 1), ("D(1,1)", 8), ("D(2,2)", 8)), raw))
    assert not re.search(r"<script|<link|src=|href=|url\(|@import", text)
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<svg") == 4, "throughput, and three latencies of the scenario that was measured"


def test_result_page_escapes_all_foreign_texts() -> None:
    """The page of results escapes every text that another user may have written. In this test, names, the URL, the facts of
    the service, scenarios and errors contain HTML tags, and a text that would end an attribute.
    """
    evil = ["<script>", "<img src=x onerror=a>", "<svg onload=a>", "<a href=x>", "</td><b>", '" onload="a']
    told = plan(*((f"D(1,{number}){text}", 1) for number, text in enumerate(evil)))
    told |= {"name": evil[0], "target": evil[1], "service": {"gpuType": evil[2], "engine": evil[4]}}
    raw = {number: {"error": text} if number % 2 else outcome(5, (text,)) for number, text in enumerate(evil)}
    text = rendered(results(told, raw))
    assert not [tag for tag in evil if tag in text] and "&lt;script&gt;" in text


def test_plot_scales_points_and_skips_empty_series() -> None:
    found = plot("t", [("a", [(8, 230.0), (1, 100.0)]), ("b", [])])
    assert found is not None
    (line,) = found.lines
    assert [label for _, label in found.xs] == ["1", "8"]
    assert [label for _, label in found.ys] == ["0", "60", "120", "180", "240"]
    assert line.points[0][0] < line.points[1][0] and line.points[0][1] > line.points[1][1], "in SVG, a smaller y is higher"
    assert plot("t", [("a", [])]) is None
    alone = plot("t", [("a", [(4, 0.0)])])
    assert alone is not None and len(alone.lines[0].points) == 1


@pytest.mark.parametrize("text", ["x" * 9_000, "😀" * 9_000, "\ud800" * 9_000, "\x1b[2J" * 2_000])
def test_summary_fits_into_a_termination_message_for_any_input(text: str) -> None:
    """The summary fits into a termination message whatever a server or a user writes. The kubelet truncates a longer
    message, and truncated JSON cannot be read.
    """
    written = text.encode("utf-8", "replace").decode()
    found = results(plan((written, 1)), {0: outcome(0, (text,))})
    said = summary(found, f"s3://{written}")
    assert len(said.encode()) <= SUMMARY_BYTES
    report = BenchmarkReport.model_validate_json(said, by_alias=True, by_name=False)
    assert report.failed == 1 and report.error and report.error.isprintable()
    rendered(found).encode()
