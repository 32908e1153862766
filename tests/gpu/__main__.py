"""Measure on a real GPU as much as the time allows, the most valuable first.

    python -m tests.gpu --dry-run                    # print each step: its command, limit and order
    python -m tests.gpu --seconds 540 --out OUT      # run the steps; write OUT/results.jsonl and OUT/log.txt
    python -m tests.gpu --only roofline,decode-kimi  # run some of the steps

Each step is a process of its own with its own limit, so that a step that hangs or crashes costs only its own time. Each
line that a step prints as JSON is a result. This script needs only Python's standard library. The steps need torch and
Triton, and use DeepGEMM and FlashMLA if they are installed (`python -m tests.gpu.carry` downloads them).
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
ROOT = Path(__file__).parents[2]
ORDER = "the steps run in this order, as long as time is left"
QUERY = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
VERSIONS = ("torch", "triton", "numpy", "sgl-deep-gemm", "sgl-flash-mla", "sglang", "nvidia-nccl-cu13")


@dataclass(frozen=True)
class Step:
    """A command, the seconds after which it is killed, and its purpose."""

    name: str
    argv: tuple[str, ...]
    limit: float
    purpose: str
    needs: tuple[str, ...] = ("torch",)
    """Modules without which the step is skipped."""


def _kernels(name: str, limit: float, purpose: str, *words: str) -> Step:
    return Step(name, ("-m", "tests.gpu.kernels", *words), limit, purpose, ("torch", "triton"))


STEPS = (
    Step(
        "compile",
        ("-m", "tests.gpu.compile"),
        150,
        "compile the kernels of all later steps, in parallel",
        ("torch", "triton"),
    ),
    _kernels("roofline", 45, "bandwidth and matrix rates of this card", "roofline"),
    _kernels("decode-kimi", 120, "a decode layer of Kimi K2 on one of 32 GPUs", "decode", "Kimi-K2"),
    Step("preflight", ("-m", "tests.gpu.preflight_step"), 90, "the preflight of a rank, with NCCL"),
    _kernels("prefill-kimi", 60, "a prefill layer of Kimi K2 on one of 32 GPUs", "prefill", "Kimi-K2"),
    _kernels("decode-deepseek", 90, "a decode layer of DeepSeek V3 on one of 32 GPUs", "decode", "DeepSeek-V3"),
    _kernels("prefill-deepseek", 60, "a prefill layer of DeepSeek V3 on one of 32 GPUs", "prefill", "DeepSeek-V3"),
    _kernels(
        "decode-qwen", 60, "a decode layer of Qwen3 235B on one of 32 GPUs, without attention", "decode", "Qwen3-235B-A22B"
    ),
    _kernels("prefill-qwen", 40, "a prefill layer of Qwen3 235B, without attention", "prefill", "Qwen3-235B-A22B"),
    Step(
        "engine",
        ("-m", "tests.gpu.check", "build/gpu/one.json", "build/gpu/samples.json", "build/gpu/engine"),
        400,
        "whole SGLang servers, from files that `ome render` wrote beforehand",
        ("torch", "sglang", "sglang_router", "mooncake"),
    ),
)


def machine() -> Facts:
    """Return what identifies the machine: GPU, driver, versions of packages."""
    import importlib.metadata

    query = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        gpu = f"unknown: {error}"
    versions = {}
    for name in VERSIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "step": "machine", "date": time.strftime("%Y-%m-%d"), "gpus": gpu.splitlines(), "fields": QUERY,
        "cpus": os.cpu_count(), "python": platform.python_version(), "packages": versions,
    }  # fmt: skip


def planned(names: Sequence[str]) -> list[Step]:
    """Return the steps with these names, or all steps. Raises SystemExit for an unknown name."""
    known = {step.name: step for step in STEPS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"Unknown step {unknown[0]}. The steps are: {', '.join(known)}.")
    return [step for step in STEPS if not names or step.name in names]


def missing(step: Step) -> list[str]:
    """Return the modules that the step needs and that are not installed."""
    return [name for name in step.needs if importlib.util.find_spec(name) is None]


def lines(step: Step, seconds: float, log: Path) -> Iterator[Facts]:
    """Run a step, and yield its results as it prints them, then a result of the step itself. All output goes to `log`."""
    begin = time.monotonic()
    count = 0
    process = subprocess.Popen(
        [sys.executable, "-u", *step.argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    assert process.stdout is not None
    with log.open("a") as file:
        file.write(f"=== {step.name}\n")
        for line in process.stdout:
            file.write(line)
            if line.startswith("{"):
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                count += 1
                yield found
    code = process.wait()
    timer.cancel()
    took = time.monotonic() - begin
    cut = {"why": f"killed after {seconds:.0f} s"} if code == -9 and took >= seconds - 1 else {}
    yield {
        "step": step.name,
        "ended": True,
        "ok": code == 0,
        "exit": code,
        "took_s": round(took, 1),
        "results": count,
        **cut,
    }


def run(steps: Sequence[Step], seconds: float, out: Path) -> list[Facts]:
    """Run the steps within `seconds` altogether. Returns all results, which are also in `out`/results.jsonl."""
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    results = []
    with (out / "results.jsonl").open("w") as file:

        def keep(found: Facts) -> None:
            results.append(found)
            file.write(json.dumps(found) + "\n")
            file.flush()

        keep(machine())
        for step in steps:
            left = ends - time.monotonic()
            if lacks := missing(step):
                keep({"step": step.name, "ended": True, "skipped": f"{', '.join(lacks)} is not installed"})
            elif left < 5:
                keep({"step": step.name, "ended": True, "skipped": "no time was left"})
            else:
                for found in lines(step, min(step.limit, left), out / "log.txt"):
                    keep(found)
            print(_summary(results[-1]), flush=True)
    return results


def _summary(ended: Facts) -> str:
    what = (
        ended.get("skipped")
        or ended.get("why")
        or f"{ended['results']} results in {ended['took_s']} s, exit code {ended['exit']}"
    )
    return f"{ended['step']:18} {what}"


def main() -> None:
    """Parse the arguments, and run the steps that they name."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true", help="print each step instead of running it")
    parser.add_argument("--seconds", type=float, default=540, help="time for all steps (default: 540)")
    parser.add_argument("--only", default="", help="steps to run, separated by commas")
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu"), help="folder for results and logs (default: build/gpu)"
    )
    words = parser.parse_args()
    steps = planned([name for name in words.only.split(",") if name])
    if words.dry_run:
        for number, step in enumerate(steps, 1):
            lacks = missing(step)
            print(f"{number:2}. {step.name:18} at most {step.limit:3.0f} s  {step.purpose}")
            print(f"    python {' '.join(step.argv)}{f'    (skipped here: no {chr(44).join(lacks)})' if lacks else ''}")
        print(f"At most {min(words.seconds, sum(step.limit for step in steps)):.0f} s; {ORDER}.")
        return
    results = run(steps, words.seconds, words.out)
    failed = [each for each in results if each.get("ok") is False]
    for each in failed:
        print(f"failed: {json.dumps(each)[:400]}")
    print(f"{len(results)} results in {words.out / 'results.jsonl'}, {len(failed)} failed")


if __name__ == "__main__":
    main()
