"""Compile the kernels of all models in parallel processes, so that no later step waits for a compiler.

DeepGEMM and Triton compile a kernel when it first runs, and keep it on disk. Each process runs the kernels of one step once.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.gpu.models import FILE, models

WITHIN = 140.0
"""Seconds within which a process has to end."""


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the steps whose kernels are compiled, as arguments of tests.gpu.kernels."""
    yield ("roofline",)
    for model in models(FILE.read_text()):
        yield ("decode", model.name)
        yield ("prefill", model.name)


def _compile(words: tuple[str, ...]) -> dict[str, object]:
    begin = time.monotonic()
    argv = [sys.executable, "-m", "tests.gpu.kernels", *words, "--once"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=WITHIN, check=False)
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        code, output = -1, f"{said}\ndid not end within {WITHIN:.0f} s"
    print("".join(f"| {line}\n" for line in output.splitlines()), end="", flush=True)
    failed = [line[:500] for line in output.splitlines() if '"ok": false' in line]
    took = round(time.monotonic() - begin, 1)
    return {
        "step": "compile",
        "command": " ".join(words),
        "exit": code,
        "ok": code == 0 and not failed,
        "took_s": took,
        "failed": failed,
    }


def main() -> None:
    """Run all commands at once, and print a result for each."""
    every = list(commands())
    with ThreadPoolExecutor(len(every)) as pool:
        for found in pool.map(_compile, every):
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
