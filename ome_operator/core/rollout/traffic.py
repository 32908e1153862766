"""Decide to which revisions a Gateway sends requests, and which objects are deleted only after the Gateway has stopped
sending requests to them (decisions 27).

The Service of the InferenceService selects the ready routers of every revision, so it never has to be switched. An HTTPRoute
names a Service with a weight for each revision. The HTTPRoute is changed before the router of a revision is removed, and
Gateways get time to read the change.

Everything is derived from stored state: the stored HTTPRoute contains the destinations of requests, and since when they
apply.
"""

from collections.abc import Collection, Iterable, Mapping
from math import gcd
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed import route
from ome_operator.core.observed.objects import Pod
from ome_operator.core.reconcile.plan import Delete
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.router import ENDPOINT_LAG
from ome_operator.core.rollout.planner import ReplicaCounts, capacity
from ome_operator.core.rollout.step import RolloutStep

NOTICE = float(ENDPOINT_LAG)
"""Seconds between the change of an HTTPRoute away from a revision and the removal of the router of the revision. Gateways
may apply the change with such a delay."""
SETTLED = 5.0
"""Seconds for which a router has to be ready before requests are moved to it. Kubernetes adds a ready pod to the endpoints
of its Service with a delay, which is several seconds on a busy control plane."""
MOST = 1_000_000
"""The largest weight that the Gateway API accepts."""


class TrafficSplit(NamedTuple):
    """The desired destinations of the HTTPRoute of a service, and when they change."""

    weights: Mapping[str, int]
    """The weight of each Service, by name. The Service of a revision that should get no requests has the weight 0, so that a
    Gateway keeps it configured and loses no response that is under way."""
    serving: frozenset[str]
    """Names of the routers of revisions that can answer requests now."""
    again: float | None = None
    """Seconds until a waiting revision gets its share of the requests, because its router has then been ready for
    `SETTLED` seconds. If several revisions wait, the smallest value is used; None if no revision waits."""


class AllowedDeletions(NamedTuple):
    """The deletions that may be made in this pass."""

    delete: tuple[Delete, ...]
    again: float | None = None
    """Seconds until more deletions may be made; None if none are waiting."""


def weigh_revisions(snapshot: Snapshot, step: RolloutStep, counts: ReplicaCounts, routed: bool) -> TrafficSplit:
    """Return the weights of the revisions: their capacities, as the rollout counts them.

    A revision has settled if one of its routers has been ready for `SETTLED` seconds. A revision that is being removed gets
    requests only if no kept revision can answer requests and has settled. A kept revision that has not settled gets requests
    only if no settled revision and no revision that is being removed can answer. If only revisions whose routers are being
    deleted can answer, these revisions get the requests. If no revision can answer, the kept revisions share the requests
    equally.

    The Service of the InferenceService gets all requests if a revision that should get requests has no Service, or if there
    is no router in front (`routed` is false).
    """
    own = snapshot.service.name
    capacities = {revision: _capacity(snapshot, counts, revision) for revision in snapshot.slices}
    serving = frozenset(names.router(own, revision) for revision, can in capacities.items() if can)
    there = {name for revision in snapshot.slices if (name := _backend(snapshot, revision))}
    settles = {name: left for name in step.keep if capacities.get(name) and (left := _settles(snapshot, name))}
    again = min(settles.values(), default=None)
    leads = {names.router(own, name): weight for name, weight in _chosen(snapshot, step, capacities, settles).items()}
    if not routed or not leads or leads.keys() - there:
        return TrafficSplit({own: 1, **dict.fromkeys(sorted(there), 0)}, serving, again)
    least = gcd(*leads.values())
    weights = {name: _fitting(leads.get(name, 0) // least, max(leads.values()) // least) for name in sorted(there)}
    return TrafficSplit(weights, serving, again)


def allowed_deletions(snapshot: Snapshot, traffic_split: TrafficSplit | None, deletes: Iterable[Delete]) -> AllowedDeletions:
    """Return the members of `deletes` that can be carried out without breaking a request that comes through the HTTPRoute.
    `traffic_split` is the desired traffic split; None if no HTTPRoute is wanted.

    The router of a revision that can answer requests is removed when the HTTPRoute has sent requests elsewhere for `NOTICE`
    seconds. It is also removed, although the HTTPRoute still sends requests to it, if no other revision can answer requests
    now or within `SETTLED` seconds. The Service of a revision is removed when the HTTPRoute no longer names it.
    """
    stored = snapshot.controlled("HTTPRoute", snapshot.service.name)
    if traffic_split is None or stored is None or stored.deleting or stored.content is None:
        return AllowedDeletions(tuple(deletes))
    named: Mapping[str, int] = stored.content["weights"]
    left = NOTICE - route.seconds_since(stored.content["changed"], snapshot.now)
    out, waits = [], False
    for delete in deletes:
        if delete.kind == "Service" and delete.name in named:
            continue
        can = delete.kind == "Deployment" and delete.name in traffic_split.serving
        leads = traffic_split.weights.get(delete.name)
        if can and (traffic_split.again is not None if leads else named.get(delete.name) or left > 0):
            waits = True
            continue
        out.append(delete)
    return AllowedDeletions(tuple(out), left if waits and left > 0 else None)


def _chosen(
    snapshot: Snapshot, step: RolloutStep, capacities: Mapping[str, int], settles: Collection[str]
) -> dict[str, int]:
    """Return the weight of each revision that should get requests. `capacities` are the capacities of the revisions, and
    `settles` are the kept revisions that have not settled yet, as `weigh_revisions` defines this.
    """
    stand = [name for name in snapshot.slices if _deployed(snapshot, name)]
    stay = [name for name in stand if name in step.keep]
    settled = [name for name in stay if name not in settles]
    go = [name for name in stand if name not in step.keep]
    for group in (settled, go, stay, snapshot.slices):
        if found := {name: capacities[name] for name in group if capacities[name]}:
            return found
    return dict.fromkeys(stay, 1)


def _settles(snapshot: Snapshot, revision: str) -> float:
    """Return the seconds until a router of a revision has been ready for `SETTLED` seconds; 0 if one has been, or if the
    HTTPRoute already sends requests to the revision.

    The kubelet reports when the pod became ready, by the clock of its node. A time far in the future is ignored.
    """
    stored = snapshot.controlled("HTTPRoute", snapshot.service.name)
    weights = stored.content["weights"] if stored is not None and stored.content else {}
    if weights.get(names.router(snapshot.service.name, revision)):
        return 0.0
    ages = [route.seconds_since(pod.times.ready, snapshot.now) for pod in _ready(_routers(snapshot, revision))]
    return min((SETTLED - age if abs(age) < SETTLED else 0.0 for age in ages), default=0.0)


def _routers(snapshot: Snapshot, revision: str) -> list[Pod]:
    return [pod for pod in snapshot.slices[revision].pods if pod.component == keys.ROUTER]


def _ready(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.ready and not pod.deleting]


def _capacity(snapshot: Snapshot, counts: ReplicaCounts, revision: str) -> int:
    """Return the capacity of a revision for requests; 0 if no router of the revision is ready."""
    if not _ready(_routers(snapshot, revision)):
        return 0
    return capacity(counts.observed_counts.get(revision, {}), counts.wanted.get(revision, {}))


def _deployed(snapshot: Snapshot, revision: str) -> bool:
    """Return whether a revision has a router that is not being removed."""
    return any(child.kind == "Deployment" and not child.deleting for child in snapshot.slices[revision].workloads)


def _backend(snapshot: Snapshot, revision: str) -> str:
    """Return the name of the Service of a revision's routers while a router exists. Return "" if no router exists, or if the
    Service does not exist or belongs to another owner.
    """
    found = snapshot.controlled("Service", names.router(snapshot.service.name, revision))
    left = _deployed(snapshot, revision) or _routers(snapshot, revision)
    return found.name if found is not None and not found.deleting and left else ""


def _fitting(weight: int, largest: int) -> int:
    """Scale a weight to the range that the Gateway API accepts, where `largest` is the largest weight. A weight above
    zero stays above zero.
    """
    return weight if largest <= MOST else -(-weight * MOST // largest)
