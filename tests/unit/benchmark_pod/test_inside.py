"""The program that runs in SGLang's image, with a benchmark that only pretends; tests/node runs it with the real one."""

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
    """What SGLang's backends give back."""

    def __init__(self) -> None:
        self.success, self.ttft, self.error = False, 0.0, ""


async def answer(request: float, pbar: Any = None) -> Output:
    """A request takes as many seconds as it says; a negative one is answered without a token."""
    await asyncio.sleep(max(0.0, request))
    output = Output()
    output.success, output.ttft = True, 0.0 if request < 0 else 0.1
    return output


async def errors(requests: list[float], seconds: float) -> list[str]:
    """What came of them."""
    send = inside.timed(answer, lambda _: Output(), seconds)
    return [one.error for one in await asyncio.gather(*(send(one) for one in requests))]


async def test_requests_are_cut_when_the_time_is_up() -> None:
    assert await errors([0.0, 0.01, 30.0], 1.0) == ["", "", inside.CUT]
    send = inside.timed(answer, lambda _: Output(), 0.0)
    assert (await send(0.0)).error == inside.CUT, "not even sent"


async def test_an_answer_without_a_token_is_a_failure() -> None:
    assert await errors([0.0, -1.0], 5.0) == ["", inside.SILENT]


@pytest.mark.parametrize(
    ("form", "pair", "low", "high"),
    [("D", (9, 9), 9, 9), ("U", (3, 7), 3, 7), ("U", (0, 1), 2, 2), ("N", (100, 5), 60, 140), ("N", (0, 0), 2, 2)],
)
def test_lengths(form: str, pair: tuple[int, int], low: int, high: int) -> None:
    random.seed(7)
    found = [inside.drawn(2, form, *pair) for _ in range(300)]
    assert low <= min(found) <= max(found) <= high
    assert form == "D" or low == high or len(set(found)) > 3


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A module that looks like SGLang's benchmark where `inside` touches it."""
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
    asked = types.SimpleNamespace(run_eval=lambda args: {"accuracy": 0.5, "args": vars(args)})
    row = types.SimpleNamespace(DATASET_MAPPING=datasets, DatasetRow=lambda *fields: fields)
    for name, module in {
        "sglang": types.SimpleNamespace(),
        "sglang.benchmark": types.SimpleNamespace(serving=benchmark),
        "sglang.benchmark.datasets": row,
        "sglang.test": types.SimpleNamespace(few_shot_gsm8k=asked),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return benchmark


def run(requests: int) -> dict[str, Any]:
    """One run of the plan."""
    lengths = {"form": "D", "prompt": [20, 20], "answer": [3, 3]}
    shared = {"scenario": "D(20,3)", "concurrency": 1, "program": "serving"}
    return {**shared, "args": ["--num-prompts", str(requests)], "lengths": lengths}


def test_every_run_leaves_its_outcome(
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
    assert sglang.ASYNC_REQUEST_FUNCS["sglang"] is answer, "as it was, for the next run"


def test_it_needs_nothing_of_ours(tmp_path: Path) -> None:
    """In SGLang's image there is neither this package nor anything that it depends on."""
    command = [sys.executable, "-I", "-S", str(Path(inside.__file__))]
    env = {"OME_BENCHMARK": '{"runs": []}'}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
