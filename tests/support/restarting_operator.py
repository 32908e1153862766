"""The operator as a program that lives again at once whenever it ends, for tests that kill it often.

It plays the kubelet: a process that has loaded the operator forks it, and forks it anew, so that a start takes half a
second and not the time of importing. What is not as shipped: how long groups drain, the SETTINGS below, and the wall clock,
which is off by the seconds that the file named by CLOCK says.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ome_operator import app
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
