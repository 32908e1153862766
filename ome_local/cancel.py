"""Cancellation of work in several threads: running programs are stopped, and waiting threads are woken up.

A thread that runs a part of a task (ome_local/parts.py) carries a Cancel object. In any other thread, `run` and `pause`
behave like the functions of the standard library.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import IO, TypeVar

from ome_operator.errors import UserError

_LOOK_EVERY_S = 0.2
_GRACE_S = 5.0
_Thing = TypeVar("_Thing")
_Made = TypeVar("_Made")


class Cancelled(UserError):
    """Error: the work of the calling thread was cancelled."""


class Cancel:
    """A cancellation flag, shared by the threads that carry it."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def set(self) -> None:
        """Cancel the work of all threads that carry this object."""
        self._over.set()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`. Raises Cancelled as soon as the work is cancelled."""
        if self._over.wait(seconds):
            raise Cancelled("Stopped, because another step failed.")


_CANCEL: ContextVar[Cancel | None] = ContextVar("cancel", default=None)
_NICE: ContextVar[int] = ContextVar("nice", default=0)


@contextmanager
def carried(cancel: Cancel, nice: int = 0) -> Iterator[None]:
    """Make the work of the calling thread inside the `with` block cancellable by `cancel`. Programs that the thread starts
    have the niceness `nice`.
    """
    tokens = _CANCEL.set(cancel), _NICE.set(nice)
    try:
        yield
    finally:
        _CANCEL.reset(tokens[0])
        _NICE.reset(tokens[1])


def is_carried() -> bool:
    """Return whether the calling thread carries a Cancel object, so that its work can be cancelled."""
    return _CANCEL.get() is not None


def pause(seconds: float) -> None:
    """Sleep like `time.sleep`. Raises Cancelled if the work is cancelled."""
    cancel = _CANCEL.get()
    if cancel is None:
        time.sleep(seconds)
    else:
        cancel.wait(seconds)


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    output: "int | IO[bytes] | IO[str]" = subprocess.PIPE,
) -> "subprocess.CompletedProcess[str]":
    """Run a program without input until it ends. If the work is cancelled, the program and its children are stopped. `cwd`
    is the folder and `env` the whole environment in which it runs; by default those of this process.

    Stdout and stderr are returned separately, or both are written to `output`.
    """
    nice = [] if not (more := _NICE.get()) else ["nice", "-n", str(more)]
    child = subprocess.Popen(
        [*nice, *command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE if output == subprocess.PIPE else subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0 if is_carried() else None,  # Ctrl-C in the terminal then reaches the program only through Cancel
    )
    try:
        said = _communicate(child)
    except BaseException:
        _end(child)
        raise
    return subprocess.CompletedProcess(list(command), child.returncode, *said)


def _communicate(child: "subprocess.Popen[str]") -> tuple[str, str]:
    while True:
        try:
            return child.communicate(timeout=_LOOK_EVERY_S if is_carried() else None)
        except subprocess.TimeoutExpired:
            pause(0.0)


def _end(child: "subprocess.Popen[str]") -> None:
    """Stop the program. If the program has its own process group, also stop the programs that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if is_carried():
                os.killpg(child.pid, number)
            else:
                child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()


def side_by_side(do: Callable[[_Thing], _Made], things: Sequence[_Thing], lanes: int = 8) -> list[_Made]:
    """Call `do` for each item of `things` in up to `lanes` threads that carry the caller's Cancel object. Return the
    results in the order of the items. If calls fail, the exception of the first item among them is raised after all
    calls have ended.
    """
    if not things:
        return []
    with ThreadPoolExecutor(min(lanes, len(things))) as pool:
        begun = [pool.submit(copy_context().run, do, thing) for thing in things]
    return [done.result() for done in begun]
