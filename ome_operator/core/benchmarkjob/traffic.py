"""Translate the traffic of a BenchmarkJob to arguments of SGLang's serving benchmark: each scenario at each concurrency.

Scenarios are written as in genai-bench, in tokens: `D(in,out)` fixed, `N(mean,sd)/(mean,sd)` normal, `U(min,max)/(min,max)`
or `U(max in,max out)` uniform, `P(prefix,suffix)/out` after a shared prefix. `dataset` sends the conversations of a data
set, and `gsm8k` its questions.
"""

import json
import re
from typing import Any, NamedTuple

from ome_operator.api.benchmark import BenchmarkSpec
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, Reason
from ome_operator.util.json_limits import exceeds_depth

SCENARIOS = ("N(480,240)/(300,150)", "D(100,100)", "D(100,1000)", "D(2000,200)", "D(7800,200)")
"""Scenarios that are used if the spec names no scenario and no data set, as in genai-bench."""
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of concurrent requests that are used if the spec names no numbers, as in genai-bench."""
DATASET, GSM8K = "dataset", "gsm8k"
MADE_UP = "random-ids"
"""Name of the data set in SGLang's benchmark that consists of prompts of random tokens with the requested lengths. In the
containers of a job, the operator's own program generates these prompts."""

_FORMS = {
    "D": re.compile(r"D\((\d+),(\d+)\)"),
    "N": re.compile(r"N\((\d+),(\d+)\)/\((\d+),(\d+)\)"),
    "U": re.compile(r"U\((\d+),(\d+)\)(?:/\((\d+),(\d+)\))?"),
    "P": re.compile(r"P\((\d+),(\d+)\)/(\d+)"),
}
DIGITS = 9
"""Maximum number of digits of a number of tokens in a scenario. No model accepts a billion tokens."""
MOST_RUNS = 256
"""Maximum number of runs of a job: scenarios times numbers of concurrent requests. The containers get all runs in an
environment variable, for which Linux has 128 KiB."""
BLANKS = 40
"""Maximum number of blanks in a scenario. The containers get the text of the scenario with its blanks, so it must be
bounded."""
LEVELS = 100
"""Maximum depth to which lists and maps in `additionalRequestParams` may be nested, so that every JSON parser can read the
requests."""


class Lengths(NamedTuple):
    """The distribution of the lengths of prompts and of answers. Each has two parameters in tokens, whose meaning depends on
    `form`.
    """

    form: str
    """Form of the distribution, which defines the two numbers. `D`: (n, n). `N`: (mean, standard deviation). `U`:
    (minimum, maximum)."""
    prompt: tuple[int, int]
    answer: tuple[int, int]


class Run(NamedTuple):
    """One scenario at one number of concurrent requests."""

    scenario: str
    concurrency: int
    program: str
    """Program that sends the requests: `serving` or `gsm8k`."""
    args: tuple[str, ...]
    """Arguments of this run, in addition to the common arguments of the program."""
    lengths: Lengths | None = None


def _refused(sentence: str) -> ProblemError:
    return ProblemError(COMPLETE, Reason.TRAFFIC_NOT_SERVED, sentence)


def runs(spec: BenchmarkSpec, dataset: str) -> tuple[Run, ...]:
    """Return all runs in order. `dataset` is the path of the data set in the pod, "" if there is none. Raises
    ProblemError for unsupported traffic.
    """
    scenarios = spec.traffic_scenarios or ((DATASET,) if spec.dataset else SCENARIOS)
    if spec.task != "text-to-text":
        raise _refused(f"spec.task {spec.task} is not supported: this benchmark measures text-to-text")
    if spec.max_requests_per_iteration < 1 or spec.max_time_per_iteration < 1:
        raise _refused("spec.maxRequestsPerIteration or spec.maxTimePerIteration (in minutes) is 0: write 1 or more")
    in_flight = tuple(spec.num_concurrency or CONCURRENCY)
    if len(scenarios) * len(in_flight) > MOST_RUNS:
        raise _refused(
            f"spec.trafficScenarios and spec.numConcurrency together define {len(scenarios)} times {len(in_flight)} runs, "
            f"but a BenchmarkJob has at most {MOST_RUNS} runs: divide the runs among several BenchmarkJobs"
        )
    if any(number < 1 for number in in_flight):
        raise _refused("spec.numConcurrency contains a number below 1: write numbers of 1 or more")
    result = []
    for scenario in scenarios:
        result += [_run(scenario.strip(), number, spec.max_requests_per_iteration, dataset) for number in in_flight]
    return tuple(result)


def _run(scenario: str, concurrency: int, requests: int, dataset: str) -> Run:
    """Return the run that sends `requests` requests of a scenario, of which `concurrency` run at the same time. `dataset` is
    the path of the data set in the pod; "" if there is none.
    """
    if scenario == GSM8K:
        data = ("--data-path", dataset) if dataset else ()
        return Run(scenario, concurrency, "gsm8k", ("--num-questions", str(requests), "--parallel", str(concurrency), *data))
    args, lengths = _dataset(dataset) if scenario == DATASET else _shaped(scenario, requests)
    common = ("--num-prompts", str(requests), "--max-concurrency", str(concurrency))
    return Run(scenario, concurrency, "serving", (*common, *args), lengths)


def _dataset(dataset: str) -> tuple[tuple[str, ...], Lengths | None]:
    """Return the arguments for a data set, and None instead of lengths, because the lengths of its prompts are not
    configured. `dataset` is the path of a file. If it is "", SGLang's benchmark downloads the conversations of ShareGPT
    from the hub.
    """
    name = "custom" if dataset.endswith(".jsonl") else "sharegpt"
    return ("--dataset-name", name, *(("--dataset-path", dataset) if dataset else ())), None


def _shaped(scenario: str, requests: int) -> tuple[tuple[str, ...], Lengths | None]:
    """Return the arguments and the lengths for a scenario with generated prompts. Raises ProblemError for an invalid
    scenario.
    """
    form = scenario[:1]
    match = _FORMS[form].fullmatch(scenario.replace(" ", "")) if form in _FORMS else None
    field = f"spec.trafficScenarios has {_cut(scenario)!r}, which"
    if match is None or len(scenario) - len(scenario.replace(" ", "")) > BLANKS:
        raise _refused(
            f"{field} is not a supported scenario: write D(in,out), N(mean,sd)/(mean,sd), U(min,max)/(min,max), "
            "P(prefix,suffix)/out, dataset or gsm8k"
        )
    digits = [text for text in match.groups() if text is not None]
    if any(len(text) > DIGITS for text in digits):
        raise _refused(f"{field} contains a number of more than {DIGITS} digits: write a lower number")
    numbers = [int(text) for text in digits]
    if form == "P":
        prefix, suffix, answer = (str(text) for text in numbers)
        group = ("--gsp-num-groups", "1", "--gsp-prompts-per-group", str(requests))
        sizes = ("--gsp-system-prompt-len", prefix, "--gsp-question-len", suffix, "--gsp-output-len", answer)
        return ("--dataset-name", "generated-shared-prefix", *group, *sizes), None
    lengths = _lengths(form, numbers)
    if form == "U" and any(low > high for low, high in (lengths.prompt, lengths.answer)):
        raise _refused(f"{field} has an empty range: the first number must be the smaller one")
    return ("--dataset-name", MADE_UP), lengths


def _cut(text: str) -> str:
    """Return a text for a message, shortened to 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lengths(form: str, numbers: list[int]) -> Lengths:
    first, second = numbers[:2]
    if form == "D":
        return Lengths(form, (first, first), (second, second))
    if len(numbers) == 2:
        return Lengths(form, (1, first), (1, second))
    return Lengths(form, (first, second), (numbers[2], numbers[3]))


def params(spec: BenchmarkSpec) -> dict[str, Any]:
    """Return `additionalRequestParams`, with each value parsed as JSON or, if it is not JSON, as a string. Raises
    ProblemError if a value is nested too deeply.
    """
    return {name: _value(name, text) for name, text in (spec.additional_request_params or {}).items()}


def body(spec: BenchmarkSpec, native: bool) -> tuple[str, ...]:
    """Return `additionalRequestParams` as arguments of the serving benchmark. `native` states whether the benchmark uses
    SGLang's own format.

    In SGLang's own format, the benchmark itself writes the object with the sampling parameters, so these parameters are
    passed as flags.
    """
    given = params(spec)
    args: list[str] = []
    if native:
        for name, flag in (("temperature", "--temperature"), ("top_p", "--top-p")):
            if name in given:
                args += [flag, str(given.pop(name))]
        if given.pop("ignore_eos", True) is False:
            args.append("--disable-ignore-eos")
    if given:
        args += ["--extra-request-body", json.dumps(given, sort_keys=True)]
    return tuple(args)


def _value(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
        fine = not exceeds_depth(value, LEVELS)
    except ValueError:
        return text
    except RecursionError:
        fine = False
    if not fine:
        where = f"spec.additionalRequestParams.{_cut(name)}"
        raise _refused(f"{where} has more than {LEVELS} nested lists or maps: write fewer")
    return value
