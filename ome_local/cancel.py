"""Work in several threads that can be called off: programs are ended, and who waits wakes up.

A thread that does a part of a run (ome_local/parts.py) carries a Cancel. In any other thread `run` and `pause` are no more
than those of the standard library.
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
    """The work of the calling thread was called off."""


class Cancel:
    """Whether work is called off, for the threads that carry it."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def set(self) -> None:
        """Call it off."""
        self._over.set()

    def wait(self, seconds: float) -> None:
        """Sleep, or raise Cancelled as soon as the work is called off."""
        if self._over.wait(seconds):
            raise Cancelled("Ended, because something else failed.")


_CANCEL: ContextVar[Cancel | None] = ContextVar("cancel", default=None)
_NICE: ContextVar[int] = ContextVar("nice", default=0)


@contextmanager
def carried(cancel: Cancel, nice: int = 0) -> Iterator[None]:
    """The calling thread obeys it meanwhile, and starts programs with the niceness."""
    tokens = _CANCEL.set(cancel), _NICE.set(nice)
    try:
        yield
    finally:
        _CANCEL.reset(tokens[0])
        _NICE.reset(tokens[1])


def is_carried() -> bool:
    """Whether the work of the calling thread can be called off."""
    return _CANCEL.get() is not None


def pause(seconds: float) -> None:
    """`time.sleep` that ends with Cancelled."""
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
    """Run a program to its end, without input; with its own children it is ended when the work is called off.

    What it says is kept apart as stdout and stderr, or both go to `output`.
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
        process_group=0 if is_carried() else None,  # Ctrl-C then reaches it by way of Cancel alone
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
    """The program, and what it has started, where it has a group of its own."""
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
    """`do` for each of them, in threads that carry what the caller carries. The first failure, once all have ended."""
    if not things:
        return []
    with ThreadPoolExecutor(min(lanes, len(things))) as pool:
        begun = [pool.submit(copy_context().run, do, thing) for thing in things]
    return [done.result() for done in begun]
