"""Parse the load of an engine, and the metrics page of a router. Pure functions."""

from collections.abc import Mapping

from ome_operator.registry.answers import RouterCounts
from ome_operator.registry.engine_load import EngineLoad, loads
from ome_operator.registry.exposition import plus, samples
from ome_operator.util.json_limits import MIB, parsed

LOAD_MEMORY = 32 * MIB
"""Maximum bytes of memory that may be used to parse an engine's load."""
ROUTER_REQUESTS, ROUTER_RESPONSES = "smg_router_requests_total", "smg_http_responses_total"
_ROUTER_SERIES = frozenset({ROUTER_REQUESTS, ROUTER_RESPONSES})
WORKER_ACTIVE, WORKER_OUTCOMES = "smg_worker_requests_active", "smg_worker_cb_outcomes_total"
_WORKER_SERIES = frozenset({WORKER_ACTIVE, WORKER_OUTCOMES})


def parsed_load(text: str) -> EngineLoad | None:
    try:
        return parsed(text, "the load of an engine", memory=LOAD_MEMORY, take=loads)
    except ValueError:
        return None


def router_counters(text: str) -> Mapping[str, float]:
    """Return two counters of a router: `requests`, the requests that it has received, and `errors`, its responses with an
    HTTP status of 500 or more.
    """
    found = {"requests": 0.0, "errors": 0.0}
    for name, labels, value in samples(text, _ROUTER_SERIES):
        if name == ROUTER_REQUESTS:
            found["requests"] = plus(found["requests"], value)
        elif labels.get("status_code", labels.get("status", "")).startswith("5"):
            found["errors"] = plus(found["errors"], value)
    return found


def worker_counts(text: str) -> Mapping[str, RouterCounts]:
    """Return a mapping from the URL of each worker to the numbers of requests that a router reports for it. The numbers are
    added over the worker's data-parallel ranks.
    """
    found: dict[str, RouterCounts] = {}
    for name, labels, value in samples(text, _WORKER_SERIES):
        url = labels.get("worker", "").partition("@")[0].rstrip("/")
        counts = found.get(url, RouterCounts())
        if name == WORKER_ACTIVE:
            found[url] = counts._replace(active=plus(counts.active, value))
        elif labels.get("outcome") == "success":
            found[url] = counts._replace(succeeded=plus(counts.succeeded, value))
    return found
