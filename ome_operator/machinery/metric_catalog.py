"""Every metric of the operator: name, kind, labels, meaning. docs/metrics.md is made of this (`machinery/page.py`).

All begin with `ome_`. Seconds, bytes and plain numbers are the only units, counters end in `_total`, and what is asked for
at a scrape is what is true then.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_PASS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_START = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)
_OWN = ("namespace", "service")


class Family(NamedTuple):
    """A metric with all of its series."""

    name: str
    """As a query writes it, so a counter's with `_total`."""
    kind: str
    text: str
    """What it is: HELP of the page that is scraped, so no markup."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""


FAMILIES: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "The process": (
            Family("ome_leader", GAUGE, "1 while this process leads"),
            Family("ome_passes_total", COUNTER, "Passes over objects; result: ok or error", ("kind", "result")),
            Family("ome_pass_seconds", HISTOGRAM, "Seconds of a pass", ("kind",), _PASS),
            Family("ome_queue_depth", GAUGE, "Objects that wait for a pass, or are in a pass (busy)", ("state",)),
            Family("ome_queue_oldest_seconds", GAUGE, "Seconds for which the object that waits longest has been due"),
            Family(
                "ome_loop_lag_seconds", HISTOGRAM, "Seconds until the event loop answers a question of another thread",
                buckets=(0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0),
            ),
            Family(
                "ome_loop_stall_seconds", HISTOGRAM, "Seconds for which the event loop did not answer, where above 0.1 s",
                buckets=(0.25, 1.0, 5.0, 15.0, 60.0),
            ),
        ),
        "The API server and what is around": (
            Family(
                "ome_api_requests_total", COUNTER, "Requests to the API server; code 0: no answer", ("verb", "kind", "code")
            ),
            Family("ome_api_request_seconds", HISTOGRAM, "Seconds of a request to the API server", ("verb",), _PASS),
            Family("ome_watch_events_total", COUNTER, "Events of watches", ("kind",)),
            Family(
                "ome_watch_event_age_seconds", GAUGE,
                "Seconds since the last sign of life of a watch: one each minute, fewer in quiet kinds", ("kind",),
            ),
            Family("ome_watch_unread_total", COUNTER, "Objects and events that nobody could read", ("kind",)),
            Family(
                "ome_namespace_watched", GAUGE,
                "With watchNamespaces: 1 while a namespace is watched, 0 while it is absent or gives no rights",
                ("namespace",),
            ),
            Family(
                "ome_rivals", GAUGE, "1 for each namespace with the Lease of another operator of the same class",
                ("namespace",),
            ),
            Family(
                "ome_admission_policies", GAUGE,
                "Admission policies of the chart that bind this operator, are absent, or could not be tried", ("state",),
            ),
            Family("ome_router_strangers_total", COUNTER, "Workers that somebody else put into routers' lists"),
        ),
        "Services": (
            Family(
                "ome_services", GAUGE, "InferenceServices by their condition Ready and its reason", ("ready", "reason")
            ),
            Family("ome_braked_services", GAUGE, "InferenceServices that are Frozen or Observed", ("brake",)),
            Family("ome_advised_services", GAUGE, "InferenceServices with the condition Advice", ("reason",)),
            Family("ome_groups", GAUGE, "Groups by role and phase", ("role", "phase")),
            Family(
                "ome_group_recycles_total", COUNTER,
                "Groups that were recycled, by the reason of the failure and the leader's node, while that exists",
                ("reason", "node"),
            ),
            Family(
                "ome_service_start_seconds", HISTOGRAM, "Seconds from a service's creation until it was Ready first",
                buckets=_START,
            ),
            Family(
                "ome_service_start_part_seconds", HISTOGRAM, "The parts of that, which follow on each other", ("part",),
                _START,
            ),
        ),
        "Rollouts, waves and places": (
            Family("ome_rollouts", GAUGE, "Services that are not rolled out, by the step that they are in", ("step",)),
            Family("ome_rollout_oldest_seconds", GAUGE, "Age of the oldest of them", ("step",)),
            Family(
                "ome_shared_edits", GAUGE,
                "Edits of shared objects on their way from service to service; stopped: a service failed with it",
                ("state",),
            ),
            Family("ome_wave_services", GAUGE, "Services that such edits concern", ("state",)),
            Family(
                "ome_gangs_waiting", GAUGE, "Groups that are not made because they wait for nodes, and why",
                ("role", "reason"),
            ),
            Family(
                "ome_gang_oldest_seconds", GAUGE, "Seconds for which the service that waits longest for nodes has waited"
            ),
        ),
        "GPUs": (
            Family("ome_gpus_allocatable", GAUGE, "GPUs of nodes that are ready"),
            Family("ome_gpus_wanted", GAUGE, "GPUs that all groups need that services want"),
            Family("ome_gpus_held", GAUGE, "GPUs of pods of services that are on nodes"),
            Family("ome_gpus_idle", GAUGE, "GPUs of ready nodes that no pod of a service holds; others may"),
            Family("ome_gpus_wasted", GAUGE, "GPUs held by groups that failed and do not serve again yet"),
        ),
        "Nodes and weights": (
            Family("ome_nodes", GAUGE, "Nodes: ready, or not ready or not schedulable (unready)", ("state",)),
            Family("ome_weights", GAUGE, "Models on nodes by what agents say of them", ("state",)),
            Family("ome_node_weights_bytes", GAUGE, "Bytes of models that a node has", ("node",)),
            Family("ome_node_weights_missing_bytes", GAUGE, "Bytes that are still to be fetched", ("node",)),
            Family("ome_node_weights_bytes_per_second", GAUGE, "How fast a node fetches now", ("node",)),
        ),
        "Services by themselves": (
            Family(
                "ome_service_ready", GAUGE, "1 where a service is Ready; of those without series of their own, their number",
                _OWN,
            ),
            Family("ome_service_groups", GAUGE, "Groups of a service", (*_OWN, "role", "phase")),
            Family("ome_service_gpus_wanted", GAUGE, "GPUs that a service wants", _OWN),
            Family("ome_service_gpus_held", GAUGE, "GPUs that it holds", _OWN),
            Family("ome_service_gpus_wasted", GAUGE, "GPUs that its failed groups hold", _OWN),
            Family("ome_services_summed", GAUGE, "Services without series of their own: their labels are empty"),
        ),
    }
)  # fmt: skip
BY_NAME: Mapping[str, Family] = {family.name: family for families in FAMILIES.values() for family in families}
