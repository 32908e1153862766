"""Runs SGLang's serving benchmark in an image of SGLang, once for every run of the plan: the only file of ours there.

The benchmark is called as its command line calls it. Two of its registries get an entry of ours: a data set with the prompt
lengths of the scenario, and the backend's own function with a clock around it. Without the clock a run could only be killed,
and all that it had measured would be lost.

Every run leaves `raw/<number>.json`: {"result": what the benchmark wrote} or {"error": why it wrote nothing}.
"""

import asyncio
import json
import os
import random
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

Json = dict[str, Any]
Send = Callable[..., Awaitable[Any]]

CUT = "ome: the time of the run was up"
"""Error of requests that were cut off, or never sent."""
SILENT = "the server answered without a token"
RAW = Path("raw")
QUESTIONS = {"num_shots": 5, "data_path": None, "max_new_tokens": 512, "temperature": 0.0}
"""Defaults of sglang.test.few_shot_gsm8k."""


def main() -> None:
    """All runs. How they went is for the report to say, so this fails only when nothing can run."""
    plan = json.loads(os.environ["OME_BENCHMARK"])
    RAW.mkdir(exist_ok=True)
    for number, run in enumerate(plan["runs"]):
        print(f"ome: run {number + 1} of {len(plan['runs'])}: {run['scenario']} at {run['concurrency']}", flush=True)
        (RAW / f"{number}.json").write_text(json.dumps(outcome(plan, run, RAW / f"{number}.jsonl")))


def outcome(plan: Json, run: Json, file: Path) -> Json:
    """What one run gave. The benchmark ends with SystemExit, and has printed why."""
    said = Said(sys.stdout)
    sys.stdout = said
    try:
        return {"result": PROGRAMS[run["program"]](plan, run, file)}
    except SystemExit:
        return {"error": said.last}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        sys.stdout = said.out


class Said:
    """Standard output that remembers its last line."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.last = out, ""

    def write(self, text: str) -> int:
        """Pass on."""
        self.last = ([line.strip() for line in text.splitlines() if line.strip()] or [self.last])[-1]
        return self.out.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


def serving(plan: Json, run: Json, file: Path) -> Json:
    """The serving benchmark; its result with the lists of every request."""
    from sglang.benchmark import serving as benchmark
    from sglang.benchmark.datasets import DATASET_MAPPING

    words = [*plan["serving"], *run["args"]]
    backend = words[words.index("--backend") + 1]
    send = benchmark.ASYNC_REQUEST_FUNCS[backend]
    if "lengths" in run:
        DATASET_MAPPING["random-ids"] = made_up(run["lengths"])
    benchmark.ASYNC_REQUEST_FUNCS[backend] = timed(send, benchmark.RequestFuncOutput.init_new, plan["seconds"])
    sys.argv = ["serving", *words, "--output-details", "--output-file", str(file)]
    try:
        benchmark.cli_main()
    finally:
        benchmark.ASYNC_REQUEST_FUNCS[backend] = send
    found: Json = json.loads(file.read_text().splitlines()[-1])
    return found


def timed(send: Send, blank: Callable[[Any], Any], seconds: float) -> Send:
    """`send` until the time is up, counted from its first call (the warm-up); `blank` makes the answer that there is not."""
    until: list[float] = []

    async def sent(request_func_input: Any, pbar: Any = None) -> Any:
        until.append(time.monotonic() + seconds)
        left = until[0] - time.monotonic()
        output = blank(request_func_input)
        if left <= 0:
            output.error = CUT
            return output
        try:
            output = await asyncio.wait_for(send(request_func_input, pbar), left)
        except asyncio.TimeoutError:  # noqa: UP041 (another class before Python 3.11)
            output.error = CUT
        if output.success and not output.ttft:  # an error within a stream is no error for the benchmark
            output.success, output.error = False, SILENT
        return output

    return sent


def made_up(lengths: Json) -> type:
    """The class of a data set of random tokens with these lengths."""
    from sglang.benchmark.datasets import DatasetRow

    form = lengths["form"]

    class MadeUp:
        """Prompts that have the length which is asked for, as tokens where the backend takes tokens."""

        def __init__(self, args: Namespace) -> None:
            self.count, self.exact = args.num_prompts, args.tokenize_prompt

        @classmethod
        def from_args(cls, args: Namespace) -> "MadeUp":
            """As the benchmark makes it."""
            return cls(args)

        def load(self, tokenizer: Any, model_id: Any = None) -> list[Any]:
            """One row for every request."""
            special = set(tokenizer.all_special_ids)
            tokens = [token for token in range(tokenizer.vocab_size) if token not in special]
            rows = []
            for _ in range(self.count):
                ids = random.choices(tokens, k=drawn(1, form, *lengths["prompt"]))
                answer = drawn(2, form, *lengths["answer"])
                rows.append(DatasetRow(ids if self.exact else tokenizer.decode(ids), len(ids), answer))
            return rows

    return MadeUp


def drawn(least: int, form: str, first: int, second: int) -> int:
    """A number of tokens, not below `least`: fixed, normal (mean, standard deviation), or uniform (smallest, largest)."""
    if form == "N":
        return max(least, int(random.gauss(first, second)))
    return max(least, first if form == "D" else random.randint(first, second))


def gsm8k(plan: Json, run: Json, file: Path) -> Json:
    """The questions of GSM8K: accuracy, invalid, latency, output_throughput."""
    from sglang.test import few_shot_gsm8k

    words = run["args"]
    given = {flag[2:].replace("-", "_"): word for flag, word in zip(words[::2], words[1::2], strict=True)}
    numbers = {name: int(word) if word.isdigit() else word for name, word in given.items()}
    asked = Namespace(**{**QUESTIONS, **plan["gsm8k"], **numbers})
    return {"questions": asked.num_questions, **few_shot_gsm8k.run_eval(asked)}


PROGRAMS = {"serving": serving, "gsm8k": gsm8k}

if __name__ == "__main__":
    main()
