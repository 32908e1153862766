"""A program that runs the operator with two injected bugs: reconciliations of services with the names RAISES and
STANDS_STILL raise an exception or block the event loop. The alerts for such bugs have to be tested, and no real bug of this
kind is known.
"""

import time
from typing import Any

from ome_operator.__main__ import main
from ome_operator.controllers.base import CORE

RAISES, STANDS_STILL = "raises", "stands-still"
"""Names of the services: a reconciliation raises an exception, or blocks the event loop."""
STILL_S = 1.5


def _broken(sync: Any) -> Any:
    def decided(service: Any, *what: Any) -> Any:
        if service.name == RAISES:
            raise KeyError("a bug that a test has put here")
        if service.name == STANDS_STILL:
            end = time.monotonic() + STILL_S  # the stack of the event loop's thread
            while time.monotonic() < end:
                pass  # It computes, because the watchdog may miss a second of a stall in which the thread only sleeps.
        return sync(service, *what)

    return decided


if __name__ == "__main__":
    object.__setattr__(CORE, "sync", _broken(CORE.sync))
    main()
