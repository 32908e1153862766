"""Docker for a test session: the machine's daemon, or a daemon that the session starts. Afterwards, the machine's state
is restored.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ome_local.binaries.ensure import cache_dir
from ome_local.lock import locked
from ome_local.realnode import namespaces, requirements
from ome_local.realnode.requirements import PATH
from tests.support.kindnode import image, programs

_UP_WITHIN_S = 60.0
_CHAINS = ("DOCKER-USER", "DOCKER-ISOLATION-STAGE-1", "DOCKER-ISOLATION-STAGE-2", "DOCKER")
_BRIDGE = re.compile(r"br-[0-9a-f]{12}")
_INOTIFY, _INSTANCES = "fs/inotify/max_user_instances", 512
"""_INOTIFY is the kernel setting for the maximum number of inotify instances of a user. The programs on all nodes share
this number to watch files. _INSTANCES is the value that replaces the default of 128.
"""
_SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/pid_max", _INOTIFY)
"""Kernel settings that kubelets, or this module, change for the whole machine."""
_FORWARDING = "net/ipv4/ip_forward"


def why_not() -> str:
    """Return why tests cannot use a kind cluster on this machine; "" if they can."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return f"kind's node image is built on Linux amd64, not on {sys.platform} {os.uname().machine}"
    if os.geteuid() != 0:
        return "kind's node image is built as root"
    return ""


@contextmanager
def running() -> Iterator[None]:
    """Provide Docker, `kind` in PATH, and the node image that was built here for `ome local up --kind`."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("PATH", f"{PATH}:{os.environ['PATH']}")
        if not _answers():
            stack.enter_context(_daemon(patch))
        kind = programs.get()["kind"]
        patch.setenv("PATH", f"{kind.parent}:{os.environ['PATH']}")
        patch.setenv("OME_KIND_IMAGE", image.provide())
        yield


@contextmanager
def _daemon(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a daemon with all its files in one folder. If a killed session left it running, the next session uses it."""
    folder = cache_dir() / "kind-docker"
    patch.setenv("DOCKER_HOST", f"unix://{folder / 'docker.sock'}")
    with locked(folder, create=True):  # a second session waits for the first
        if shutil.which("dockerd") is None:
            requirements.install(["docker.io"])
        settings = _read(folder)
        try:
            if not _answers():
                _start(folder)
            yield
        finally:
            _end(folder, settings)


def _read(folder: Path) -> dict[str, str]:
    """Return the settings that the machine had before the first of the sessions that share the daemon. The first session
    stores them in `folder`.
    """
    file = folder / "before.json"
    if not file.exists():
        found = {name: (Path("/proc/sys") / name).read_text().strip() for name in (*_SETTINGS, _FORWARDING)}
        found["FORWARD"] = _told("iptables", "-S", "FORWARD").splitlines()[0].split()[-1]
        file.write_text(json.dumps(found))
    told: dict[str, str] = json.loads(file.read_text())
    return told


def _start(folder: Path) -> None:
    runc = folder / "runc-fit"
    shutil.copy2(Path(__file__).parent / "runc_fit.py", runc)
    config = {"runtimes": {"fit": {"path": str(runc)}}, "default-runtime": "fit"}
    (folder / "daemon.json").write_text(json.dumps(config))
    places = {"config-file": "daemon.json", "data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    words = [f"--{name}={folder / place}" for name, place in places.items()]
    with (folder / "log").open("ab") as log:
        command = ["dockerd", *words, "--host", os.environ["DOCKER_HOST"]]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + _UP_WITHIN_S
    while not _answers():
        if process.poll() is not None or time.monotonic() > until:
            last = "\n".join((folder / "log").read_text().splitlines()[-5:])
            pytest.skip(f"Docker does not start on this machine:\n{last}")
        time.sleep(0.2)
    file = Path("/proc/sys") / _INOTIFY
    file.write_text(str(max(_INSTANCES, int(file.read_text()))))
    _told("iptables", "-P", "FORWARD", "ACCEPT")  # dockerd sets DROP, which interrupts other bridges of this machine


def _end(folder: Path, settings: dict[str, str]) -> None:
    """Remove containers, daemon, links, packet rules and control groups, and restore the machine's settings."""
    if left := _told("docker", "ps", "--all", "--quiet").split():
        _told("docker", "rm", "--force", "--volumes", *left)
    _told("docker", "network", "rm", "kind")
    with contextlib.suppress(OSError, ValueError):
        _stop(int((folder / "pid").read_text()))
    _told("ip", "link", "delete", "docker0")
    for program in ("iptables", "ip6tables"):
        for table in ("filter", "nat"):
            _remove_rules(program, table)
    _told("iptables", "-P", "FORWARD", settings["FORWARD"])
    for group in Path("/sys/fs/cgroup").glob("*/docker"):
        _told("find", str(group), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
    if not namespaces.has_other_links():  # the kubelet of a real node has set them for itself, too
        for name in (*_SETTINGS, _FORWARDING):
            (Path("/proc/sys") / name).write_text(settings[name])
    shutil.rmtree(folder)


def _stop(pid: int) -> None:
    """Stop the daemon that wrote its process ID, and no other process with that ID."""
    if b"dockerd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _UP_WITHIN_S
    while _alive(pid) and time.monotonic() < until:
        time.sleep(0.2)


def _alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return Path(f"/proc/{pid}").exists()


def rules_of_docker(listing: str) -> list[list[str]]:
    """Return the rules in other chains that jump to Docker's chains or name its bridges, from the output of `iptables
    -S`.
    """
    rules = [line.split() for line in listing.splitlines() if line.startswith("-A ")]
    return [rule[1:] for rule in rules if rule[1] not in _CHAINS and any(_is_docker(word) for word in rule)]


def _is_docker(word: str) -> bool:
    return word in _CHAINS or word == "docker0" or _BRIDGE.fullmatch(word) is not None


def _remove_rules(program: str, table: str) -> None:
    for rule in rules_of_docker(_told(program, "-t", table, "-S")):
        _told(program, "-t", table, "-D", *rule)
    for flag in ("-F", "-X"):
        for chain in _CHAINS:
            _told(program, "-t", table, flag, chain)


def _answers() -> bool:
    return shutil.which("docker") is not None and subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def _told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
