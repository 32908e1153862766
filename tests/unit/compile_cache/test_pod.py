"""Tests of the program in the containers. The program knows the hardware of its node. Its launcher never fails, and never
ends before it is stopped.
"""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ome_operator.compile_cache import code, pod
from ome_operator.compile_cache.archive import NoCache

CPU = "processor\t: 0\nmodel name\t: X\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: X\nflags\t\t: fpu avx2\n"


def machine(folder: Path, cpu: str = CPU, driver: str = "", *models: str) -> Path:
    """Create /proc of a machine with GPUs of these models."""
    shutil.rmtree(folder / "proc", ignore_errors=True)
    nvidia = folder / "proc/driver/nvidia"
    nvidia.mkdir(parents=True)
    (folder / "proc/cpuinfo").write_text(cpu)
    if driver:
        (nvidia / "version").write_text(f"NVRM version: {driver}\n")
    for number, model in enumerate(models):
        (nvidia / f"gpus/{number}").mkdir(parents=True)
        (nvidia / f"gpus/{number}/information").write_text(f"Model: \t\t {model}\nGPU UUID: \t GPU-{number}\n")
    return folder


def test_every_other_cpu_gpu_or_driver_changes_the_hardware_digest(tmp_path: Path) -> None:
    machines = [
        ((), False),
        ((CPU.replace("avx2", "avx2 amx_tile"),), False),
        ((CPU.replace(": X", ": Y"),), False),
        ((CPU, "550.54", "H100"), True),
        ((CPU, "570.00", "H100"), True),
        ((CPU, "550.54", "H200"), True),
        ((CPU, "550.54", "H100", "H200"), True),
    ]
    found = [pod.hardware(machine(tmp_path, *facts), gpus) for facts, gpus in machines]
    assert len(set(found)) == len(found) and all(len(digest) == 32 for digest in found)
    same = pod.hardware(machine(tmp_path, CPU + "cpu MHz\t\t: 2100\n", "550.54", "H100", "H100"), True)
    assert same == found[3], "speeds and the number of GPUs of one model do not matter"


@pytest.mark.parametrize("facts", [(CPU,), (CPU, "550.54"), (CPU, "", "H100"), ("",)])
def test_unknown_hardware_gets_no_cache(tmp_path: Path, facts: tuple[str, ...]) -> None:
    with pytest.raises(NoCache, match="not known"):
        pod.hardware(machine(tmp_path, *facts), True)


def test_program_text_in_a_pod_is_small_and_uses_only_the_standard_library() -> None:
    assert len(code.packed()) < 8000
    own = "ome_operator.compile_cache"
    for name in code.MODULES:
        tree = ast.parse((Path(code.__file__).parent / f"{name}.py").read_text())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert all(each.startswith(own) or each.partition(".")[0] in sys.stdlib_module_names for each in names)


def launch(
    folder: Path, step: str, path: str, boot: str = code.BOOT, health: str = "http://127.0.0.1:9/"
) -> "subprocess.Popen[str]":
    """Start the launcher with this PATH."""
    shell = shutil.which("sh")
    assert shell is not None
    config = {"folder": str(folder / "volume"), "agent": "/nowhere/agent.sock", "health": health, "pause": 0.01}
    env = {"PATH": path, "OME_COMPILE_CACHE": json.dumps(config), "OME_COMPILE_CACHE_BOOT": boot}
    command = [shell, "-c", code.LAUNCH, "compile-cache", step, str(folder / "volume/.program")]
    if step == "load":
        env["OME_COMPILE_CACHE_CODE"] = code.packed()
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Return a PATH with Python, and create the volume of the pod."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    (tmp_path / "volume").mkdir()
    return f"{tmp_path / 'bin'}:/usr/bin:/bin"


def test_init_container_exits_with_0_and_creates_the_cache_folder(tmp_path: Path, python: str) -> None:
    done = launch(tmp_path, "load", python)
    said, _ = done.communicate(timeout=60)
    why = "no agent of this node keeps compile caches of this engine yet (No such file or directory)"
    assert (done.returncode, said) == (0, f"no compile cache: {why}\n")
    assert (tmp_path / "volume/cache").is_dir() and (tmp_path / "volume/.program").read_text() == code.packed()


@pytest.mark.parametrize("boot", ["import os; os.kill(os.getpid(), 9)", "1/0", "syntax error"])
def test_killed_program_does_not_prevent_the_engine_start(tmp_path: Path, python: str, boot: str) -> None:
    assert launch(tmp_path, "load", python, boot).wait(60) == 0


def test_image_without_python_starts_its_engine(tmp_path: Path) -> None:
    done = launch(tmp_path, "load", str(tmp_path))
    assert done.communicate(timeout=60)[0] == "no compile cache: the image has no python3\n" and done.returncode == 0


@pytest.mark.parametrize("boot", [code.BOOT, "1/0"])
def test_sidecar_runs_until_sigterm(tmp_path: Path, python: str, boot: str) -> None:
    done = launch(tmp_path, "seal", python, boot)
    wait_for_child(done, "python3" if boot == code.BOOT else "sleep")
    assert done.poll() is None
    done.send_signal(signal.SIGTERM)
    assert done.wait(60) == 0


def wait_for_child(launcher: "subprocess.Popen[str]", name: str) -> None:
    """Wait until the launcher runs the program with this name."""
    children, until = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children"), time.monotonic() + 60
    while name not in [Path(f"/proc/{pid}/comm").read_text().strip() for pid in children.read_text().split()]:
        assert time.monotonic() < until and launcher.poll() is None
        time.sleep(0.01)


def test_the_sidecar_runs_the_program_that_the_init_container_left(tmp_path: Path, python: str) -> None:
    launch(tmp_path, "load", python).wait(60)
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = launch(tmp_path, "seal", python, health=f"http://127.0.0.1:{server.server_port}/health")
        assert done.stdout is not None
        assert done.stdout.readline().startswith("no compile cache: no agent of this node keeps compile caches")
        done.send_signal(signal.SIGTERM)
        assert done.wait(60) == 0
        server.shutdown()


class Healthy(BaseHTTPRequestHandler):
    """An engine that serves."""

    def do_GET(self) -> None:
        """Answer 200."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_full_volume_is_a_reason(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.write_text("this is no folder")
    config = {"folder": str(volume), "agent": "", "root": str(machine(tmp_path))}
    assert pod.repeated(pod.load, config, 2, 0).startswith("no compile cache: ")


def test_an_unexpected_error_is_a_reason() -> None:
    def broken(_: object) -> str:
        raise RuntimeError("odd")

    assert pod.repeated(broken, {}, 5, 0) == "no compile cache: RuntimeError: odd"


def test_file_names_that_are_not_unicode_cause_no_exception(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / os.fsdecode(b"\xff")).touch()
    (tmp_path / ".hardware").write_text("a" * 32)
    assert pod.repeated(pod.seal, {"folder": str(tmp_path), "agent": "/nowhere"}, 1, 0).startswith("no compile cache: ")
