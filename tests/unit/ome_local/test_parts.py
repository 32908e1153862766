"""Tests of the parts of a run: their order, which of them run in parallel, and how a failure ends the others."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ome_local import cancel, parts
from ome_local.board import DONE, FAILED, WAITING, ProgressBoard
from ome_local.lock import locked
from ome_local.parts import Part
from ome_operator.errors import UserError

SOON_S = 20.0
"""Time limit in seconds for immediate effects on a busy machine."""


def board(*planned: Part) -> ProgressBoard:
    """Return a board with these parts."""
    return ProgressBoard({part.name: part.needs for part in planned})


def run(*planned: Part) -> ProgressBoard:
    """Run all parts, and return their board."""
    shown = board(*planned)
    parts.run(planned, shown)
    return shown


def noted(said: list[str], name: str) -> Callable[[], None]:
    """Return a function that appends this name to the list."""
    return lambda: said.append(name)


def alive(pid: int) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait(what: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + SOON_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_parts_run_after_their_dependencies() -> None:
    said: list[str] = []
    run(
        Part("c", noted(said, "c"), needs=("a", "b")),
        Part("b", noted(said, "b"), needs=("a",)),
        Part("a", noted(said, "a")),
    )
    assert said == ["a", "b", "c"]


def test_independent_parts_run_in_parallel() -> None:
    """Parts that do not depend on each other run in parallel: both parts here wait until the other one has started. A part
    that needs only one of them does not wait for the other.
    """
    both, other_may_end = threading.Barrier(2), threading.Event()

    def slow() -> None:
        both.wait(SOON_S)
        assert other_may_end.wait(SOON_S)

    shown = run(
        Part("slow", slow),
        Part("quick", lambda: both.wait(SOON_S) and None),
        Part("after quick", other_may_end.set, needs=("quick",)),
    )
    assert {row.state for row in shown.rows.values()} == {DONE}


def test_messages_of_a_part_are_shown() -> None:
    shown = run(Part("a", lambda: "16 nodes"))
    assert shown.rows["a"].words == "16 nodes"


class TestFailure:
    """Tests that the message of the first failure is raised at once, and that nothing continues to run."""

    @staticmethod
    def fails() -> None:
        raise UserError("No package could be had: check the network.")

    def test_parts_after_a_failed_one_are_not_started(self) -> None:
        said: list[str] = []
        planned = (Part("bad", self.fails), Part("after", noted(said, "after"), needs=("bad",)))
        shown = board(*planned)
        with pytest.raises(UserError, match=r"^No package could be had: check the network\.$"):
            parts.run(planned, shown)
        assert said == []
        assert {name: row.state for name, row in shown.rows.items()} == {"bad": FAILED, "after": WAITING}

    def test_failed_run_ends_programs_with_their_children(self, tmp_path: Path) -> None:
        """If a run fails, its programs end together with their child processes. A Go build, for example, starts compilers,
        which would run for minutes without use.
        """
        pids = tmp_path / "pids"
        script = f"sleep 1000 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"

        def after_it_runs() -> None:
            wait(pids.exists)
            self.fails()

        began = time.monotonic()
        with pytest.raises(UserError, match="No package"):
            run(Part("build", lambda: cancel.run(["sh", "-c", script]) and None), Part("bad", after_it_runs))
        assert time.monotonic() - began < SOON_S
        shell, child = map(int, pids.read_text().split())
        assert not alive(shell)
        wait(lambda: not alive(child))

    def test_part_that_waits_for_a_lock_stops_after_a_failure(self, tmp_path: Path) -> None:
        """A part that waits for a lock stops waiting when another part has failed. Another `ome` process may hold the lock
        for minutes.
        """
        waits = threading.Event()

        def waiting() -> None:
            waits.set()
            with locked(tmp_path, create=True):
                pytest.fail("nobody let go of it")

        with locked(tmp_path, create=True), pytest.raises(UserError, match="No package"):
            run(Part("waits", waiting), Part("bad", lambda: waits.wait(SOON_S) and self.fails()))

    def test_threads_inside_a_part_are_cancelled_after_a_failure(self) -> None:
        waits = threading.Event()

        def sleeper(seconds: float) -> None:
            waits.set()
            cancel.pause(seconds)

        began = time.monotonic()
        with pytest.raises(UserError, match="No package"):
            run(
                Part("several", lambda: cancel.side_by_side(sleeper, [1000.0, 1000.0]) and None),
                Part("bad", lambda: waits.wait(SOON_S) and self.fails()),
            )
        assert time.monotonic() - began < SOON_S

    def test_unexpected_exception_keeps_its_traceback(self) -> None:
        """An unexpected exception in a part keeps its traceback, and does not become a short message."""
        with pytest.raises(ZeroDivisionError):
            run(Part("bug", lambda: 1 / 0 and None))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_all_programs(tmp_path: Path, number: int) -> None:
    """A signal ends all programs of the run. They have their own process groups, which Ctrl-C and a closed terminal do not
    reach.
    """
    script = f"""
import signal
from ome_local import cancel, parts
from ome_local.board import ProgressBoard
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which is ignored below nohup
program = "echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 1000"
parts.run([parts.Part("a", lambda: cancel.run(["sh", "-c", program]))], ProgressBoard({{"a": ()}}))
"""
    child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    wait((tmp_path / "pid").exists)
    child.send_signal(number)
    assert child.wait(SOON_S) != 0
    wait(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_hangup_signal_is_ignored_below_nohup(tmp_path: Path) -> None:
    script = f"""
import signal
from ome_local import cancel, parts
from ome_local.board import ProgressBoard
program = "touch {tmp_path}/began; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; touch {tmp_path}/done"
parts.run([parts.Part("a", lambda: cancel.run(["sh", "-c", program]))], ProgressBoard({{"a": ()}}))
"""
    child = subprocess.Popen(["nohup", sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait((tmp_path / "began").exists)
    child.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    assert child.wait(SOON_S) == 0 and (tmp_path / "done").exists()


def test_programs_of_a_part_run_with_its_nice_value() -> None:
    said: list[str] = []

    def ask() -> None:
        said.append(cancel.run(["nice"]).stdout.strip())

    run(Part("polite", ask, nice=7))
    assert said == [str(min(os.nice(0) + 7, 19))]


class TestRun:
    """Tests of running a program, with and without a part around it."""

    def test_run_keeps_stdout_and_stderr_separate(self) -> None:
        done = cancel.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")

    def test_output_larger_than_a_pipe_buffer_is_read(self) -> None:
        """A program may write more than fits into a pipe. The whole output is read while the program runs, so the program
        does not block.
        """
        sizes: list[int] = []

        def much() -> None:
            sizes.append(len(cancel.run(["sh", "-c", "head -c 300000 /dev/zero; sleep 0.5; head -c 7 /dev/zero"]).stdout))

        run(Part("much", much))
        assert sizes == [300007]

    def test_run_writes_both_streams_into_file(self, tmp_path: Path) -> None:
        with (tmp_path / "log").open("w") as log:
            cancel.run(["sh", "-c", "echo out; echo err >&2"], output=log)
        assert sorted((tmp_path / "log").read_text().split()) == ["err", "out"]
