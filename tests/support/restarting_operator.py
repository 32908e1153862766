"""The operator as a program that restarts at once whenever it ends, for tests that kill it often.

It simulates the kubelet: a process that has loaded the operator forks it again and again, so that a start takes half a
second without the time of imports. Differences to the shipped program: the time for draining groups, the SETTINGS below, and
the wall clock, which is off by the seconds in the file that CLOCK names.
"""

import ctypes
import importlib
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ome_operator import app
from ome_operator.__main__ import main
from ome_operator.core.rollout import drain
from ome_operator.settings import Settings

CLOCK = "FAULTY_CLOCK"
"""Environment variable with the path of the file that contains the seconds by which the wall clock is off."""
CHILD = "FAULTY_CHILD"
"""Environment variable with the path of the file that contains the process ID of the current operator."""
NOTICE = 1.0
SETTINGS = {"lease_duration": 9.0, "lease_renew": 7.0, "lease_retry": 0.5, "status_interval": 0.5}
_PR_SET_PDEATHSIG = 1


def wrong_now() -> datetime:
    """Return the time of the adjustable wall clock."""
    try:
        off = float(Path(os.environ[CLOCK]).read_text() or 0)
    except (KeyError, OSError):
        off = 0.0
    return datetime.now(UTC) + timedelta(seconds=off)


def _changed() -> None:
    """Replace what differs from the shipped program: the time for draining, the settings and the clock."""
    drain.NOTICE = NOTICE
    Settings.__init__.__kwdefaults__.update(SETTINGS)
    app.now = wrong_now


def _revive() -> None:
    """Fork an operator whenever none runs. SIGTERM ends this process and the operator."""
    importlib.import_module("ome_operator.app")  # imported by the command when it runs
    libc = ctypes.CDLL(None)
    while True:
        child = os.fork()
        if not child:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            main()
            return
        signal.signal(signal.SIGTERM, lambda *_, child=child: _end(child))
        file = Path(os.environ[CHILD])
        beside = file.with_suffix(".new")
        beside.write_text(str(child))
        beside.replace(file)
        _, status = os.waitpid(child, 0)
        print(f"the operator ended ({os.waitstatus_to_exitcode(status)}) and starts again", file=sys.stderr, flush=True)
        if os.WIFEXITED(status):
            time.sleep(0.5)  # an operator that ends by itself may do so again


def _end(child: int) -> None:
    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)
    os._exit(0)


if __name__ == "__main__":
    _changed()
    _revive()
