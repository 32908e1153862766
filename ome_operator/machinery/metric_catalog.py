"""The catalog of the operator's metrics: the name, type, labels and meaning of each metric. docs/metrics.md is generated
from the catalog (`machinery/metric_page.py`).

All names begin with `ome_`. Units are seconds, bytes and plain numbers; counters end in `_total`. Some gauges are computed
at a scrape, and have the value at that time.
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
    """Name of the metric in queries. The name of a counter includes `_total`."""
    kind: str
    text: str
    """Meaning of the metric. It is the HELP text of the scraped page, so it contains no markup."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram."""


FAMILIES: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "The process": (
            Family("ome_leader", GAUGE, "1 while this process is the leader"),
            Family("ome_passes_total", COUNTER, "Reconciliations by result: ok or error", ("kind", "result")),
            Family("ome_pass_seconds", HISTOGRAM, "Seconds that a reconciliation took", ("kind",), _PASS),
            Family("ome_queue_depth", GAUGE, (
                "Queued objects by state: they wait for their reconciliation (waiting), or are being reconciled (busy)"
            ), ("state",)),
            Family("ome_queue_oldest_seconds", GAUGE, "Seconds for which the oldest queued object has been due"),
            Family(
                "ome_loop_lag_seconds", HISTOGRAM, (
                    "Seconds that the event loop took to respond to a probe from another thread"
                ),
                buckets=(0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0),
            ),
            Family(
                "ome_loop_stall_seconds", HISTOGRAM, (
                    "Seconds for which the event loop was blocked; only times above 0.1 s are included"
                ),
                buckets=(0.25, 1.0, 5.0, 15.0, 60.0),
            ),
        ),
        "The API server and the cluster": (
            Family(
                "ome_api_requests_total", COUNTER, "Requests to the API server by status code; 0: no response",
                ("verb", "kind", "code")
            ),
            Family("ome_api_request_seconds", HISTOGRAM, "Seconds that a request to the API server took", ("verb",), _PASS),
            Family("ome_watch_events_total", COUNTER, "Watch events that were received", ("kind",)),
            Family(
                "ome_watch_event_age_seconds", GAUGE,
                (
                    "Seconds since the last event or bookmark of a watch; normally at most a minute, and longer for "
                    "kinds that rarely change"
                ),
                ("kind",),
            ),
            Family("ome_watch_unread_total", COUNTER, "Objects and events that could not be parsed", ("kind",)),
            Family(
                "ome_namespace_watched", GAUGE,
                (
                    "1 while a namespace of watchNamespaces is watched, 0 while it does not exist or grants the operator "
                    "no permissions"
                ),
                ("namespace",),
            ),
            Family(
                "ome_rivals", GAUGE, "1 for each namespace with the Lease of another operator of the same class",
                ("namespace",),
            ),
            Family(
                "ome_admission_policies", GAUGE,
                (
                    "Admission policies of the chart by state: they apply to this operator (binds), are missing "
                    "(absent), or could not be tested (unknown)"
                ), ("state",),
            ),
            Family("ome_router_strangers_total", COUNTER, "Workers in a router's list that were not pods of its service"),
            Family(
                "ome_routers", GAUGE,
                (
                    "Routers by the state of their registry's summary: it is fresh (fresh), the version of the registry "
                    "has no summary (old), or the router does not answer (silent)"
                ), ("state",),
            ),
        ),
        "Services": (
            Family(
                "ome_services", GAUGE, "InferenceServices by status and reason of their condition Ready", ("ready", "reason")
            ),
            Family("ome_braked_services", GAUGE, "InferenceServices that are frozen or only observed", ("brake",)),
            Family(
                "ome_demand_services", GAUGE, "InferenceServices that are scaled with their demand, by the reason of their "
                "condition FollowsDemand", ("reason",),
            ),
            Family(
                "ome_demand_surplus_services", GAUGE, "InferenceServices in the mode Apply that keep more groups than their "
                "demand needs, by the reason in status.scaling.hold", ("hold",),
            ),
            Family(
                "ome_moving_services", GAUGE, "InferenceServices with groups or routers that have to leave their nodes, by "
                "the reason of their condition Moved", ("reason",),
            ),
            Family(
                "ome_transfers_failing_services", GAUGE, "InferenceServices in which a prefill group cannot transfer KV "
                "caches to a decode group",
            ),
            Family(
                "ome_nodes_avoided", GAUGE, "Nodes that all services avoid (everybody), or that only the services of some "
                "namespaces avoid (namespace)", ("by",),
            ),
            Family("ome_node_failures", GAUGE, "Failures of groups and faults of nodes that the operator remembers"),
            Family("ome_advised_services", GAUGE, "InferenceServices with the condition Advice", ("reason",)),
            Family("ome_groups", GAUGE, "Groups by role and phase", ("role", "phase")),
            Family(
                "ome_group_recycles_total", COUNTER,
                "Recycled groups by reason of the failure and node of the leader; the series of deleted nodes are removed",
                ("reason", "node"),
            ),
            Family(
                "ome_service_start_seconds", HISTOGRAM,
                "Seconds from the creation of a service until it was first Ready with all of its groups",
                buckets=_START,
            ),
            Family(
                "ome_service_start_part_seconds", HISTOGRAM, "Seconds of the consecutive parts of the start of a service",
                ("part",),
                _START,
            ),
            Family(
                "ome_group_start_seconds", HISTOGRAM,
                "Seconds from the creation of the first pod of a group, or a restart, until its leader was ready",
                buckets=_START,
            ),
            Family(
                "ome_group_start_part_seconds", HISTOGRAM,
                "Seconds of each known part of the start of a group, for its slowest rank (docs/telemetry.md)",
                ("part",),
                _START,
            ),
        ),
        "Rollouts, waves and placement": (
            Family("ome_rollouts", GAUGE, "Services with an unfinished rollout by current step", ("step",)),
            Family("ome_rollout_oldest_seconds", GAUGE, (
                "Seconds for which the oldest unfinished rollout has been running"
            ), ("step",)),
            Family(
                "ome_shared_edits", GAUGE,
                "Edits of shared objects that are being rolled out; stopped: a service failed with the edit",
                ("state",),
            ),
            Family("ome_wave_services", GAUGE, "Services that edits of shared objects change, by progress", ("state",)),
            Family(
                "ome_gangs_waiting", GAUGE, "Groups that are not created because they wait for nodes, by reason",
                ("role", "reason"),
            ),
            Family(
                "ome_gang_oldest_seconds", GAUGE, "Seconds for which the service that waits longest for nodes has waited"
            ),
        ),
        "GPUs": (
            Family("ome_gpus_allocatable", GAUGE, "Allocatable GPUs of ready nodes"),
            Family("ome_gpus_wanted", GAUGE, "GPUs of all desired groups of services"),
            Family("ome_gpus_held", GAUGE, "GPUs of service pods that are bound to nodes"),
            Family("ome_gpus_idle", GAUGE, "GPUs of ready nodes that no service pod holds; other pods may hold them"),
            Family("ome_gpus_wasted", GAUGE, "GPUs held by groups that failed and are not ready again"),
        ),
        "Nodes and weights": (
            Family("ome_nodes", GAUGE, "Nodes by state: ready, or unready (not ready or not schedulable)", ("state",)),
            Family("ome_weights", GAUGE, "Models on nodes by the state that agents report", ("state",)),
            Family("ome_node_weights_bytes", GAUGE, "Bytes of models that are stored on a node", ("node",)),
            Family("ome_node_weights_missing_bytes", GAUGE, "Bytes that a node still has to download", ("node",)),
            Family("ome_node_weights_bytes_per_second", GAUGE, "Current download speed of a node", ("node",)),
        ),
        "Individual services": (
            Family(
                "ome_service_ready", GAUGE, "1 if a service is Ready; with empty labels, the number of Ready services",
                _OWN,
            ),
            Family(
                "ome_service_complete", GAUGE,
                "1 if a service is Ready and all of its desired groups are ready; with empty labels, the number of these "
                "services", _OWN,
            ),
            Family("ome_service_groups", GAUGE, "Groups of a service by role and phase", (*_OWN, "role", "phase")),
            Family("ome_service_gpus_wanted", GAUGE, "GPUs of all desired groups of a service", _OWN),
            Family("ome_service_gpus_held", GAUGE, "GPUs that a service holds", _OWN),
            Family("ome_service_gpus_wasted", GAUGE, "GPUs that the failed groups of a service hold", _OWN),
            Family("ome_services_summed", GAUGE, (
                "Services that have no series of their own; their values are in the series with empty labels"
            )),
        ),
    }
)  # fmt: skip
BY_NAME: Mapping[str, Family] = {family.name: family for families in FAMILIES.values() for family in families}
