"""Runs the serving benchmark of the image, once for every run of the plan: SGLang's, of any version, or genai-bench.

This file and its neighbour for genai-bench (inside_genai) are all of ours there, so they import nothing of ours.

SGLang's benchmark is called as its command line calls it. Two of its registries get an entry of ours: a data set with the
prompt lengths of the scenario, and the backend's own function with a clock around it. Without the clock a run could only be
killed, and all that it had measured would be lost. Older versions have it as another module (`sglang.bench_serving`), with
fewer options.

Every run leaves `raw/<number>.json`: {"result": what the benchmark wrote} or {"error": why it wrote nothing}.
"""

import ast
import asyncio
import importlib
import json
import os
import random
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

Json = dict[str, Any]
Send = Callable[..., Awaitable[Any]]

CUT = "ome: the time of the run was up"
"""Error of requests that were cut off, or never sent."""
SILENT = "the server answered without a token"
NOTHING = (
    "this image has neither SGLang's serving benchmark nor genai-bench: spec.podOverride.image must name an image that has, "
    "such as docker.io/lmsysorg/sglang:v0.5.23"
)
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
    except Unfit as error:
        return {"error": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        sys.stdout = said.out


class Unfit(Exception):
    """The image cannot do what the plan wants: one sentence."""


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
    if (new := module("sglang.benchmark.serving")) is not None:
        return measured(new, new.cli_main, newer(run), plan, [*plan["serving"], *run["args"]], file)
    if (old := module("sglang.bench_serving")) is not None:
        words, sampling = without_sampling([*plan["serving"], *run["args"]])
        words = as_sharegpt(words, file.with_suffix(".sharegpt"))
        return measured(old, main_block(old), older(old, run, sampling), plan, words, file)
    if module("genai_bench") is not None:
        import inside_genai  # type: ignore[import-not-found]  # beside this file in the pod

        try:
            return dict(inside_genai.serving(plan, run, file))
        except RuntimeError as error:
            raise Unfit(str(error)) from error
    raise Unfit(NOTHING)


def module(name: str) -> Any:
    """The module of this name, None where the image has none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


Start = Callable[[], None]


def measured(
    benchmark: Any, start: Start, prepared: Callable[[Send], Send], plan: Json, words: list[str], file: Path
) -> Json:
    """Call the benchmark with these words; `prepared` puts into it what this version of it lacks."""
    backend = words[words.index("--backend") + 1]
    send = benchmark.ASYNC_REQUEST_FUNCS[backend]
    clocked = timed(prepared(send), benchmark.RequestFuncOutput.init_new, plan["seconds"])
    benchmark.ASYNC_REQUEST_FUNCS[backend] = clocked
    sys.argv = ["serving", *words, "--output-details", "--output-file", str(file)]
    try:
        start()
    finally:
        benchmark.ASYNC_REQUEST_FUNCS[backend] = send
    found: Json = json.loads(file.read_text().splitlines()[-1])
    return found


def newer(run: Json) -> Callable[[Send], Send]:
    """A benchmark with a registry of data sets gets ours."""

    def prepared(send: Send) -> Send:
        datasets = importlib.import_module("sglang.benchmark.datasets")
        if "lengths" in run:
            datasets.DATASET_MAPPING["random-ids"] = made_up(run["lengths"], datasets.DatasetRow)
        return send

    return prepared


def older(benchmark: Any, run: Json, sampling: Json) -> Callable[[Send], Send]:
    """A benchmark without that registry: its function for data sets is replaced, and requests get sampling parameters."""

    def dataset(args: Namespace, tokenizer: Any, model_id: Any = None) -> list[Any]:
        rows: list[Any] = made_up(run["lengths"], benchmark.DatasetRow)(args).load(tokenizer)
        return rows

    async def sampled(send: Send, request: Any, pbar: Any) -> Any:
        eos = not benchmark.args.disable_ignore_eos
        usual = {"temperature": 0.0, "max_new_tokens": request.output_len, "ignore_eos": eos}
        request.extra_request_body = {**request.extra_request_body, "sampling_params": {**usual, **sampling}}
        return await send(request, pbar)

    def prepared(send: Send) -> Send:
        if "lengths" in run:
            benchmark.get_dataset = dataset
        if not sampling:
            return send
        return lambda request_func_input, pbar=None: sampled(send, request_func_input, pbar)

    return prepared


def without_sampling(words: list[str]) -> tuple[list[str], Json]:
    """The words without the options that older benchmarks lack, and what those say."""
    left, found = list(words), Json()
    for option, name in (("--temperature", "temperature"), ("--top-p", "top_p")):
        if option in left:
            at = left.index(option)
            found[name] = float(left[at + 1])
            del left[at : at + 2]
    return left, found


def as_sharegpt(words: list[str], file: Path) -> list[str]:
    """A data set of lines as a file in ShareGPT's form, for a benchmark that knows only that."""
    if "custom" not in words[words.index("--dataset-name") :][:2]:
        return words
    at = words.index("--dataset-path") + 1
    lines = [json.loads(line) for line in Path(words[at]).read_text().splitlines() if line.strip()]
    turns = [data.get("conversations", data.get("conversation", [])) for data in lines]
    said = [[{"value": turn.get("content", turn.get("value", ""))} for turn in one] for one in turns]
    file.write_text(json.dumps([{"conversations": one} for one in said]))
    changed = [*words[:at], str(file), *words[at + 1 :]]
    changed[changed.index("--dataset-name") + 1] = "sharegpt"
    return changed


def main_block(benchmark: ModuleType) -> Start:
    """What a module does when it is run as a program, within the module: no function of it reads the arguments."""
    path = str(benchmark.__file__)
    tree = ast.parse(Path(path).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.dump(node.test))
    code = compile(ast.Module(block.body, []), path, "exec")
    return lambda: exec(code, vars(benchmark))  # noqa: S102 a module that the image has


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


def made_up(lengths: Json, row: Callable[..., Any]) -> type:
    """The class of a data set of random tokens with these lengths; `row` makes a request."""
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
                rows.append(row(ids if self.exact else tokenizer.decode(ids), len(ids), answer))
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
