"""Parse the load of an engine, and the metrics page of a router. Pure functions."""

from collections.abc import Mapping

from ome_operator.registry.answers import RouterCounts
from ome_operator.registry.engine_load import EngineLoad, parse_loads
from ome_operator.registry.exposition import capped_sum, iter_samples
from ome_operator.util.json_limits import MIB, parse_untrusted

LOAD_MEMORY = 32 * MIB
"""Maximum bytes of memory that may be used to parse an engine's load."""
ROUTER_REQUESTS, ROUTER_RESPONSES = "smg_router_requests_total", "smg_http_responses_total"
_ROUTER_SERIES = frozenset({ROUTER_REQUESTS, ROUTER_RESPONSES})
WORKER_ACTIVE, WORKER_OUTCOMES = "smg_worker_requests_active", "smg_worker_cb_outcomes_total"
_WORKER_SERIES = frozenset({WORKER_ACTIVE, WORKER_OUTCOMES})


def parse_engine_load(text: str) -> EngineLoad | None:
    try:
        return parse_untrusted(text, "the load of an engine", memory=LOAD_MEMORY, extract=parse_loads)
    except ValueError:
        return None


def parse_router_counters(text: str) -> Mapping[str, float]:
    """Return two counters of a router: `requests`, the requests that it has received, and `errors`, its responses with an
    HTTP status of 500 or more.
    """
    found = {"requests": 0.0, "errors": 0.0}
    for name, labels, value in iter_samples(text, _ROUTER_SERIES):
        if name == ROUTER_REQUESTS:
            found["requests"] = capped_sum(found["requests"], value)
        elif labels.get("status_code", labels.get("status", "")).startswith("5"):
            found["errors"] = capped_sum(found["errors"], value)
    return found


def parse_worker_counts(text: str) -> Mapping[str, RouterCounts]:
    """Return a mapping from the URL of each worker to the numbers of requests that a router reports for it. The numbers of a
    worker's data-parallel ranks are added.
    """
    found: dict[str, RouterCounts] = {}
    for name, labels, value in iter_samples(text, _WORKER_SERIES):
        url = labels.get("worker", "").partition("@")[0].rstrip("/")
        counts = found.get(url, RouterCounts())
        if name == WORKER_ACTIVE:
            found[url] = counts._replace(active=capped_sum(counts.active, value))
        elif labels.get("outcome") == "success":
            found[url] = counts._replace(succeeded=capped_sum(counts.succeeded, value))
    return found
