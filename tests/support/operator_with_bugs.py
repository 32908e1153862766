"""The operator as a program with two bugs that tests put into it: passes over services with these names meet them.

No bug of ours is known that would raise or stand still for so long, and alerts about both have to fire.
"""

import time
from typing import Any

from ome_operator.__main__ import main
from ome_operator.controllers.base import CORE

RAISES, STANDS_STILL = "raises", "stands-still"
"""Names of services."""
STILL_S = 1.5


def _broken(sync: Any) -> Any:
    def decided(service: Any, *what: Any) -> Any:
        if service.name == RAISES:
            raise KeyError("a bug that a test has put here")
        if service.name == STANDS_STILL:
            end = time.monotonic() + STILL_S  # of the event loop's thread
            while time.monotonic() < end:
                pass  # it computes: of a stall that only sleeps the watchdog may miss a second
        return sync(service, *what)

    return decided


if __name__ == "__main__":
    object.__setattr__(CORE, "sync", _broken(CORE.sync))
    main()
