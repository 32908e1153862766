"""Tests of the program that runs in SGLang's image, with a stub in place of the benchmark. tests/node runs it with the real
one.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ome_operator.benchmark_pod import inside


class Output:
    """The result of a request, as in SGLang's backends."""

    def __init__(self) -> None:
        self.success, self.ttft, self.error = False, 0.0, ""


async def answer(request: float, pbar: Any = None) -> Output:
    """Return after as many seconds as the request states. The answer to a negative number has no token."""
    await asyncio.sleep(max(0.0, request))
    output = Output()
    output.success, output.ttft = True, 0.0 if request < 0 else 0.1
    return output


async def errors(requests: list[float], seconds: float) -> list[str]:
    """Return the errors for these requests."""
    send = inside.timed(answer, lambda _: Output(), seconds)
    return [one.error for one in await asyncio.gather(*(send(one) for one in requests))]


async def test_running_requests_are_cancelled_at_the_time_limit() -> None:
    assert await errors([0.0, 0.01, 30.0], 1.0) == ["", "", inside.CUT]
    send = inside.timed(answer, lambda _: Output(), 0.0)
    assert (await send(0.0)).error == inside.CUT, "the request was not sent"


async def test_an_answer_without_a_token_is_a_failure() -> None:
    assert await errors([0.0, -1.0], 5.0) == ["", inside.SILENT]


@pytest.mark.parametrize(
    ("form", "pair", "low", "high"),
    [("D", (9, 9), 9, 9), ("U", (3, 7), 3, 7), ("U", (0, 1), 2, 2), ("N", (100, 5), 60, 140), ("N", (0, 0), 2, 2)],
)
def test_drawn_lengths_stay_within_scenario_bounds(form: str, pair: tuple[int, int], low: int, high: int) -> None:
    random.seed(7)
    found = [inside.draw_length(2, form, *pair) for _ in range(300)]
    assert low <= min(found) <= max(found) <= high
    assert form == "D" or low == high or len(set(found)) > 3


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Return a stub of SGLang's benchmark module with the attributes that `inside` uses."""
    datasets: dict[str, Any] = {}
    benchmark = types.SimpleNamespace(
        ASYNC_REQUEST_FUNCS={"sglang": answer}, RequestFuncOutput=types.SimpleNamespace(init_new=lambda _: Output())
    )

    def cli_main() -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--output-file")
        parser.add_argument("--num-prompts", type=int)
        args, _ = parser.parse_known_args()
        if args.num_prompts > 5:
            print("Server at http://svc is not ready. Exiting.")
            sys.exit(1)
        args.tokenize_prompt = True
        tokenizer = types.SimpleNamespace(all_special_ids=[0], vocab_size=5)
        rows = datasets["random-ids"].from_args(args).load(tokenizer)
        assert benchmark.ASYNC_REQUEST_FUNCS["sglang"] is not answer
        found = {"rows": [row[1:] for row in rows], "ids": sorted(set(rows[0][0]))}
        Path(args.output_file).write_text(json.dumps(found) + "\n")

    benchmark.cli_main = cli_main
    forget(monkeypatch)
    asked = types.SimpleNamespace(run_eval=lambda args: {"accuracy": 0.5, "args": vars(args)})
    row = types.SimpleNamespace(DATASET_MAPPING=datasets, DatasetRow=lambda *fields: fields)
    for name, module in {
        "sglang": types.SimpleNamespace(),
        "sglang.benchmark": types.SimpleNamespace(),
        "sglang.benchmark.serving": benchmark,
        "sglang.benchmark.datasets": row,
        "sglang.test": types.SimpleNamespace(few_shot_gsm8k=asked),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return benchmark


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the modules that an installation of SGLang or another test has left."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("sglang", "genai_bench"):
            monkeypatch.delitem(sys.modules, name)


OLDER = """
import argparse, json

class DatasetRow(tuple):
    def __new__(cls, *fields):
        return super().__new__(cls, fields)

class RequestFuncOutput:
    @staticmethod
    def init_new(request):
        return Output()

class Output:
    success, ttft, error = False, 0.0, ""

class Request:
    output_len, extra_request_body = 3, {"seed": 1}

async def send(request_func_input, pbar=None):
    output = Output()
    output.success, output.ttft, output.sent = True, 0.1, request_func_input.extra_request_body
    return output

ASYNC_REQUEST_FUNCS = {"sglang": send}

def get_dataset(args, tokenizer, model_id=None):
    return [one["conversations"][0]["value"] for one in json.load(open(args.dataset_path))]

class Tokenizer:
    all_special_ids, vocab_size = [0], 5

def run_benchmark(given):
    import asyncio
    global args
    args = given
    rows = get_dataset(args, Tokenizer(), "m")
    output = asyncio.run(ASYNC_REQUEST_FUNCS[args.backend](request_func_input=Request(), pbar=None))
    told = {"rows": [row[1:] if args.tokenize_prompt else row for row in rows], "sent": output.sent, "error": output.error}
    open(args.output_file, "a").write(json.dumps(told) + "\\n")

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=list(ASYNC_REQUEST_FUNCS))
    parser.add_argument("--dataset-name", choices=["sharegpt", "random-ids"])
    for flag in ("--dataset-path", "--output-file"):
        parser.add_argument(flag)
    parser.add_argument("--num-prompts", type=int)
    for flag in ("--tokenize-prompt", "--output-details", "--disable-ignore-eos"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    run_benchmark(args)
"""
"""A stand-in for `sglang/bench_serving.py` of 0.5.6.post1. It has only what `inside` uses: in that version, arguments are
read only if the file runs as a program.
"""


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a stub of an older SGLang, whose benchmark was a single module and not a package."""
    forget(monkeypatch)
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang/__init__.py").touch()
    (tmp_path / "sglang/bench_serving.py").write_text(OLDER)
    monkeypatch.syspath_prepend(tmp_path)


def test_benchmark_module_of_older_sglang_versions_is_found(older: None, tmp_path: Path) -> None:
    """The program finds the benchmark in older versions of SGLang, too. The benchmark of 0.5.6.post1 has no registry of
    data sets and no options for sampling parameters.
    """
    words = ["--backend", "sglang", "--temperature", "0.6", "--top-p", "0.9", "--disable-ignore-eos"]
    asked = {**run(2), "args": ["--num-prompts", "2", "--dataset-name", "random-ids", "--tokenize-prompt"]}
    found = inside.outcome({"serving": words, "seconds": 60}, asked, tmp_path / "0.jsonl")
    sampling = {"temperature": 0.6, "max_new_tokens": 3, "ignore_eos": False, "top_p": 0.9}
    assert found == {"result": {"rows": [[20, 3], [20, 3]], "sent": {"seed": 1, "sampling_params": sampling}, "error": ""}}


def test_conversations_are_converted_for_older_sglang_versions(older: None, tmp_path: Path) -> None:
    lines = tmp_path / "data.jsonl"
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    lines.write_text(json.dumps({"conversations": turns}) + "\n\n" + json.dumps({"conversation": [{"value": "ho"}]}) + "\n")
    args = ["--num-prompts", "2", "--dataset-name", "custom", "--dataset-path", str(lines)]
    plan, asked = {"serving": ["--backend", "sglang"], "seconds": 60}, {"program": "serving", "args": args}
    assert inside.outcome(plan, asked, tmp_path / "0.jsonl")["result"]["rows"] == ["hi", "ho"]


def test_image_without_a_benchmark_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, "sglang", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "genai_bench", None)  # type: ignore[arg-type]
    found = inside.outcome({"serving": ["--backend", "sglang"], "seconds": 60}, run(1), tmp_path / "0.jsonl")
    assert found == {"error": inside.NOTHING}


def run(requests: int) -> dict[str, Any]:
    """Return one of the runs of a benchmark's plan."""
    lengths = {"form": "D", "prompt": [20, 20], "answer": [3, 3]}
    shared = {"scenario": "D(20,3)", "concurrency": 1, "program": "serving"}
    return {**shared, "args": ["--num-prompts", str(requests)], "lengths": lengths}


def test_every_run_writes_its_outcome(
    sglang: types.SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = {"scenario": "gsm8k", "concurrency": 8, "program": "gsm8k"}
    plan = {
        "serving": ["--backend", "sglang"],
        "seconds": 60,
        "gsm8k": {"host": "svc", "port": 80},
        "runs": [run(2), run(9), {**questions, "args": ["--num-questions", "3", "--data-path", "/d/x.jsonl"]}],
    }
    monkeypatch.setenv("OME_BENCHMARK", json.dumps(plan))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["inside.py"])
    inside.main()
    found = [json.loads((tmp_path / f"raw/{number}.json").read_text()) for number in range(3)]
    assert found[0] == {"result": {"rows": [[20, 3], [20, 3]], "ids": [1, 2, 3, 4]}}, "no special token is sent"
    assert found[1] == {"error": "Server at http://svc is not ready. Exiting."}
    asked = found[2]["result"]["args"]
    assert (asked["host"], asked["num_questions"], asked["data_path"], asked["num_shots"]) == ("svc", 3, "/d/x.jsonl", 5)
    assert sglang.ASYNC_REQUEST_FUNCS["sglang"] is answer, "restored for the next run"


def test_benchmark_program_imports_no_project_module(tmp_path: Path) -> None:
    """The program imports no module of this project, because SGLang's image contains neither this package nor its
    dependencies.
    """
    command = [sys.executable, "-I", "-S", str(Path(inside.__file__))]
    env = {"OME_BENCHMARK": '{"runs": []}'}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
