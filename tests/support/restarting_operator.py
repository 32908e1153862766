"""The operator as a program that lives again at once whenever it ends, for tests that kill it often.

It plays the kubelet: a process that has loaded the operator forks it, and forks it anew, so that a start takes half a
second and not the time of importing. What is not as shipped: how long groups drain, the SETTINGS below, and the wall clock,
which is off by the seconds that the file named by CLOCK says.
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
"""Environment: the file that says by how many seconds the wall clock is off."""
CHILD = "FAULTY_CHILD"
"""Environment: the file in which the process id of the present operator stands."""
NOTICE = 1.0
SETTINGS = {"lease_duration": 9.0, "lease_renew": 7.0, "lease_retry": 0.5, "status_interval": 0.5}
_PR_SET_PDEATHSIG = 1


def wrong_now() -> datetime:
    """A wall clock that somebody sets."""
    try:
        off = float(Path(os.environ[CLOCK]).read_text() or 0)
    except (KeyError, OSError):
        off = 0.0
    return datetime.now(UTC) + timedelta(seconds=off)


def _changed() -> None:
    """What is not as shipped."""
    drain.NOTICE = NOTICE
    Settings.__init__.__kwdefaults__.update(SETTINGS)
    app.now = wrong_now


def _revive() -> None:
    """Fork an operator whenever there is none; SIGTERM ends both."""
    importlib.import_module("ome_operator.app")  # what the command loads when it runs
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
            time.sleep(0.5)  # one that ends by itself may do so again


def _end(child: int) -> None:
    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)
    os._exit(0)


if __name__ == "__main__":
    _changed()
    _revive()
