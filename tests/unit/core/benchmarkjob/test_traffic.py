"""Tests of the requests that are sent: genai-bench's scenarios as arguments of SGLang's benchmark."""

import time
from typing import Any

import pytest

from ome_operator.core.benchmarkjob.job import PLAN, Images
from ome_operator.core.benchmarkjob.job import job as job_of
from ome_operator.core.benchmarkjob.target import NATIVE, ServerUnderTest
from ome_operator.core.benchmarkjob.traffic import CONCURRENCY, MOST_RUNS, SCENARIOS, Lengths, body, params, runs
from ome_operator.core.problem import ProblemError
from tests.unit.core.benchmarkjob import jobs


def one(scenario: str, dataset: str = "") -> Any:
    """Return the only run of a scenario."""
    (found,) = runs(jobs.job(trafficScenarios=[scenario], numConcurrency=[8]).spec, dataset)
    return found


@pytest.mark.parametrize(
    ("scenario", "lengths"),
    [
        ("D(100,1000)", Lengths("D", (100, 100), (1000, 1000))),
        ("N(480,240)/(300,150)", Lengths("N", (480, 240), (300, 150))),
        ("U(50,200)/(20,40)", Lengths("U", (50, 200), (20, 40))),
        ("U(200, 40)", Lengths("U", (1, 200), (1, 40))),
    ],
)
def test_length_scenario_becomes_arguments(scenario: str, lengths: Lengths) -> None:
    run = one(scenario)
    assert (run.lengths, run.program) == (lengths, "serving")
    assert run.args == ("--num-prompts", "50", "--max-concurrency", "8", "--dataset-name", "random-ids")


def test_shared_prefix_scenario_becomes_arguments() -> None:
    assert " ".join(one("P(2000,500)/200").args[4:]) == (
        "--dataset-name generated-shared-prefix --gsp-num-groups 1 --gsp-prompts-per-group 50 "
        "--gsp-system-prompt-len 2000 --gsp-question-len 500 --gsp-output-len 200"
    )


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("", ["sharegpt"]),
        ("/ome/dataset/a.json", ["sharegpt", "--dataset-path", "/ome/dataset/a.json"]),
        ("/ome/dataset/a.jsonl", ["custom", "--dataset-path", "/ome/dataset/a.jsonl"]),
    ],
)
def test_conversation_dataset_becomes_arguments(file: str, words: list[str]) -> None:
    assert list(one("dataset", file).args[4:]) == ["--dataset-name", *words]


def test_gsm8k_scenario_becomes_arguments() -> None:
    run = one("gsm8k", "/ome/dataset/test.jsonl")
    assert (run.program, run.lengths) == ("gsm8k", None)
    assert run.args == ("--num-questions", "50", "--parallel", "8", "--data-path", "/ome/dataset/test.jsonl")


def test_every_scenario_runs_at_every_concurrency() -> None:
    found = runs(jobs.job(trafficScenarios=["D(1,1)", "dataset"], numConcurrency=[1, 4]).spec, "")
    assert [run.scenario for run in found] == ["D(1,1)", "D(1,1)", "dataset", "dataset"]
    assert [run.concurrency for run in found] == [1, 4, 1, 4]


def test_benchmark_defaults_to_standard_scenarios_and_concurrency() -> None:
    found = runs(jobs.job(trafficScenarios=None, numConcurrency=None).spec, "")
    assert [run.scenario for run in found[:: len(CONCURRENCY)]] == list(SCENARIOS)
    assert tuple(run.concurrency for run in found[: len(CONCURRENCY)]) == CONCURRENCY
    data = {"storageUri": "pvc://data/a.json"}
    (run,) = runs(jobs.job(trafficScenarios=None, numConcurrency=[1], dataset=data).spec, "/a.json")
    assert run.scenario == "dataset"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"trafficScenarios": ["E(1024)"]},
            "spec.trafficScenarios has 'E(1024)', which is not a supported scenario: write D(in,out)",
        ),
        ({"trafficScenarios": ["D(100)"]}, "'D(100)', which is not a supported scenario"),
        ({"trafficScenarios": [""]}, "'', which is not a supported scenario"),
        ({"trafficScenarios": ["U(9,1)/(1,2)"]}, "empty range"),
        ({"task": "text-to-embeddings"}, "spec.task text-to-embeddings is not supported"),
        ({"numConcurrency": [1, 0]}, "spec.numConcurrency"),
        ({"maxRequestsPerIteration": 0}, "is 0: write 1 or more"),
    ],
)
def test_unsupported_traffic_is_refused_with_reason(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match="spec") as caught:
        runs(jobs.job(**spec).spec, "")
    assert words in caught.value.problem.message
    assert caught.value.problem.reason == "TrafficNotServed"


def test_request_parameters_become_extra_request_body() -> None:
    given = {"temperature": "0.6", "top_p": "0.9", "ignore_eos": "false", "stop": "END", "n": "2"}
    spec = jobs.job(additionalRequestParams=given).spec
    own = ("--temperature", "0.6", "--top-p", "0.9", "--disable-ignore-eos")
    assert body(spec, native=True) == (*own, "--extra-request-body", '{"n": 2, "stop": "END"}')
    everything = '{"ignore_eos": false, "n": 2, "stop": "END", "temperature": 0.6, "top_p": 0.9}'
    assert body(spec, native=False) == ("--extra-request-body", everything)
    assert body(jobs.job().spec, native=True) == ()


def test_numbers_with_more_than_nine_digits_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"'D.9+\.\.\.', which contains a number of more than 9 digits") as refused:
        one(f"D({'9' * 5000},1)")
    assert len(refused.value.problem.message) < 200
    assert one("D(999999999,1)").lengths == Lengths("D", (999_999_999, 999_999_999), (1, 1))


def test_request_parameters_are_parsed_as_json_if_valid() -> None:
    given = {"a": "null", "b": "1", "c": "x", "d": '{"e": [1]}', "f": "[" * 100 + "]" * 100, "g": "9" * 5000}
    found = params(jobs.job(additionalRequestParams=given).spec)
    assert [found[name] for name in "abcdg"] == [None, 1, "x", {"e": [1]}, "9" * 5000]
    assert found["f"] is not None


def test_number_of_runs_of_a_benchmark_job_is_limited() -> None:
    """The number of runs of a BenchmarkJob is limited. A spec of 20 kB with 1,000 scenarios at 1,000 numbers of requests
    blocked the operator for a minute. A spec with 3,000 of each took more memory than the operator's container has.
    """
    for scenarios, numbers in ((1_000, 1_000), (100_000, 100_000), (MOST_RUNS + 1, 1), (1, MOST_RUNS + 1)):
        spec = jobs.job(trafficScenarios=["D(1,1)"] * scenarios, numConcurrency=[1] * numbers).spec
        begin = time.process_time()
        with pytest.raises(ProblemError, match="divide the runs among several BenchmarkJobs"):
            runs(spec, "")
        assert time.process_time() - begin < 0.1
    assert len(runs(jobs.job(trafficScenarios=["D(1,1)"] * MOST_RUNS, numConcurrency=[1]).spec, "")) == MOST_RUNS


def test_plan_with_maximum_number_of_runs_fits_into_an_environment_variable() -> None:
    """The plan of as many runs as a BenchmarkJob may have fits into an environment variable. Linux does not start a program
    with a variable of more than 128 KiB.
    """
    scenario = "N(123456789,123456789)/(123456789,123456789)"
    spec = {"trafficScenarios": [scenario] * MOST_RUNS, "numConcurrency": [123456]}
    made = job_of(jobs.job(**spec), ServerUnderTest("http://x", NATIVE, "", "/mnt/models/tiny"), Images("sglang", "tools"))
    (plan,) = (item["value"] for item in made["spec"]["template"]["spec"]["containers"][0]["env"] if item["name"] == PLAN)
    assert len(plan) < 128 * 1024 - len(PLAN)


def test_a_long_scenario_is_refused() -> None:
    with pytest.raises(ProblemError, match="is not a supported scenario"):
        runs(jobs.job(trafficScenarios=[f"D(1,{' ' * 100_000}1)"]).spec, "")
