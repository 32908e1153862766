"""A real fault for each alert that a control plane with simulated nodes can have: it lasts while its context is open.

What no fault here fires is listed with the reason.
"""

from collections.abc import Mapping

from tests.controlplane.alerts.faults import nodes, operator, services
from tests.controlplane.alerts.faults.known import FAULTS

__all__ = ["FAULTS", "WITHOUT", "nodes", "operator", "services"]

_ENGINES = "engines with load are needed"
WITHOUT: Mapping[str, str] = {
    "OmePassesFail": "it counts errors that nobody foresaw, and none is known",
    "OmeQueueGrows": "a queue of minutes takes more services than this machine can hold",
    "OmePassesSlow": "not tried yet: an API server that is slow and still renews the Lease",
    "OmeLoopStalls": "a stopped process is no stall for the watchdog, which stops too",
    "OmeRequestsFail": "not tried yet: more than a failed request a second, and a Lease that is renewed",
    "OmeWatchSilent": "not tried yet: a watch that is silent, and that nobody opens anew",
    "OmeObjectsUnread": "the API server takes no object that the operator is known not to read",
    "OmeRouterStranger": "a router's registry is needed: simulated pods run none",
    "OmeEngineQueue": _ENGINES,
    "OmeFirstTokenSlow": _ENGINES,
    "OmeCacheFull": _ENGINES,
    "OmeRouterErrors": "tests/router/test_alert.py has its fault, with a real router",
}
