"""Background processes of a cluster. Each process runs in its own session and is identified by its process ID *and* its
start time.

A process ID alone does not identify a process: after a crash or a reboot, another process may have the same ID. No signal is
sent to a process whose start time differs from the recorded start time.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout

MARK = "OME_LOCAL_CLUSTER_DIR"
"""Environment variable with the cluster's directory in every process that this package starts. The variable identifies
processes whose record file was lost."""
_REMEMBER = 'printf %s "$$" >"$1.new" && mv "$1.new" "$1"; shift; exec "$@"'
"""Shell script in which a process writes its own ID before it executes the program, because its parent may be killed
before the parent could write the ID."""
_BECOMES_S = 0.1
"""Seconds during which the environment of a new process may be unreadable, because the program replaces the shell of the
process."""
_CHILDREN: dict[int, "subprocess.Popen[bytes]"] = {}
"""Maps a process ID to a child process of the current process. Children that have ended must be reaped; otherwise they
remain zombies until the current process ends."""


@dataclass(frozen=True)
class Process:
    """A process of the operating system."""

    pid: int
    started: str
    """Start time of the process: clock ticks since boot on Linux, a date on other systems. Start times are only compared
    for equality."""

    def is_running(self) -> bool:
        """Return whether this process is still running. A zombie is not regarded as running."""
        if child := _CHILDREN.get(self.pid):
            child.poll()
        return started_at(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Send a signal to this process. No signal is sent to another process that has the same ID."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def started_at(pid: int) -> str | None:
    """Return the start time of the process with the ID `pid` (`Process.started`); None if no such process is running."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    fields = text.rpartition(")")[2].split()  # the name before it may contain spaces and parentheses
    return None if fields[0] in "ZX" else fields[19]


def _started_by_ps(pid: int) -> str | None:
    """Return the start time of a process on macOS, which has no /proc; None if the process is not running."""
    told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = told.stdout.strip().partition(" ")
    return started.strip() or None if not state.startswith("Z") else None


def spawn(at: Layout, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
    """Start a process that is detached from this terminal, append its output to its log, and record the process. `name`
    names the log and the record. `env` is added to the environment of this process.
    """
    environment = {**os.environ, **(env or {}), MARK: str(at.root)}
    with (at.logs / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _REMEMBER, "sh", str(_early(at, name)), *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=at.root,
            start_new_session=True,
        )
    _CHILDREN[child.pid] = child
    return remember(at, name, child.pid)


def keep(at: Layout, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
    """Start a process and record its command. `restart_ended` restarts the process if it ends by itself before
    `stop_process` is called. The parameters are those of `spawn`.
    """
    write_atomically(_how(at, name), json.dumps({"argv": [*argv], "env": dict(env or {})}))
    return spawn(at, name, argv, env)


def restart_ended(at: Layout) -> list[str]:
    """Start recorded processes that have ended, and return their names."""
    ended = [name for path in sorted(at.run.glob("*.how")) if not find_process(at, name := path.name.removesuffix(".how"))]
    for name in ended:
        how = json.loads(_how(at, name).read_text())
        spawn(at, name, how["argv"], how["env"])
    return ended


def remember(at: Layout, name: str, pid: int) -> Process:
    """Record a running process under this name, with which `find_process` and `stop_process` identify the process."""
    process = Process(pid, started_at(pid) or "")
    write_atomically(_file(at, name), json.dumps({"pid": process.pid, "started": process.started}))
    return process


def find_process(at: Layout, name: str) -> Process | None:
    """Return the process that is recorded under the name `name`; None if no process is recorded, or if it is not running any
    more.
    """
    kept = _remembered(at, name)
    if kept is not None and kept.is_running():
        return kept
    early = _by_itself(at, name)
    if early is None or (kept is not None and early.pid == kept.pid):  # a recorded start time is more reliable than a mark
        return None
    return early if early.is_running() else None


def _remembered(at: Layout, name: str) -> Process | None:
    try:
        kept = json.loads(_file(at, name).read_text())
        return Process(int(kept["pid"]), str(kept["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _by_itself(at: Layout, name: str) -> Process | None:
    """Return the process that has recorded its own ID under the name `name` (see `_REMEMBER`); None if there is no such
    process. The record contains no start time yet, so the process's environment must prove that it belongs to this cluster.
    """
    try:
        pid = int(_early(at, name).read_text())
    except (OSError, ValueError):
        return None
    until = time.monotonic() + _BECOMES_S
    while not _environment(pid) and started_at(pid) and time.monotonic() < until:
        time.sleep(0.002)
    return Process(pid, started_at(pid) or "") if _is_marked(pid, at) else None


def names(at: Layout) -> list[str]:
    """Return the names of all recorded processes."""
    return sorted(path.name.removesuffix(".pid") for path in at.run.glob("[!.]*.pid"))


def stop_process(at: Layout, name: str, number: int = signal.SIGTERM, grace_s: float = 10.0) -> None:
    """Stop a process: send the signal, send SIGKILL after the grace period, wait until the process has ended, and remove
    its record.
    """
    if process := find_process(at, name):
        process.signal(number)
        process.signal(signal.SIGCONT)  # a paused process reacts only to SIGKILL
        if not wait_until_ended([process], grace_s):
            process.signal(signal.SIGKILL)
            wait_until_ended([process], 10.0)
    for file in (_file(at, name), _early(at, name), _how(at, name)):
        file.unlink(missing_ok=True)


def end_all(at: Layout, grace_s: float = 1.0) -> None:
    """Stop every process of the cluster, including processes whose record file was lost. SIGKILL follows after `grace_s`
    seconds; a longer wait is unnecessary, because the data is removed anyway.
    """
    ours = {process for name in names(at) if (process := find_process(at, name))} | set(processes_of_cluster(at))
    for process in ours:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
    if not wait_until_ended(ours, grace_s):
        for process in ours:
            process.signal(signal.SIGKILL)
        wait_until_ended(ours, 10.0)
    for late in processes_of_cluster(at):  # processes that were started while their parent was stopping
        late.signal(signal.SIGKILL)
    wait_until_ended(processes_of_cluster(at), 5.0)


def wait_until_ended(processes: Iterable[Process], within_s: float) -> bool:
    """Wait until all processes have ended. Return False if some processes are still running after `within_s` seconds."""
    waiting, until = list(processes), time.monotonic() + within_s
    while waiting := [process for process in waiting if process.is_running()]:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def processes_of_cluster(at: Layout) -> list[Process]:
    """Return the processes in /proc whose environment contains this cluster's directory, without the current process."""
    found = []
    for pid in (int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
        if pid != os.getpid() and _is_marked(pid, at) and (started := started_at(pid)):
            found.append(Process(pid, started))
    return found


def _is_marked(pid: int, at: Layout) -> bool:
    return f"{MARK}={at.root}".encode() in _environment(pid).split(b"\0")


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""  # process of another user, or ended


def last_words(at: Layout, name: str, lines: int = 3) -> str:
    """Return the last lines of a process's log, for an error message."""
    try:
        text = (at.logs / f"{name}.log").read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(line[:400] for line in text.strip().splitlines()[-lines:])


def end_of_log(at: Layout, name: str) -> str:
    """Return a sentence with the path of a process's log and its last lines, for an error message."""
    words = last_words(at, name)
    path = at.logs / f"{name}.log"
    return f"Its log {path} ends with:\n{words}" if words else f"Its log {path} is empty."


def _file(at: Layout, name: str) -> Path:
    return at.run / f"{name}.pid"


def _how(at: Layout, name: str) -> Path:
    return at.run / f"{name}.how"


def _early(at: Layout, name: str) -> Path:
    return at.run / f".{name}.early"


PYTHON = sys.executable
"""Python interpreter that can import this package, for processes of this package."""
