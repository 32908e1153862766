"""Run the preflight check on a machine with a GPU, and print a JSON object for every case.

    python -m tests.gpu.preflight_step [--seconds 60]        # or: PYTHONPATH=. python tests/gpu/preflight_step.py

Needs of this repository only the check itself, and of Python only the standard library. The check runs as in the pod of
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
import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ome_operator.preflight import code
from ome_operator.preflight.check import MARK
from ome_operator.preflight.node import DRIVERS

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20.0
"""Seconds for a case, after which its processes are killed."""
TAIL = 2000
"""Characters of a case's output that are kept."""
MIB = 1 << 20
KEPT = re.compile("CUDA|NCCL|NVIDIA|GLOO|LD_LIBRARY_PATH|PYTHON")
"""Variables of the image that the object `machine` shows."""
OPEN_FILES = 1 << 20
"""Limit of open files that containerd's unit sets for containers."""
HTTP = 30000
DEVICE = "mlx5_0"
WORDS = (
    "python3", "-m", "sglang.launch_server", "--model-path=$(MODEL_PATH)", "--served-model-name=$(INFERENCESERVICE_NAME)",
    "--tool-call-parser=kimi_k2", "--host=0.0.0.0", f"--port={HTTP}", "--enable-metrics", "--tp-size=$(PARALLELISM_SIZE)",
    "--disable-shared-experts-fusion", "--max-total-tokens=65536", "--mem-fraction-static=0.85",
)  # fmt: skip
"""Command and arguments of the engine, which the check gets as its own arguments."""
PLACE: Json = {"rank": "$(LWS_WORKER_INDEX)", "size": 1, "http": HTTP, "seconds": 60, "gpus": 1}
"""OME_PREFLIGHT of the rendered init container, without the name of the leader, which a single rank does not use."""
VARIABLES = {
    "INFERENCESERVICE_NAME": "plain", "NAMESPACE": "one-gpu", "LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0",
    "PARALLELISM_SIZE": "1",
}  # fmt: skip
"""Variables of the rendered init container with a fixed value, except for MODEL_PATH and those of the check."""


@dataclass(frozen=True)
class Machine:
    """What this machine has, read without the code of the check."""

    gpus: int
    driver: int
    shm: int
    nofile: int
    torch: bool

    @classmethod
    def read(cls) -> Machine:
        """Read /proc, /dev and the limits of this process."""
        status, hard = os.statvfs("/dev/shm"), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        driver = re.search(r"\b(\d{3,4})\.\d+", _text(Path("/proc/driver/nvidia/version")))
        return cls(
            gpus=len(_names(Path("/proc/driver/nvidia/gpus"))) or len(_numbered_gpus()),
            driver=int(driver[1]) if driver else 0,
            shm=status.f_frsize * status.f_blocks,
            nofile=1 << 62 if hard == resource.RLIM_INFINITY else hard,
            torch=importlib.util.find_spec("torch") is not None,
        )


@dataclass(frozen=True)
class Case:
    """A check to run, and how its pod differs from the rendered one."""

    name: str
    model: Path
    faults: tuple[str, ...] = ()
    """Checks that find the fault of this case, whatever the machine has."""
    allowed: tuple[str, ...] = ()
    """Checks that may have findings, but need not."""
    mode: str = "Require"
    words: tuple[str, ...] = ()
    """Additional arguments of the engine."""
    env: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    driver: int | None = None
    """Major version of the driver that the check sees instead of the real one."""
    torch: bool = True

    def facts(self) -> Json:
        """Return OME_PREFLIGHT as the kubelet expands it."""
        return {**PLACE, "rank": "0", **self.config}


@dataclass
class Ended:
    """A process that has ended or was killed."""

    seconds: float
    exit: int
    killed: bool
    lines: list[tuple[float, str]]
    """Seconds since the start of the process, and a line of its output."""

    @property
    def output(self) -> str:
        """Return stdout and stderr."""
        return "".join(text for _, text in self.lines)

    def torch(self) -> list[tuple[float, Json]]:
        """Return the messages of the torch process with their times: that torch is loaded, then the result."""
        texts = [(when, text.removeprefix(MARK)) for when, text in self.lines if text.startswith(MARK + "{")]
        return [(when, message) for when, text in texts if isinstance(message := _parsed(text), dict)]


def expected(case: Case, machine: Machine) -> list[str]:
    """Return the names of the checks that must have findings, from the documented thresholds (docs/preflight.md)."""
    facts = case.facts()
    names = set(case.faults)
    if facts["gpus"] != machine.gpus:
        names.add("gpus")
    driver = machine.driver if case.driver is None else case.driver
    needed = DRIVERS.get(case.env.get("CUDA_VERSION", os.environ.get("CUDA_VERSION", "")).partition(".")[0], 0)
    if 0 < driver < needed and (case.driver is not None or not _names(Path("/usr/local/cuda/compat"))):
        names.add("driver")
    if machine.nofile < 65535:
        names.add("nofile")
    if machine.shm < MIB * (1024 if facts["gpus"] > 1 else 128 if facts["size"] > 1 else 64) - MIB:
        names.add("shm")
    if _in_use(str(facts.get("bind", "")), HTTP):
        names.add("ports")
    return sorted(names)


def variables(case: Case, message: Path) -> dict[str, str]:
    """Return the environment of the check: that of this process (as of the image), of the engine, and of the check."""
    facts = {**case.facts(), "message": str(message)}
    own = {"MODEL_PATH": str(case.model), **VARIABLES, "LWS_GROUP_SIZE": str(facts["size"]),
           "LWS_WORKER_INDEX": facts["rank"], "OME_PREFLIGHT_MODE": case.mode, "OME_PREFLIGHT_BOOT": code.BOOT,
           "OME_PREFLIGHT_CODE": code.packed(), "OME_PREFLIGHT": json.dumps(facts, separators=(",", ":"))}  # fmt: skip
    image = {name: value for name, value in os.environ.items() if not name.startswith("OME_")}
    # The launcher must find this Python. NCCL prints its version, which proves that it ran, and why it fails.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**image, "PATH": path, "NCCL_DEBUG": "WARN", **own, **case.env}


def run(argv: Sequence[str], env: Mapping[str, str], cwd: Path, seconds: float, stdin: str = "") -> Ended:
    """Run a process, and kill it and its children after this time."""
    begun = time.monotonic()
    process = subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    lines: list[tuple[float, str]] = []
    output = process.stdout

    def listen() -> None:
        for line in output:
            lines.append((time.monotonic() - begun, line))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    with contextlib.suppress(OSError):  # its exit code and output show why it ended early
        process.stdin.write(stdin)
        process.stdin.close()
    killed = threading.Event()

    def kill() -> None:
        killed.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(max(0.1, seconds), kill)
    timer.start()
    process.wait()  # without a timeout, because a wait with a timeout polls
    took = time.monotonic() - begun
    timer.cancel()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its children
    thread.join(2)
    return Ended(took, process.returncode, killed.is_set(), list(lines))


def launch(case: Case, folder: Path, seconds: float) -> tuple[Ended, Json]:
    """Run the check of a rank as its container does; return the process and the message for the kubelet."""
    folder.mkdir(parents=True)
    message, env = folder / "termination-log", variables(case, folder / "termination-log")
    message.touch()
    if not case.torch:
        (folder / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
        env["PYTHONPATH"] = str(folder)
    known = {**env, "OME_PREFLIGHT_CODE": ""}
    words = [re.sub(r"\$\((\w+)\)", lambda name: known[name[1]], word) for word in (*WORDS, *case.words)]
    script = code.LAUNCH.replace("/dev/termination-log", str(message))
    ended = run(["/bin/sh", "-c", script, "preflight", *words], env, folder, seconds)
    text = _parsed(message.read_text(errors="replace"))
    return ended, text if isinstance(text, dict) else {}


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
        """Return the object of a case from the results of its ranks; findings and output are those of rank 0."""
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
        """A pod without faults, three times; the first loads torch into the page cache. Then once without torch."""
        clean = Case("clean", self.model)
        for name in ("clean-first", "clean-second", "clean-third"):
            self.attempt(name, partial(self.check, replace(clean, name=name)))
        self.attempt("without-torch", lambda: self.check(replace(clean, name="without-torch", torch=False)))

    def faults(self) -> None:
        """Pods with a fault. They run at the same time, with addresses and ports of their own."""
        short, lacking = weights(self.folder / "short"), weights(self.folder / "lacking")
        file = min(short.glob("*.safetensors"))
        os.truncate(file, file.stat().st_size - 1)
        min(lacking.glob("*.safetensors")).unlink()
        newest = max(DRIVERS, key=int)
        root, older = self.folder / "root", DRIVERS[newest] - 1
        version = _text(Path("/proc/driver/nvidia/version"))
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
            _older_driver(root, version, self.machine.driver, older)
        with ThreadPoolExecutor(max(1, 2 * (os.cpu_count() or 2) // 3)) as pool:
            for number, case in enumerate(cases):
                own = {**case.config, "bind": f"127.87.2.{number + 1}", "port": _two_ports()}
                check = partial(self.check, replace(case, config=own))
                pool.submit(self.attempt, case.name, check, skipped.get(case.name, ""))

    def ranks(self, size: int) -> Json:
        """Run the checks of several ranks on this machine, each with an address of its own. NCCL may refuse ranks that share
        a GPU. The ranks of a service do not share one, unless the device plugin shares GPUs between pods.
        """
        port, name = _two_ports(), f"ranks-{size}"
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
        request = {"host": "127.0.0.1", "port": _two_ports() + 1, "rank": 0, "size": 1, "seconds": 15}
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
        ended = run([sys.executable, __file__, "--stages", str(_two_ports())], env, self.folder, self.limit())
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
            "driver_version": _text(Path("/proc/driver/nvidia/version"))[:300],
            "proc_gpus": _names(Path("/proc/driver/nvidia/gpus")),
            "dev": [name for name in _names(Path("/dev")) if "nvidia" in name or "infiniband" in name],
            "nvidia_smi": shutil.which("nvidia-smi"),
            "nvidia_smi_s": round(took, 3) if listed else None,
            "nvidia_smi_output": listed.output[:600] if listed else None,
            "infiniband": _names(Path("/sys/class/infiniband")),
            "interfaces": _names(Path("/sys/class/net")),
            "shm_mib": self.machine.shm // MIB,
            "nofile_before": list(self.limits),
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "memlock": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
            "compat": _names(Path("/usr/local/cuda/compat"))[:5],
            "variables": {
                name: value[:200] for name, value in os.environ.items() if re.match("CUDA|NCCL|NVIDIA|GLOO", name)
            },
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "shell_python": shutil.which("python3"),
            "packages": {name: version for name in packages if (version := _version(name))},
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
    """Run in a process of its own what the torch process of the check does, and print the seconds of each stage."""
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


def weights(folder: Path) -> Path:
    """Create a model of two small files with their index."""
    folder.mkdir(parents=True)
    names = [f"model-{number}-of-2.safetensors" for number in (1, 2)]
    header = json.dumps({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}).encode()
    for name in names:
        (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def raise_open_files() -> tuple[int, int]:
    """Raise the limit of open files as container runtimes do, where this process may; return the previous limits."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < OPEN_FILES:
        with contextlib.suppress(OSError, ValueError):  # without the right to raise it, the finding of `nofile` is correct
            resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], OPEN_FILES))
    return before


def _older_driver(root: Path, version: str, driver: int, older: int) -> None:
    """Create a root folder with the real /sys and /dev, and the real text of the driver's version with another number."""
    (root / "proc/driver/nvidia").mkdir(parents=True)
    for name in ("sys", "dev"):
        (root / name).symlink_to(f"/{name}")
    (root / "proc/self").symlink_to("/proc/self")
    (root / "proc/driver/nvidia/version").write_text(re.sub(rf"\b{driver}(?=\.\d)", str(older), version))


def _two_ports() -> int:
    """Return a free port whose successor is free, too: the check opens the port, and torch the next one."""
    while True:
        with socket.create_server(("", 0)) as first:
            port: int = first.getsockname()[1]
            if port < 65535 and not _in_use("", port + 1):
                return port


def _in_use(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return True
    return False


def _numbered_gpus() -> list[str]:
    return [name for name in _names(Path("/dev")) if re.fullmatch(r"nvidia\d+", name)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def main(words: Iterable[str]) -> int:
    """Run the step; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.preflight_step", description="Run the preflight check here.")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for all cases (default: %(default)s)")
    parser.add_argument("--stages", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(list(words))
    if options.stages:
        stages(options.stages)
        return 0
    limits = raise_open_files()
    with tempfile.TemporaryDirectory(prefix="ome-preflight-") as folder:
        return 0 if Step(Path(folder), options.seconds, limits).all() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
