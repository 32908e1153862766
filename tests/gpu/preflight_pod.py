"""The preflight check as in the pod of service `plain` of one-gpu.yaml, run as a process of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ome_operator.preflight import code
from ome_operator.preflight.check import MARK
from ome_operator.preflight.node import DRIVERS
from tests.gpu import preflight_host as host
from tests.gpu.preflight_host import Machine

Json = dict[str, Any]

MIB = 1 << 20
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
    "PARALLELISM_SIZE": "1", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "false",
}  # fmt: skip
"""Variables of the rendered init container with a fixed value, except for MODEL_PATH and those of the check."""


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
    if 0 < driver < needed and (case.driver is not None or not host.names(Path("/usr/local/cuda/compat"))):
        names.add("driver")
    if machine.nofile < 65535:
        names.add("nofile")
    if machine.shm < MIB * (1024 if facts["gpus"] > 1 else 128 if facts["size"] > 1 else 64) - MIB:
        names.add("shm")
    if host.in_use(str(facts.get("bind", "")), HTTP):
        names.add("ports")
    return sorted(names)


def variables(case: Case, message: Path) -> dict[str, str]:
    """Return the environment of the check. It consists of the variables of this process (as of the image), of the engine,
    and of the check.
    """
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
    # On a busy machine, the thread reads the last lines only after the process has ended.
    return Ended(took, process.returncode, killed.is_set(), [(min(read_at, took), line) for read_at, line in lines])


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


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
