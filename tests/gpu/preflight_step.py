"""Run the preflight check on a machine with a GPU, and print a JSON object for every case.

    python -m tests.gpu.preflight_step [--seconds 60]        # or: PYTHONPATH=. python tests/gpu/preflight_step.py

The step needs only the check itself and Python's standard library. The check runs as in the pod of
service `plain` of one-gpu.yaml: the launcher in /bin/sh, the packed program, the variables and arguments of the rendered
init container (test_preflight_step.py compares them), and the real /sys, /proc and /dev. Only the file of its message is in
a temporary folder, because /dev/termination-log exists only in a container.

Fields of an object: `case`; `seconds` from the start of the launcher until its end; `check_s` as the check itself measures;
`exit`; `findings`; `expected`, the names of the checks that must have findings on this machine, and `allowed`, those that
may; `collective`, the result of the torch process with `after_load_s`, or null; `backend`; `torch_load_s` from the start of
the launcher until torch is loaded; `why`, the reasons if `ok` is false; `tail`, the end of the output. A case that this
machine does not permit has `skipped`, the reason, and null for `ok`. Exit code 1: a case is not ok.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ome_operator.preflight import code
from ome_operator.preflight.check import MARK
from ome_operator.preflight.node import DRIVERS
from tests.gpu import preflight_host as host
from tests.gpu.preflight_host import Machine
from tests.gpu.preflight_pod import DEVICE, MIB, Case, Ended, Json, expected, launch, run, variables, weights

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20.0
"""Seconds for a case, after which its processes are killed."""
TAIL = 2000
"""Characters of a case's output that are kept."""


class Step:
    """All cases on a machine."""

    def __init__(self, folder: Path, seconds: float, limits: tuple[int, int]) -> None:
        self.limits = limits
        self.folder, self.ends = folder, time.monotonic() + seconds
        self.machine = Machine.read()
        self.model = weights(folder / "model")
        self.results: list[Json] = []
        self.lock = threading.Lock()

    def limit(self) -> float:
        """Return the seconds that the next case may take."""
        return min(LIMIT, self.ends - time.monotonic())

    def report(self, case: str, found: Json) -> None:
        """Print the object of a case."""
        result = {"step": "preflight", "case": case, **found}
        with self.lock:
            self.results.append(result)
            print(json.dumps(result), flush=True)

    def attempt(self, name: str, do: Callable[[], Json], skipped: str = "") -> None:
        """Run a case and report it; report the exception if the case itself fails."""
        if not skipped and self.limit() < 2:
            skipped = "no time is left"
        if skipped:
            self.report(name, {"skipped": skipped, "ok": None})
            return
        try:
            found = do()
        except Exception as error:
            found = {"ok": False, "why": [f"{type(error).__name__}: {error}"[:500]]}
        self.report(name, found)

    def check(self, case: Case) -> Json:
        """Run a check of a single rank, and compare it with what this machine has."""
        wanted = expected(case, self.machine)
        ended, message = launch(case, self.folder / case.name, self.limit())
        return self.judge(case, wanted, [(ended, message)])

    def judge(self, case: Case, wanted: list[str], ranks: list[tuple[Ended, Json]]) -> Json:
        """Return the object of a case from the results of its ranks. The findings and the output in the object come from
        rank 0.
        """
        ended, message = ranks[0]
        findings = list(message.get("findings") or ())
        names = {str(item["check"]) for item in findings}
        exits = [one.exit for one, _ in ranks]
        torch = [self.collective(one) for one, _ in ranks]
        why = []
        if any(one.killed for one, _ in ranks):
            why.append(f"it was killed after {max(one.seconds for one, _ in ranks):.0f} s")
        if any("findings" not in each for _, each in ranks):
            why.append("the check left no message")
        if missing := sorted(set(wanted) - names):
            why.append(f"no finding of {', '.join(missing)}")
        if more := sorted(names - {*wanted, *case.allowed}):
            why.append(f"findings of {', '.join(more)}")
        if exits != [int(bool(findings) and case.mode == "Require")] * len(ranks):
            why.append(f"exit codes {exits}")
        if case.torch and self.machine.torch and not all(each["collective"] for each in torch):
            why.append("the collective did not run")
        if any((each["collective"] or {}).get("error") for each in torch) and "collective" not in {*wanted, *case.allowed}:
            why.append("the collective failed")
        result = {
            "mode": case.mode, "seconds": round(max(one.seconds for one, _ in ranks), 3), "check_s": message.get("seconds"),
            "exit": ended.exit, "findings": findings, "expected": wanted, "allowed": list(case.allowed), **torch[0],
            "ok": not why, "why": why, "tail": ended.output[-TAIL:],
        }  # fmt: skip
        if len(ranks) > 1:
            others = [{"exit": one.exit, **each} for (one, _), each in zip(ranks[1:], torch[1:], strict=True)]
            result["others"] = others
        return result

    def collective(self, ended: Ended) -> Json:
        """Return what the torch process measured."""
        messages = ended.torch()
        loaded = next((when for when, message in messages if message.get("ready")), None)
        when, result = next(((when, message) for when, message in messages if "ready" not in message), (0.0, None))
        nccl = re.search(r"NCCL (?:version|INFO|WARN)", ended.output) is not None
        backend = "nccl" if nccl else None if result is None else "gloo" if not self.machine.gpus else "unknown"
        if result is not None and loaded is not None:
            result = {**result, "after_load_s": round(when - loaded, 3)}
        return {
            "collective": result, "backend": backend, "torch_load_s": None if loaded is None else round(loaded, 3),
        }  # fmt: skip

    # --- cases ------------------------------------------------------------------------------------------------------------

    def timed(self) -> None:
        """Run the check of a pod without faults three times; the first run loads torch into the page cache. Then run it once
        without torch.
        """
        clean = Case("clean", self.model)
        for name in ("clean-first", "clean-second", "clean-third"):
            self.attempt(name, partial(self.check, replace(clean, name=name)))
        self.attempt("without-torch", lambda: self.check(replace(clean, name="without-torch", torch=False)))

    def faults(self) -> None:
        """Run the checks of pods that have a fault. They run at the same time, each with its own address and ports."""
        short, lacking = weights(self.folder / "short"), weights(self.folder / "lacking")
        file = min(short.glob("*.safetensors"))
        os.truncate(file, file.stat().st_size - 1)
        min(lacking.glob("*.safetensors")).unlink()
        newest = max(DRIVERS, key=int)
        root, older = self.folder / "root", DRIVERS[newest] - 1
        version = host.text(Path("/proc/driver/nvidia/version"))
        rooted = {"root": str(root)}
        many, absent = {"gpus": 8}, () if Path(f"/sys/class/infiniband/{DEVICE}").exists() else ("devices",)
        cases = [
            Case("gpus-require", self.model, config=many),
            Case("gpus-warn", self.model, config=many, mode="Warn"),
            Case("device", self.model, absent, words=(f"--disaggregation-ib-device={DEVICE}",)),
            Case("cuda-newest", self.model, env={"CUDA_VERSION": f"{newest}.0.0"}),
            Case("cuda-unknown", self.model, env={"CUDA_VERSION": f"{int(newest) + 1}.0.0"}),
            Case("driver-older", self.model, env={"CUDA_VERSION": f"{newest}.0.0"}, config=rooted, driver=older),
            Case("path", self.folder / "missing", ("paths",)),
            Case("weights-short", short, ("weights",)),
            Case("weights-lacking", lacking, ("weights",)),
        ]
        skipped = {}
        if not version:
            skipped["driver-older"] = "there is no /proc/driver/nvidia/version"
        else:
            host.older_driver(root, version, self.machine.driver, older)
        with ThreadPoolExecutor(max(1, 2 * (os.cpu_count() or 2) // 3)) as pool:
            for number, case in enumerate(cases):
                own = {**case.config, "bind": f"127.87.2.{number + 1}", "port": host.two_ports()}
                check = partial(self.check, replace(case, config=own))
                pool.submit(self.attempt, case.name, check, skipped.get(case.name, ""))

    def ranks(self, size: int) -> Json:
        """Run the checks of several ranks on this machine, each with an address of its own. NCCL may refuse ranks that share
        a GPU. The ranks of a service do not share one, unless the device plugin shares GPUs between pods.
        """
        port, name = host.two_ports(), f"ranks-{size}"
        shared = ("collective",) if size > self.machine.gpus > 0 else ()
        place = {"size": size, "leader": "127.87.1.0", "worker": "127.87.1.%d", "port": port}
        cases = [
            Case(name, self.model, allowed=shared, config={**place, "rank": str(rank), "bind": f"127.87.1.{rank}"})
            for rank in range(size)
        ]
        wanted = expected(cases[0], self.machine)
        with ThreadPoolExecutor(size) as pool:
            running = [
                pool.submit(launch, case, self.folder / name / str(rank), self.limit()) for rank, case in enumerate(cases)
            ]
            return self.judge(cases[0], wanted, [one.result() for one in running])

    def direct(self) -> Json:
        """Run the torch process of the check with a single rank, without the check."""
        request = {"host": "127.0.0.1", "port": host.two_ports() + 1, "rank": 0, "size": 1, "seconds": 15}
        case = Case("collective-one-rank", self.model, env={"OME_PREFLIGHT_TORCH": "1", "NCCL_DEBUG": "INFO"})
        env = variables(case, self.folder / "unused")
        line = json.dumps({"do": "torch", **request}) + "\n"
        ended = run([sys.executable, "-c", code.BOOT], env, self.folder, self.limit(), stdin=line)
        found = self.collective(ended)
        ok = not ended.killed and not ended.exit and found["collective"] is not None and "error" not in found["collective"]
        why = [] if ok else ["the torch process did not measure a collective"]
        common = {"seconds": round(ended.seconds, 3), "exit": ended.exit, "findings": [], "expected": []}
        return {**common, **found, "ok": ok, "why": why, "tail": ended.output[-TAIL:]}

    def stages(self) -> Json:
        """Measure what the torch process does, step by step."""
        env = {**os.environ, "PYTHONPATH": str(ROOT), "NCCL_DEBUG": "WARN"}
        ended = run([sys.executable, __file__, "--stages", str(host.two_ports())], env, self.folder, self.limit())
        found = ended.torch()
        ok = bool(found) and not ended.exit and not ended.killed
        why = [] if ok else ["not all stages ran"]
        stages = found[-1][1] if found else {}
        common = {"seconds": round(ended.seconds, 3), "exit": ended.exit, "findings": [], "expected": []}
        return {**common, **stages, "ok": ok, "why": why, "tail": ended.output[-TAIL:]}

    def describe(self) -> Json:
        """Return what helps to explain findings: the programs, files and limits that the check reads."""
        begun = time.monotonic()
        listed = run(["nvidia-smi", "-L"], dict(os.environ), self.folder, 10) if shutil.which("nvidia-smi") else None
        took = time.monotonic() - begun
        packages = ("torch", "triton", "nvidia-nccl-cu13", "nvidia-nccl-cu12")
        return {
            "gpus": self.machine.gpus,
            "driver": self.machine.driver,
            "driver_version": host.text(Path("/proc/driver/nvidia/version"))[:300],
            "proc_gpus": host.names(Path("/proc/driver/nvidia/gpus")),
            "dev": [name for name in host.names(Path("/dev")) if "nvidia" in name or "infiniband" in name],
            "nvidia_smi": shutil.which("nvidia-smi"),
            "nvidia_smi_s": round(took, 3) if listed else None,
            "nvidia_smi_output": listed.output[:600] if listed else None,
            "infiniband": host.names(Path("/sys/class/infiniband")),
            "interfaces": host.names(Path("/sys/class/net")),
            "shm_mib": self.machine.shm // MIB,
            "nofile_before": list(self.limits),
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "memlock": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
            "compat": host.names(Path("/usr/local/cuda/compat"))[:5],
            "variables": {
                name: value[:200] for name, value in os.environ.items() if re.match("CUDA|NCCL|NVIDIA|GLOO", name)
            },
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "shell_python": shutil.which("python3"),
            "packages": {name: version for name in packages if (version := host.package_version(name))},
            "cores": os.cpu_count(),
            "kernel": os.uname().release,
            "code_bytes": len(code.packed()),
            "ok": True,
        }

    def summary(self) -> Json:
        """Return the seconds of the cases that are compared, and the cases that are not ok."""
        seconds = {result["case"]: result.get("seconds") for result in self.results}
        names = ("clean-first", "clean-second", "clean-third", "without-torch")
        failed = [result["case"] for result in self.results if result["ok"] is False]
        return {
            "adds_s": {name: seconds.get(name) for name in names},
            "skipped": [result["case"] for result in self.results if result["ok"] is None],
            "ok": not failed,
            "why": failed,
        }

    def all(self) -> bool:
        """Run all cases; return whether none failed."""
        no_torch = "" if self.machine.torch else "torch is not installed"
        self.timed()
        self.attempt("machine", self.describe)
        self.faults()
        self.attempt("collective-one-rank", self.direct, no_torch)
        self.attempt("ranks-2", lambda: self.ranks(2), no_torch)
        self.attempt("stages", self.stages, no_torch)
        found = self.summary()
        self.report("summary", found)
        return bool(found["ok"])


def stages(port: int) -> None:
    """Repeat the steps of the check's torch process in a separate process, and print how many seconds each stage takes."""
    seconds: dict[str, float] = {}
    before = [time.monotonic()]

    def done(stage: str) -> None:
        now = time.monotonic()
        seconds[stage] = round(now - before[0], 3)
        before[0] = now

    torch: Any = importlib.import_module("torch")
    done("import")
    dist: Any = importlib.import_module("torch.distributed")
    done("import_distributed")
    cuda = bool(torch.cuda.is_available()) and bool(dist.is_nccl_available())
    done("cuda_is_available")
    data = torch.ones((64 if cuda else 1) << 20, device="cuda:0" if cuda else "cpu")
    data[0].item()
    done("tensor")
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    done("init_process_group")
    for name in ("first_all_reduce", "second_all_reduce"):
        dist.all_reduce(data)
        data[0].item()
        done(name)
    dist.destroy_process_group()
    done("destroy_process_group")
    found: Json = {"backend": backend, "stages_s": seconds, "torch": torch.__version__, "cuda": torch.version.cuda}
    if cuda:
        found |= {"nccl": list(torch.cuda.nccl.version()), "name": torch.cuda.get_device_name(0)}
    print(f"\n{MARK}{json.dumps(found)}", flush=True)


def main(words: Iterable[str]) -> int:
    """Run the step; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.preflight_step", description="Run the preflight check here.")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for all cases (default: %(default)s)")
    parser.add_argument("--stages", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(list(words))
    if options.stages:
        stages(options.stages)
        return 0
    limits = host.raise_open_files()
    with tempfile.TemporaryDirectory(prefix="ome-preflight-") as folder:
        return 0 if Step(Path(folder), options.seconds, limits).all() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
