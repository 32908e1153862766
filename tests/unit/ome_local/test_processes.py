"""Tests that processes are identified by ID and start time, and that no other process is ever signaled."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_local import processes
from ome_local.layout import Layout
from ome_local.processes import Process


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Layout]:
    """Yield an empty cluster directory, and end its processes afterwards."""
    made = Layout(tmp_path / "c")
    made.make()
    yield made
    processes.end_all(made, 0.1)


def test_a_process_is_found_until_it_ends(at: Layout) -> None:
    """A running process is found by another reader of the cluster's directory, too. After the process has stopped, it is
    not found any more.
    """
    process = processes.spawn(at, "nap", ["sleep", "1000"])
    assert processes.find_process(at, "nap") == process
    assert os.getsid(process.pid) == process.pid, "it has its own session, so Ctrl+C on the terminal does not reach it"
    processes.stop_process(at, "nap")
    assert not process.is_running()
    assert processes.names(at) == []


def test_end_of_log_is_printed_even_if_empty(at: Layout) -> None:
    path = at.logs / "nap.log"
    assert processes.end_of_log(at, "nap") == f"Its log {path} is empty."
    path.write_text("first\nsecond\n")
    assert processes.end_of_log(at, "nap") == f"Its log {path} ends with:\nfirst\nsecond"


def test_process_is_found_although_its_starter_was_killed(at: Layout) -> None:
    """A process is found even if its starter was killed before it could record the process ID. Otherwise a second API server
    would be started on the same port and fail.
    """
    process = processes.spawn(at, "nap", ["sleep", "1000"])
    early = at.run / ".nap.early"
    while not (early.exists() and early.read_text()):  # the shell creates the file before it writes the process id
        assert process.is_running()
    (at.run / "nap.pid").unlink()
    assert processes.find_process(at, "nap") == process
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        early.write_text(str(stranger.pid))
        assert processes.find_process(at, "nap") is None, "another process has this ID by now"
        stranger.kill()
    processes.stop_process(at, "nap")
    assert not early.exists()


def test_a_reused_id_is_never_signalled(at: Layout) -> None:
    """A process that has the recorded process ID but another start time is never signaled, because the ID belongs to
    another process now.
    """
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        (at.run / "etcd.pid").write_text(json.dumps({"pid": stranger.pid, "started": "1"}))
        assert processes.find_process(at, "etcd") is None
        processes.stop_process(at, "etcd")
        processes.end_all(at)
        assert stranger.poll() is None, "it lives"
        stranger.kill()


def test_zombie_process_counts_as_ended() -> None:
    """A process that has ended does not count as running even if its parent has not reaped it."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.started_at(child.pid) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}'])
def test_broken_process_file_means_that_nothing_runs(at: Layout, content: str) -> None:
    """A broken file of processes means that no process runs. After a crash at any moment, `up` and `down` must
    still work.
    """
    (at.run / "etcd.pid").write_text(content)
    assert processes.find_process(at, "etcd") is None


def test_start_time_is_parsed_for_names_with_spaces_and_parentheses(at: Layout, tmp_path: Path) -> None:
    """The start time is read correctly if a program's name contains spaces and parentheses, because the name stands before
    it in /proc/<pid>/stat.
    """
    program = tmp_path / "a) S (b"
    program.symlink_to("/bin/sleep")
    process = processes.spawn(at, "odd", [str(program), "1000"])
    assert process.started.isdigit()
    assert process.is_running()


def test_process_that_ignores_sigterm_is_killed(at: Layout) -> None:
    """A process that ignores SIGTERM is killed after the grace period."""
    words = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    process = processes.spawn(at, "stubborn", [sys.executable, "-c", words])
    while "up" not in processes.last_words(at, "stubborn"):
        assert process.is_running()
    processes.stop_process(at, "stubborn", grace_s=0.1)
    assert not process.is_running()


def test_stopped_process_is_killed(at: Layout) -> None:
    """A process that was stopped with SIGSTOP is killed, because it would not receive SIGTERM before SIGCONT."""
    process = processes.spawn(at, "frozen", ["sleep", "1000"])
    process.signal(signal.SIGSTOP)
    processes.stop_process(at, "frozen", grace_s=5.0)
    assert not process.is_running()


def test_all_processes_of_a_cluster_are_ended(at: Layout, tmp_path: Path) -> None:
    """All processes of a cluster are ended, including those that no file contains: a mark in their environment identifies
    them. Processes of another cluster stay.
    """
    other = Layout(tmp_path / "c2")
    other.make()
    foreign = processes.spawn(other, "nap", ["sleep", "1000"])
    lost = processes.spawn(at, "lost", ["sh", "-c", "sleep 1000 & wait"])
    (at.run / "lost.pid").unlink()
    processes.end_all(at, 0.2)
    assert not lost.is_running()
    assert processes.processes_of_cluster(at) == []
    assert foreign.is_running()
    processes.end_all(other, 0.2)


def test_process_output_is_appended_to_its_log(at: Layout) -> None:
    """The output of a process is appended to its log, so that a restart does not hide why the previous process ended."""
    for word in ("one", "two"):
        process = processes.spawn(at, "echo", ["sh", "-c", f"echo {word}; echo trouble >&2"])
        assert processes.wait_until_ended([process], 5.0)
    assert processes.last_words(at, "echo", 4) == "one\ntrouble\ntwo\ntrouble"


def test_signalling_a_nonexistent_process_has_no_effect() -> None:
    """Signalling a process that does not exist has no effect."""
    Process(2**22 + 1, "1").signal(signal.SIGKILL)
