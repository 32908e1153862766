"""A real fault for each alert that can fire on a control plane with simulated nodes. A fault is a context manager: it lasts
as long as its context is open.

`WITHOUT` lists the alerts that no fault can fire here, each with the reason.
"""

from collections.abc import Mapping

from tests.controlplane.alerts.faults import api_server, bugs, demand, nodes, operator, services
from tests.controlplane.alerts.faults.known import FAULTS

__all__ = ["FAULTS", "WITHOUT", "api_server", "bugs", "demand", "nodes", "operator", "services"]

_ENGINES = "tests/node/serving/test_engine_alerts.py has its fault, with a real engine"
WITHOUT: Mapping[str, str] = {
    "OmeRouterStranger": "tests/router/test_stranger_alert.py has its fault, with a real router and its registry",
    "OmeRoutersSilent": "tests/router/test_silent_alert.py has its fault, with a registry that stops answering",
    "OmeEngineQueue": _ENGINES,
    "OmeFirstTokenSlow": _ENGINES,
    "OmeCacheFull": _ENGINES,
    "OmeRouterErrors": "tests/router/test_alert.py has its fault, with a real router",
}
