"""Starts engines on one real GPU as the operator renders them, and records the results.

    ome render -f tests/gpu/one-gpu.yaml -o json > one.json
    ome render -f config/samples/isvc --catalog config/models --catalog config/runtimes -o json > samples.json
    python -m tests.gpu.check one.json samples.json OUT        # on a machine with SGLang, its router, Mooncake and a GPU

Besides this repository, it needs only Python's standard library. If a step fails, the reason is recorded, and the next step
starts.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu import asked, parsing, rendered, wide
from tests.gpu.rendered import Manifest, Process

PLACE = Path("/tmp/ome-gpu")
WITHIN_S = float(os.environ.get("OME_GPU_WITHIN_S", "200"))
"""Seconds within which an engine has to become healthy."""
ENDS_AT = time.monotonic() + float(os.environ.get("OME_GPU_ALL_S", "1800"))
Facts = dict[str, Any]
KEPT = re.compile(
    r"KV Cache is allocated|Load weight|max_total_num_tokens|Capture|attention backend|avail mem|Memory pool|mem usage|"
    r"[Oo]verrid|[Ww]arn|disabl|EPLB|lora|LoRA|backend",
)
"""Matches the lines of an engine's log that state its decisions."""


@dataclass
class Running:
    """An engine that is healthy."""

    url: str
    log: Path
    seconds: float

    def said(self, pattern: str) -> list[str]:
        """Return the matches of a pattern with one group in the log."""
        return re.findall(pattern, self.log.read_text(errors="replace"))


class Checks:
    """The steps, and their results."""

    def __init__(self, plan: list[Manifest], out: Path) -> None:
        self.out = out
        self.facts: Facts = {}
        self.of = {rendered.part(manifest): manifest for manifest in plan}
        self.reference: list[list[int]] = json.loads(os.environ.get("OME_GPU_REFERENCE", "[[], [], [], []]"))

    def engine(self, name: str, number: int) -> Process:
        """Return the process of a rendered engine. `number` determines its address."""
        return rendered.process(self.of[name], number)

    @contextmanager
    def running(self, name: str, what: Process, page: str = "/health") -> Iterator[Running]:
        """Start a process, wait until its page answers, and yield it. The process and its children end with the block."""
        log = self.out / f"{name}.log"
        begin = time.monotonic()
        with log.open("wb") as file:
            own = subprocess.Popen(
                what.argv, env=os.environ | what.env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            while True:
                try:
                    asked.get(what.url + page, 10)
                    break
                except OSError:
                    passed = time.monotonic() - begin
                    if own.poll() is not None or passed > WITHIN_S or time.monotonic() > ENDS_AT:
                        raise RuntimeError(
                            f"not healthy after {passed:.0f} s, exit code {own.poll()}: {_why(log)}"
                        ) from None
                    time.sleep(0.5)
            yield Running(what.url, log, time.monotonic() - begin)
        finally:
            for how in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(own.pid, how)
                    own.wait(8)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue

    def step(self, name: str, run: Callable[[], Facts]) -> None:
        """Run a step and store its facts, or the reason why it failed."""
        begin = time.monotonic()
        try:
            found: Facts = {"ok": True} | run()
        except Exception as error:
            found = {"ok": False, "why": f"{type(error).__name__}: {error}"[:1500], "at": traceback.format_exc()[-600:]}
        found["took_s"] = round(time.monotonic() - begin, 1)
        self.facts[name] = found
        print(json.dumps({"step": "engine", "case": name, **found}), flush=True)
        (self.out / "facts.json").write_text(json.dumps(self.facts, indent=1))

    # --- steps --------------------------------------------------------------------------------------------------------

    def memory(self) -> Facts:
        """Measure one server that uses half of the GPU and runs alone. Its tokens are the reference for all other
        servers.
        """
        what = self.engine("plain-engine", 0).but("--mem-fraction-static=0.5", without=("--max-total", "--mem-fraction"))
        with self.running("alone", what) as one:
            self.reference = asked.all_tokens(one.url)
            again = asked.all_tokens(one.url)
            info = json.loads(asked.get(f"{one.url}/server_info"))
            (self.out / "server_info.json").write_text(json.dumps(info))
            return {
                "start_s": one.seconds,
                "same_again": again == self.reference,
                "varied": len({token for said in self.reference for token in said}),
                "streamed": asked.streamed(one.url),
                "called": asked.called(one.url),
                "max_total_num_tokens": info.get("max_total_num_tokens"),
                "log": [line[-260:] for line in one.log.read_text(errors="replace").splitlines() if KEPT.search(line)][:40],
                "gpu": _gpu(),
            }

    def pair(self, *more: str) -> Facts:
        """Start prefill, decode and router as rendered, and a plain server for comparison. With additional flags, no speeds
        are measured.
        """
        prefill, decode, plain = (
            self.engine(name, number).but(*more)
            for number, name in enumerate(("pair-engine", "pair-decoder", "plain-engine"))
        )
        with ThreadPoolExecutor(3) as pool:
            opened = [
                self.running(name, what) for name, what in (("prefill", prefill), ("decode", decode), ("plain", plain))
            ]
            waits = [pool.submit(one.__enter__) for one in opened]
            try:
                engines = [one.result() for one in waits]
                with self.running("router", rendered.router(self.of["pair-router"], prefill, decode), "/readiness") as front:
                    return self._of_pair(engines, front, speeds=not more)
            finally:
                for one in opened:
                    one.__exit__(None, None, None)

    def _of_pair(self, engines: list[Running], front: Running, speeds: bool) -> Facts:
        found: Facts = {"start_s": [one.seconds for one in (*engines, front)]}
        said, alone = asked.all_tokens(front.url), asked.all_tokens(engines[2].url)
        found |= {
            "as_plain": said == alone,
            "as_reference": said == self.reference,
            "plain_as_reference": alone == self.reference,
        }
        if said != alone:
            found["differ"] = [said, alone]
        for name, ask in (("streamed", asked.streamed), ("called", asked.called)):
            try:
                found[name] = ask(front.url)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
        for name, one in zip(("prefill", "decode", "plain"), engines, strict=True):
            pages = asked.get(f"{one.url}/metrics")
            (self.out / f"metrics-{name}.txt").write_text(pages)
            found[f"metrics_{name}"] = len(set(re.findall(r"^(sglang[:_]\w+)", pages, re.MULTILINE)))
        for parallel in (1, 16, 64) if speeds else ():
            direct, through = asked.speed(engines[2].url, parallel), asked.speed(front.url, parallel)
            found[f"tokens_a_second_{parallel}"] = {"direct": direct, "pair": through, "ratio": through / direct}
        return found

    def variant(self, name: str, what: Process, then: Callable[[Running], Facts] | None = None) -> Facts:
        """Start one server in another way, and return whether it generates the same tokens as the reference."""
        with self.running(name, what) as one:
            said = asked.all_tokens(one.url)
            found: Facts = {"start_s": one.seconds, "as_reference": said == self.reference, "said": said}
            found["same_tokens"] = _alike(said, self.reference)
            found["kv"] = one.said(r"(KV Cache is allocated[^\n]*)")[-1:]
            found |= then(one) if then else {}
            return found

    def adapters(self, one: Running) -> Facts:
        """Check that the adapters of the service change the generated tokens, and that an adapter of zeros does not."""
        plain, silent = asked.all_tokens(one.url), asked.all_tokens(one.url, lora_path="silent")
        poet, again = asked.all_tokens(one.url, lora_path="poet"), asked.all_tokens(one.url, lora_path="poet")
        models = json.loads(asked.get(f"{one.url}/v1/models"))
        return {
            "poet_differs": poet != plain,
            "poet_again": poet == again,
            "silent_as_plain": silent == plain,
            "models": [model["id"] for model in models["data"]],
        }

    def variants(self) -> None:
        """Run all variants, several at a time."""

        def plain(number: int, *more: str) -> Process:
            return self.engine("plain-engine", number).but(*more)

        experts = (
            "--ep-num-redundant-experts=4",
            "--enable-eplb",
            "--eplb-algorithm=deepseek",
            "--ep-dispatch-algorithm=dynamic",
        )
        fp8 = "--kv-cache-dtype=fp8_e4m3"
        adapted = [self.engine("adapted-engine", number) for number in (20, 21, 22)]
        pins = [f'{{"lora_name": "{one}", "lora_path": "{PLACE}/{one}", "pinned": {pin}}}' for one, pin in PINNED]
        pinned = adapted[2].but("--lora-paths", *pins, without=("--lora-paths", "poet=", "silent="))
        wanted: list[tuple[str, Process, Callable[[Running], Facts] | None]] = [
            ("fp8-cache", plain(10, fp8), None),
            ("lora", adapted[0], self.adapters),
            ("lora-triton", adapted[1].but("--lora-backend=triton"), self.adapters),
            ("lora-pinned", pinned, self.adapters),
            ("triton-attention", plain(11, "--attention-backend=triton"), None),
            ("attention-dp", plain(12, "--attn-dp-size=1"), None),
            ("dp-flag", plain(13, "--enable-dp-attention", "--moe-dense-tp-size=1", "--enable-dp-lm-head"), None),
            ("no-graphs", plain(14, "--disable-cuda-graph"), None),
            ("no-overlap", plain(15, "--disable-overlap-schedule"), None),
            ("redundant", plain(16, *experts), None),
            ("two-batch", plain(17, "--enable-two-batch-overlap"), None),
            ("graph-480", plain(18, "--cuda-graph-bs-decode=480"), _graphs),
            ("graph-to-480", plain(19, "--cuda-graph-max-bs-decode=480"), _graphs),
            ("graph-default", plain(23), _graphs),
            ("radix-page-64", plain(24, "--page-size=64"), None),
            ("tiny-triton", _tiny(plain(25, "--attention-backend=triton")), None),
            ("tiny", _tiny(plain(26)), None),
        ]
        only = os.environ.get("OME_GPU_ONLY", "")
        with ThreadPoolExecutor(int(os.environ.get("OME_GPU_AT_ONCE", "5"))) as pool:
            for name, what, then in wanted:
                if not only or re.search(only, name):
                    pool.submit(self.step, name, lambda name=name, what=what, then=then: self.variant(name, what, then))  # type: ignore[misc]


PINNED = (("poet", "true"), ("silent", "false"))


def _graphs(one: Running) -> Facts:
    return {"tokens_a_second": {parallel: asked.speed(one.url, parallel, 128) for parallel in (1, 16)}, "gpu": _gpu()}


def _tiny(what: Process) -> Process:
    return Process([word.replace("kimi-k2-wide", "kimi-k2-tiny") for word in what.argv], what.env, what.url)


def _alike(one: list[list[int]], other: list[list[int]]) -> str:
    pairs = [a == b for first, second in zip(one, other, strict=True) for a, b in zip(first, second, strict=False)]
    return f"{sum(pairs)} of {len(pairs)}"


def _why(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"Error|error:|assert|refus|Exception", line)]
    return " | ".join(telling[-4:] or lines[-6:])[-900:]


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,memory.used,memory.total,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def _parsed(samples: list[Manifest], out: Path) -> Facts:
    """Return the result of each sample. All arguments are written to a file."""
    found = parsing.parsed(samples, PLACE / "configs")
    (out / "parsed.json").write_text(json.dumps(found))
    return {name: "skipped" if "skipped" in one else one.get("refused", "accepted")[-300:] for name, one in found.items()}


def main(one: Path, samples: Path, out: Path) -> Facts:
    """Run all steps, or the steps that OME_GPU_STEPS names. Return the results by step."""
    for path in (one, samples):
        if not path.exists():
            raise SystemExit(f"{path} is missing. Write it with the commands at the top of tests/gpu/check.py.")
    out.mkdir(parents=True, exist_ok=True)
    checks = Checks(rendered.read(one), out)
    steps = os.environ.get("OME_GPU_STEPS", "memory pair variants parse exact").split()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    checks.step("model", lambda: _models() | {"gpu": _gpu()})
    if "memory" in steps:
        checks.step("memory", checks.memory)
    if "pair" in steps:
        checks.step("pair", checks.pair)
    if "variants" in steps:
        checks.variants()
    background = ThreadPoolExecutor(1)
    if "parse" in steps:
        background.submit(checks.step, "parse", lambda: _parsed(rendered.read(samples), out))
    if "exact" in steps:
        checks.step("exact", lambda: checks.pair("--enable-deterministic-inference"))
    background.shutdown()
    for name, found in checks.facts.items():
        more = found.get("same_tokens", "") or found.get("why", "")[-160:]
        print(f"{'ok  ' if found['ok'] else 'FAIL'} {name:18} {found['took_s']:6} s  {more}")
    return checks.facts


def _models() -> Facts:
    from ome_local import tinymodel

    tiny = tinymodel.files()
    (PLACE / "kimi-k2-tiny").mkdir(parents=True, exist_ok=True)
    for name, content in tiny.items():
        (PLACE / "kimi-k2-tiny" / name).write_bytes(content)
    size = wide.put(PLACE / "kimi-k2-wide")
    for name in ("poet", "silent"):
        wide.adapt(PLACE / name, silent=name == "silent")
    return {"weights_bytes": size, "cache_bytes_a_token": wide.CACHED * 2}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
