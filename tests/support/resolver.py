"""Command lines of SGLang, and the results of SGLang's own resolver for them. The resolver consists of the checks that run
after the parser of arguments and before weights are read.

`tests/data/resolver.yaml` is the record of version 0.5.23. `python -m tests.support.resolver` writes it where sglang is
installed.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ome_operator.cookbook.library import published_config
from ome_operator.engines import requirements as data
from ome_operator.engines.flags import command_line
from ome_operator.engines.requirements import Condition, Requirement, requirements

CHECKS = Path(__file__).parents[1] / "data/resolver_checks.yaml"
"""Kind of a check → file → function → number of places, for every function of the resolver that refuses something."""
RECORD = Path(__file__).parents[1] / "data/resolver.yaml"
MODEL = "moonshotai/Kimi-K2-Instruct"
OTHER_MODELS = {
    "GptOssForCausalLM": "openai/gpt-oss-120b",
    "Llama4ForConditionalGeneration": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "Gemma4ForConditionalGeneration": "google/gemma-4-26B-A4B",
    "Qwen3ForCausalLM": "Qwen/Qwen3-32B",
    "Qwen3MoeForCausalLM": "Qwen/Qwen3-30B-A3B",
}
"""Architecture → the model for lines about it. A line that begins with the last part of a model's name is about this
model, any other line is about MODEL."""
ARCHITECTURE = "DeepseekV3ForCausalLM"
"""The architecture of MODEL."""
PUBLISHED = Path(__file__).parents[1] / "data/models/published.jsonl"
DRAFT = "/draft"
"""The path of a draft model or adapter in command lines. The resolver reads the config.json of MODEL there."""
BASE = ("--tp-size=8", "--trust-remote-code", "--device=cuda")
"""Arguments of a server with 8 GPUs. The resolver needs no GPU: properties that it would read from a GPU have the values for
a machine without one.
"""
FLAGS = {
    "TP": "--tp-size",
    "PP": "--pp-size",
    "EP": "--ep-size",
    "attention DP": "--attn-dp-size",
    "attention CP": "--attn-cp-size",
    "all-to-all": "--moe-a2a-backend",
    data.LORA: "--enable-lora",
    **data.ATTENTION,
}
"""Name of a size or backend in requirements.yaml → the flag that sets it."""
OTHER: Mapping[str, tuple[str, ...]] = {
    "--disaggregation-mode": ("prefill", "decode"),
    "--moe-a2a-backend": ("deepep", "mooncake"),
    "--eplb-algorithm": ("deepseek",),
    "--moe-runner-backend": ("triton", "deep_gemm"),
    "--speculative-algorithm": ("NGRAM", "STANDALONE"),
    "--kv-canary": ("none",),
    "--device": ("cuda",),
    "--disaggregation-transfer-backend": ("ascend",),
    "--load-publish-endpoint": ("auto",),
    "--flashinfer-a2a-dispatch-type": ("bf16",),
    "--attention-backend": ("flashmla", "fa4", "flex_attention"),
    "--prefill-attention-backend": ("flashmla", "fa4", "flex_attention"),
    "--decode-attention-backend": ("flashmla", "fa4", "flex_attention"),
    "--kv-cache-dtype": ("fp8_e5m2",),
    "--quantization": ("fp8", "awq"),
    "--lora-backend": ("csgmv",),
    "--init-expert-location": ("random",),
    "--speculative-num-steps": ("2",),
    "--image-processor-backend": ("torchvision",),
    "--mamba-backend": ("flashinfer",),
    "--mamba-ssm-dtype": ("float32",),
    "--cp-strategy": ("zigzag",),
}
"""Flag → a value that is not in the list of a condition `one of`, or that a condition `none of` accepts."""
SAMPLES = {
    "--kv-events-config": '{"publisher":"zmq","endpoint":"tcp://*:5557"}',
    "--watermark-config": "{}",
    "--min-free-slots-delay": "1",
    "--cp-strategy": "interleave",
    "--elastic-ep-backend": "nixl",
    "--elastic-ep-join-mode": "recover",
    "--hicache-storage-backend": "file",
    "--speculative-algorithm": "EAGLE",
    "--speculative-draft-model-path": "/draft",
    "--speculative-draft-sink-size": "4",
    "--speculative-draft-window-size": "128",
    "--ssl-keyfile": "/etc/hostname",
    "--ssl-certfile": "/etc/hostname",
    "--ssl-ca-certs": "/etc/hostname",
    "--sidecar-args": "[]",
    "--sidecar": "true",
    "--grpc-port": "9000",
    "--api-key": "k",
    "--admin-api-key": "k",
    "--max-ep-size": "8",
    "--export-metrics-to-file-dir": "/tmp",
    "--return-aux-hidden-state-layer-ids": "1",
    "--radix-cache-backend": "x",
    "--dllm-algorithm": "LowConfidence",
    "--rl-on-policy-target": "fsdp",
    "--speculative-moe-a2a-backend": "none",
    "--speculative-num-draft-tokens": "4",
    "--speculative-num-steps": "3",
    "--uno-lora-path": "/draft",
    "--shared-experts-tp-size": "1",
}
"""Flag → a value for the conditions `given` and `absent`."""

PROGRAM = r"""
import contextlib, io, json, logging, os, sys, traceback
os.environ.pop("SGLANG_USE_CPU_ENGINE", None)  # of images without GPUs
logging.disable(logging.CRITICAL)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    from sglang.srt.server_args import prepare_server_args
    import sglang.srt.arg_groups.pipeline
def resolve(words):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            args = prepare_server_args(words)
            args.resolve_once()
            args.check_server_args()
    except SystemExit:
        return "parser"
    except BaseException as error:
        return "%s, %s" % (type(error).__name__, os.path.basename(traceback.extract_tb(error.__traceback__)[-1].filename))
    return ""
def apart(words):  # a resolver sets environment variables, so each line has a process of its own
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, resolve(words).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said
folder, lines = sys.argv[1], json.loads(sys.stdin.read())
print(json.dumps([apart(["--model-path=" + folder, *words]) for words in lines]))
"""
"""Reads lists of words on stdin, and prints for each list "" or the exception and the file that raises it."""


def lines() -> list[str]:
    """Return all command lines: those in the record, and those that violate or meet the rows of requirements.yaml."""
    written = [str(line) for line in (record() or {})]
    return list(
        dict.fromkeys(
            [
                *written,
                *(line for row in requirements() for line in (*violating_command_lines(row), *valid_command_lines(row))),
            ]
        )
    )


def record() -> Mapping[str, str]:
    """Return the record: each command line → "" or how SGLang 0.5.23 refuses it."""
    return yaml.safe_load(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def argv(line: str, folder: str) -> list[str]:
    """Return the words of a line, after the words of BASE. `folder` contains what `write_models` writes."""
    first, *rest = [word.replace(DRAFT, folder) for word in line.split()] or [""]
    named = f"--model-path={folder}/{first}" if first and not first.startswith("-") else first
    return [*BASE, *([named] if named else []), *rest]


def write_models(folder: Path) -> None:
    """Write the config.json of MODEL into a folder. Write the config.json of each of OTHER_MODELS into a folder below it."""
    for path, config in configs().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(config), encoding="utf-8")


def configs() -> Mapping[str, Mapping[str, Any]]:
    """Return path below the folder -> content, for each file that the lines name."""
    others = {f"{name}/config.json": config for name, config in other_configs().items()}
    return {"config.json": published_config(MODEL) or {}, **others}


@cache
def other_configs() -> Mapping[str, Mapping[str, Any]]:
    """Return the config.json of each of OTHER_MODELS, by the last part of the model's name."""
    published = map(json.loads, PUBLISHED.read_text(encoding="utf-8").splitlines())
    return {row["model"].rpartition("/")[2]: row["config"] for row in published if row["model"] in OTHER_MODELS.values()}


def violating_command_lines(row: Requirement) -> Iterator[str]:
    """Yield for each row of requirements.yaml, and for each of the row's requirements (`needs`), a command line that
    violates only this requirement.
    """
    for name in row.needs:
        words = [word for each, wanted in _when(row) for word in holding(each, wanted)]
        for each, wanted in row.needs.items():
            words += breaking(each, wanted) if each == name else holding(each, wanted)
        yield _line(words)


def valid_command_lines(row: Requirement) -> Iterator[str]:
    """Yield a command line that meets all requirements of a row, or nothing if they contradict the row's conditions."""
    if not row.when.keys() & row.needs.keys():
        needs = [word for each, wanted in row.needs.items() for word in holding(each, wanted)]
        yield _line([word for each, wanted in _when(row) for word in holding(each, wanted)] + needs)


def _when(row: Requirement) -> Iterator[tuple[str, Condition]]:
    yield from row.when.items()


def _line(words: Sequence[str]) -> str:
    """Return the words as a line. If a flag is given twice, only its last word is kept, as argparse does."""
    last = {word.partition("=")[0]: word for word in words}
    return " ".join(sorted(last.values(), key=lambda word: word.startswith("-")))


def _default(flag: str) -> str:
    default = command_line(f"sglang-{data.VERSION}").flags[flag].default
    return "" if default is None else str(default)


def holding(name: str, condition: Condition) -> list[str]:
    """Return command-line words with which a condition of requirements.yaml is true."""
    flag = FLAGS.get(name, name)
    if condition.kind in (data.OFF, data.ABSENT) or condition.or_absent:
        return []
    if condition.kind == data.ON:
        return [flag, *(LORA_SIZES if name == data.LORA else ())]
    if name == data.ARCHITECTURE:
        return [] if ARCHITECTURE in condition.words else _other_model(condition)
    if condition.kind == data.GIVEN:
        return [f"{flag}={SAMPLES[flag]}"]
    if condition.kind == data.ONE_OF:
        return [] if _default(flag) in condition.words else [f"{flag}={condition.words[0]}"]
    if condition.kind == data.NONE_OF:
        other = _other(flag, condition)
        return [f"{flag}={other}"] if _default(flag) in ("", *condition.words) and other else []
    if condition.kind == data.EQUALS:
        return [f"{flag}={'8' if condition.words == ('TP',) else '2'}"]
    if condition.kind == data.OTHER_THAN:
        return [f"{flag}={SAMPLES[flag]}"]
    return [f"{flag}={int(condition.words[0]) + (condition.kind == data.ABOVE)}"]


def breaking(name: str, condition: Condition) -> list[str]:
    """Return command-line words with which a condition of requirements.yaml is false."""
    flag = FLAGS.get(name, name)
    if condition.kind in (data.ON, data.GIVEN):
        return []
    if name == data.ARCHITECTURE:
        return [] if ARCHITECTURE not in condition.words else ["Qwen3-30B-A3B"]
    if condition.kind == data.OFF:
        return [flag, *(LORA_SIZES if name == data.LORA else ())]
    if condition.kind == data.ABSENT:
        return [f"{flag}={SAMPLES[flag]}"]
    if condition.kind == data.ONE_OF:
        other = _other(flag, condition)
        return [f"{flag}={other}"] if other else []
    if condition.kind == data.NONE_OF:
        return [f"{flag}={condition.words[0]}"]
    if condition.kind == data.EQUALS:
        return []
    if condition.kind == data.OTHER_THAN:
        return [f"{flag}={_default(condition.words[0])}"]
    step = {data.AT_LEAST: -1, data.AT_MOST: 1, data.ABOVE: 0}[condition.kind]
    return [f"{flag}={int(condition.words[0]) + step}"]


LORA_SIZES = ("--max-lora-rank=16", "--lora-target-modules=q_proj")


def _other(flag: str, condition: Condition) -> str:
    return next((value for value in OTHER.get(flag, ()) if value not in condition.words), "")


def _other_model(condition: Condition) -> list[str]:
    return [OTHER_MODELS[name].rpartition("/")[2] for name in condition.words if name in OTHER_MODELS][:1]


def count_checks(folder: Path) -> dict[str, dict[str, int]]:
    """Return file → function → number of places that raise an error or assert something, for the files of a folder."""
    found: dict[str, dict[str, int]] = {}
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                places = sum(isinstance(inner, ast.Raise | ast.Assert) for inner in ast.walk(node))
                if places:
                    functions = found.setdefault(file.name, {})
                    functions[node.name] = functions.get(node.name, 0) + places
    return found


def ask(python: Sequence[str], folder: str, asked: Sequence[str]) -> dict[str, str]:
    """Return what SGLang's resolver answers for each line. `python` is the interpreter that runs it, and `folder` contains
    what `write_models` writes.
    """
    given = json.dumps([argv(line, folder) for line in asked])
    done = subprocess.run(
        [*python, "-W", "ignore", "-c", PROGRAM, folder], input=given, capture_output=True, text=True, check=True
    )
    return dict(zip(asked, json.loads(done.stdout), strict=True))


def write(python: Sequence[str], folder: Path, seen: str) -> None:
    """Write the record. `folder` is the path of the models for this process, and `seen` is their path for the interpreter
    `python`.
    """
    write_models(folder)
    said = ask(python, seen, lines())
    head = f"""\
# What the resolver of SGLang {data.VERSION} says about command lines for {MODEL}
# with {" ".join(BASE)}: "" if it accepts them, otherwise the exception and the file that raises it.
# A line that begins with a name is about that model instead.
# `python -m tests.support.resolver` writes this file. Lines that are added by hand keep their place, and those of
# requirements.yaml follow.
"""
    RECORD.write_text(head + yaml.safe_dump(said, sort_keys=False, width=500), encoding="utf-8")


if __name__ == "__main__":
    write([sys.executable], Path("/tmp/resolver-model"), "/tmp/resolver-model")
