"""Run the serving benchmark inside its image, once for every run of the plan. The benchmark is SGLang's, of any version,
or genai-bench.

This file and inside_genai.py are the only files of this project in that image, so they import no other module of the
project.

SGLang's benchmark is called through its command line. An entry is added to two of its registries: a data set with the prompt
lengths of the scenario, and the backend's function with a time limit. Without the limit, a run could only be killed, and all
its measurements would be lost. Older versions of SGLang contain the benchmark as another module (`sglang.bench_serving`)
with fewer options.

Every run writes `raw/<number>.json`: {"result": the output of the benchmark} or {"error": why there is no output}.
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

CUT = "ome: the time limit of the run was reached"
"""Error text of requests that were interrupted or never sent because the time limit of the run was reached."""
SILENT = "the server sent a response without a token"
NOTHING = (
    "this image has neither SGLang's serving benchmark nor genai-bench: set spec.podOverride.image to an image with one, "
    "such as docker.io/lmsysorg/sglang:v0.5.23"
)
RAW = Path("raw")
QUESTIONS = {"num_shots": 5, "data_path": None, "max_new_tokens": 512, "temperature": 0.0}
"""Default arguments of sglang.test.few_shot_gsm8k."""


def main() -> None:
    """Perform all runs of the plan. A failed run becomes a part of the report; this function fails only if no run can
    start.
    """
    plan = json.loads(os.environ["OME_BENCHMARK"])
    RAW.mkdir(exist_ok=True)
    for number, run in enumerate(plan["runs"]):
        print(f"ome: run {number + 1} of {len(plan['runs'])}: {run['scenario']} at {run['concurrency']}", flush=True)
        (RAW / f"{number}.json").write_text(json.dumps(outcome(plan, run, RAW / f"{number}.jsonl")))


def outcome(plan: Json, run: Json, file: Path) -> Json:
    """Perform one run, and return its result as `{"result": …}` or `{"error": …}`. If the benchmark exits with
    SystemExit, the error is the last line that the benchmark printed.
    """
    output = LastLine(sys.stdout)
    sys.stdout = output
    try:
        return {"result": PROGRAMS[run["program"]](plan, run, file)}
    except SystemExit:
        return {"error": output.last}
    except Unfit as error:
        return {"error": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        sys.stdout = output.out


class Unfit(Exception):
    """Error: the image does not support the plan; the text states why."""


class LastLine:
    """A standard output that also stores its last line."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.last = out, ""

    def write(self, text: str) -> int:
        """Write the text, and store its last line."""
        self.last = ([line.strip() for line in text.splitlines() if line.strip()] or [self.last])[-1]
        return self.out.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


def serving(plan: Json, run: Json, file: Path) -> Json:
    """Run the serving benchmark, and return its result with the lists of all requests."""
    if (new := module("sglang.benchmark.serving")) is not None:
        return run_benchmark(new, new.cli_main, prepare_newer(run), plan, [*plan["serving"], *run["args"]], file)
    if (old := module("sglang.bench_serving")) is not None:
        words, sampling = without_sampling([*plan["serving"], *run["args"]])
        words = as_sharegpt(words, file.with_suffix(".sharegpt"))
        return run_benchmark(old, main_block(old), prepare_older(old, run, sampling), plan, words, file)
    if module("genai_bench") is not None:
        import inside_genai  # type: ignore[import-not-found]  # next to this file in the pod

        try:
            return dict(inside_genai.serving(plan, run, file))
        except RuntimeError as error:
            raise Unfit(str(error)) from error
    raise Unfit(NOTHING)


def module(name: str) -> Any:
    """Return the module with this name, or None if the image does not have it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


Start = Callable[[], None]


def run_benchmark(
    benchmark: Any, start: Start, prepared: Callable[[Send], Send], plan: Json, words: list[str], file: Path
) -> Json:
    """Call the benchmark with the arguments `words`, and return its result. `prepared` wraps the function that sends
    requests and adds features that this version of the benchmark lacks.
    """
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


def prepare_newer(run: Json) -> Callable[[Send], Send]:
    """Add the scenario's data set to a benchmark that has a registry of data sets."""

    def prepared(send: Send) -> Send:
        datasets = importlib.import_module("sglang.benchmark.datasets")
        if "lengths" in run:
            datasets.DATASET_MAPPING["random-ids"] = random_dataset(run["lengths"], datasets.DatasetRow)
        return send

    return prepared


def prepare_older(benchmark: Any, run: Json, sampling: Json) -> Callable[[Send], Send]:
    """Prepare a benchmark without a registry of data sets: replace its function for data sets, and add sampling
    parameters to requests.
    """

    def dataset(args: Namespace, tokenizer: Any, model_id: Any = None) -> list[Any]:
        rows: list[Any] = random_dataset(run["lengths"], benchmark.DatasetRow)(args).load(tokenizer)
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
    """Remove the options that older benchmarks lack. Return the other arguments, and the values of the removed options."""
    words_left, sampling = list(words), Json()
    for option, name in (("--temperature", "temperature"), ("--top-p", "top_p")):
        if option in words_left:
            position = words_left.index(option)
            sampling[name] = float(words_left[position + 1])
            del words_left[position : position + 2]
    return words_left, sampling


def as_sharegpt(words: list[str], file: Path) -> list[str]:
    """Convert a data set of JSON lines to a ShareGPT file, for a benchmark that supports only that format."""
    if "custom" not in words[words.index("--dataset-name") :][:2]:
        return words
    position = words.index("--dataset-path") + 1
    lines = [json.loads(line) for line in Path(words[position]).read_text().splitlines() if line.strip()]
    turns = [data.get("conversations", data.get("conversation", [])) for data in lines]
    conversations = [
        [{"value": turn.get("content", turn.get("value", ""))} for turn in conversation] for conversation in turns
    ]
    file.write_text(json.dumps([{"conversations": conversation} for conversation in conversations]))
    changed = [*words[:position], str(file), *words[position + 1 :]]
    changed[changed.index("--dataset-name") + 1] = "sharegpt"
    return changed


def main_block(benchmark: ModuleType) -> Start:
    """Return a function that executes the `__main__` block of a module. The block is executed because the module has no
    function that parses the arguments.
    """
    path = str(benchmark.__file__)
    tree = ast.parse(Path(path).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.dump(node.test))
    code = compile(ast.Module(block.body, []), path, "exec")
    return lambda: exec(code, vars(benchmark))  # noqa: S102 a module of the image


def timed(send: Send, blank: Callable[[Any], Any], seconds: float) -> Send:
    """Wrap the function `send` with a time limit in seconds. The time begins with the first call (the warm-up). `blank`
    creates the result of an interrupted request.
    """
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
        if output.success and not output.ttft:  # the benchmark does not count an error inside a stream
            output.success, output.error = False, SILENT
        return output

    return sent


def random_dataset(lengths: Json, row: Callable[..., Any]) -> type:
    """Return the class of a data set of random tokens with the lengths of the scenario; `row` creates one request."""
    form = lengths["form"]

    class RandomPrompts:
        """Prompts with the requested length, as tokens if the backend accepts tokens."""

        def __init__(self, args: Namespace) -> None:
            self.count, self.exact = args.num_prompts, args.tokenize_prompt

        @classmethod
        def from_args(cls, args: Namespace) -> "RandomPrompts":
            """Create the data set from the benchmark's arguments."""
            return cls(args)

        def load(self, tokenizer: Any, model_id: Any = None) -> list[Any]:
            """Return one row per request."""
            special = set(tokenizer.all_special_ids)
            tokens = [token for token in range(tokenizer.vocab_size) if token not in special]
            rows = []
            for _ in range(self.count):
                ids = random.choices(tokens, k=draw_length(1, form, *lengths["prompt"]))
                answer = draw_length(2, form, *lengths["answer"])
                rows.append(row(ids if self.exact else tokenizer.decode(ids), len(ids), answer))
            return rows

    return RandomPrompts


def draw_length(least: int, form: str, first: int, second: int) -> int:
    """Return a random number of tokens that is at least `least`. `form` is D (always `first`), N (normal with mean
    `first` and deviation `second`) or any other value (uniform between `first` and `second`).
    """
    if form == "N":
        return max(least, int(random.gauss(first, second)))
    return max(least, first if form == "D" else random.randint(first, second))


def gsm8k(plan: Json, run: Json, file: Path) -> Json:
    """Ask the questions of GSM8K, and return the metrics accuracy, invalid, latency and output_throughput."""
    from sglang.test import few_shot_gsm8k

    words = run["args"]
    options = {flag[2:].replace("-", "_"): word for flag, word in zip(words[::2], words[1::2], strict=True)}
    numbers = {name: int(word) if word.isdigit() else word for name, word in options.items()}
    arguments = Namespace(**{**QUESTIONS, **plan["gsm8k"], **numbers})
    return {"questions": arguments.num_questions, **few_shot_gsm8k.run_eval(arguments)}


PROGRAMS = {"serving": serving, "gsm8k": gsm8k}

if __name__ == "__main__":
    main()
