"""What a BenchmarkJob sends, as arguments of SGLang's serving benchmark: scenarios times numbers of requests in flight.

Scenarios are spelled as genai-bench spells them, in tokens: `D(in,out)` fixed, `N(mean,sd)/(mean,sd)` normal,
`U(min,max)/(min,max)` or `U(max in,max out)` uniform, `P(prefix,suffix)/out` behind a shared prefix. `dataset` sends the
conversations of a data set and `gsm8k` asks its questions.
"""

import json
import re
from typing import Any, NamedTuple

from ome_operator.api.benchmark import BenchmarkSpec
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, Reason
from ome_operator.util.json_limits import deeper

SCENARIOS = ("N(480,240)/(300,150)", "D(100,100)", "D(100,1000)", "D(2000,200)", "D(7800,200)")
"""Where none is written and there is no data set; those of genai-bench."""
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Where none is written; those of genai-bench."""
"""The condition of a BenchmarkJob."""
DATASET, GSM8K = "dataset", "gsm8k"
MADE_UP = "random-ids"
"""The data set of SGLang's benchmark whose place ours takes: prompts of random tokens, of the lengths that are asked for."""

_FORMS = {
    "D": re.compile(r"D\((\d+),(\d+)\)"),
    "N": re.compile(r"N\((\d+),(\d+)\)/\((\d+),(\d+)\)"),
    "U": re.compile(r"U\((\d+),(\d+)\)(?:/\((\d+),(\d+)\))?"),
    "P": re.compile(r"P\((\d+),(\d+)\)/(\d+)"),
}
DIGITS = 9
"""Of a number of tokens, at most: no model reads a billion."""
LEVELS = 100
"""Of lists and maps in each other in a request, at most: JSON of this depth is written and read everywhere."""


class Lengths(NamedTuple):
    """How many tokens prompts and answers have: two numbers for each, whose meaning depends on the form."""

    form: str
    """`D`: (n, n). `N`: (mean, standard deviation). `U`: (smallest, largest)."""
    prompt: tuple[int, int]
    answer: tuple[int, int]


class Run(NamedTuple):
    """One scenario at one number of requests in flight."""

    scenario: str
    concurrency: int
    program: str
    """`serving` or `gsm8k`."""
    args: tuple[str, ...]
    """What this run adds to the arguments of the program."""
    lengths: Lengths | None = None


def _refused(sentence: str) -> ProblemError:
    return ProblemError(COMPLETE, Reason.TRAFFIC_NOT_SERVED, sentence)


def runs(spec: BenchmarkSpec, dataset: str) -> tuple[Run, ...]:
    """Every run, in order; `dataset` is the file in the pod, "" without one. Raises ProblemError."""
    scenarios = spec.traffic_scenarios or ((DATASET,) if spec.dataset else SCENARIOS)
    if spec.task != "text-to-text":
        raise _refused(f"spec.task {spec.task} is not served: this benchmark measures text-to-text")
    if spec.max_requests_per_iteration < 1 or spec.max_time_per_iteration < 1:
        raise _refused("spec.maxRequestsPerIteration and spec.maxTimePerIteration (minutes) must be 1 or more")
    in_flight = tuple(spec.num_concurrency or CONCURRENCY)
    if any(number < 1 for number in in_flight):
        raise _refused("spec.numConcurrency: every number of requests in flight must be 1 or more")
    found = []
    for scenario in scenarios:
        found += [_run(scenario.strip(), number, spec.max_requests_per_iteration, dataset) for number in in_flight]
    return tuple(found)


def _run(scenario: str, concurrency: int, requests: int, dataset: str) -> Run:
    """One run."""
    if scenario == GSM8K:
        data = ("--data-path", dataset) if dataset else ()
        return Run(scenario, concurrency, "gsm8k", ("--num-questions", str(requests), "--parallel", str(concurrency), *data))
    args, lengths = _dataset(dataset) if scenario == DATASET else _shaped(scenario, requests)
    common = ("--num-prompts", str(requests), "--max-concurrency", str(concurrency))
    return Run(scenario, concurrency, "serving", (*common, *args), lengths)


def _dataset(dataset: str) -> tuple[tuple[str, ...], Lengths | None]:
    """Without a file, SGLang's benchmark fetches the conversations of ShareGPT from the hub."""
    name = "custom" if dataset.endswith(".jsonl") else "sharegpt"
    return ("--dataset-name", name, *(("--dataset-path", dataset) if dataset else ())), None


def _shaped(scenario: str, requests: int) -> tuple[tuple[str, ...], Lengths | None]:
    """Arguments and lengths of a scenario that makes its prompts up."""
    form = scenario[:1]
    found = _FORMS[form].fullmatch(scenario.replace(" ", "")) if form in _FORMS else None
    said = f"spec.trafficScenarios: {_cut(scenario)!r}"
    if found is None:
        raise _refused(
            f"{said} is not served: write D(in,out), N(mean,sd)/(mean,sd), "
            "U(min,max)/(min,max), P(prefix,suffix)/out, dataset or gsm8k"
        )
    digits = [one for one in found.groups() if one is not None]
    if any(len(one) > DIGITS for one in digits):
        raise _refused(f"{said} has a number of more than {DIGITS} digits: write a lower one")
    numbers = [int(one) for one in digits]
    if form == "P":
        prefix, suffix, answer = (str(one) for one in numbers)
        group = ("--gsp-num-groups", "1", "--gsp-prompts-per-group", str(requests))
        sizes = ("--gsp-system-prompt-len", prefix, "--gsp-question-len", suffix, "--gsp-output-len", answer)
        return ("--dataset-name", "generated-shared-prefix", *group, *sizes), None
    lengths = _lengths(form, numbers)
    if form == "U" and any(low > high for low, high in (lengths.prompt, lengths.answer)):
        raise _refused(f"{said} has an empty range: the first number must be the smaller one")
    return ("--dataset-name", MADE_UP), lengths


def _cut(text: str) -> str:
    """Short enough for a sentence."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lengths(form: str, numbers: list[int]) -> Lengths:
    first, second = numbers[:2]
    if form == "D":
        return Lengths(form, (first, first), (second, second))
    if len(numbers) == 2:
        return Lengths(form, (1, first), (1, second))
    return Lengths(form, (first, second), (numbers[2], numbers[3]))


def params(spec: BenchmarkSpec) -> dict[str, Any]:
    """`additionalRequestParams`: JSON where a value is JSON, else text. Raises ProblemError."""
    return {name: _value(name, text) for name, text in (spec.additional_request_params or {}).items()}


def body(spec: BenchmarkSpec, native: bool) -> tuple[str, ...]:
    """`additionalRequestParams` as arguments of the serving benchmark.

    SGLang's own format keeps sampling parameters in an object that the benchmark fills, so they have flags of their own.
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
        fine = not deeper(value, LEVELS)
    except ValueError:
        return text
    except RecursionError:
        fine = False
    if not fine:
        where = f"spec.additionalRequestParams.{_cut(name)}"
        raise _refused(f"{where} has more than {LEVELS} lists or maps in each other: write fewer")
    return value
