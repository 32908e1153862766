"""Decide which slices a Gateway sends requests to, and which deletions wait until it sends them elsewhere (decisions 27).

The service's own Service selects the ready routers of every slice, so it never has to be switched. An HTTPRoute names a
Service with a weight for each slice. It is changed before the router of a slice is removed, and Gateways get time to read
it.

Everything is derived from stored state. The API server knows where the route leads, and since when.
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
"""Seconds between a route that leads away from a slice and the removal of the slice's router: Gateways may lag that long."""
SETTLED = 5.0
"""Seconds that a router has to be ready before requests are moved to it: Kubernetes writes the endpoints of a Service
after its pods are ready, on a busy control plane seconds later."""
MOST = 1_000_000
"""The largest weight that the Gateway API accepts."""


class TrafficSplit(NamedTuple):
    """The desired destinations of the route of a service."""

    weights: Mapping[str, int]
    """Name of a Service -> its weight. A slice that is to get no requests has 0, so that a Gateway keeps it configured
    and loses no response that is under way."""
    serving: frozenset[str]
    """Names of the routers of slices that can answer now."""
    again: float | None = None
    """Seconds until a kept slice has settled and gets its share."""


class Allowed(NamedTuple):
    """The deletions that may be made in this pass."""

    delete: tuple[Delete, ...]
    again: float | None = None
    """Seconds until more deletions may be made; None if none are waiting."""


def weigh(snapshot: Snapshot, step: RolloutStep, counts: ReplicaCounts, routed: bool) -> TrafficSplit:
    """Return the weights of the slices: their capacities as the rollout counts them.

    A slice that is being removed gets requests only if no kept slice can answer and has settled. A slice that has not
    settled gets none if another has. If no kept router can answer, all that still answer share the requests; if none does,
    the kept slices share them equally. The service's own Service takes over if a slice that should get requests has no
    Service yet, or cannot have one, and if there is no router in front (`routed` is False).
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


def allowed(snapshot: Snapshot, wanted: TrafficSplit | None, deletes: Iterable[Delete]) -> Allowed:
    """Return the deletions that break no request through the route; `wanted` is None if no route is wanted.

    The router of a slice that can answer is removed when the route has led elsewhere for some time, or if it is to lead
    there to the end because no other slice can answer or will once it has settled. The Service of a slice is removed when
    the route no longer names it.
    """
    stored = snapshot.controlled("HTTPRoute", snapshot.service.name)
    if wanted is None or stored is None or stored.deleting or stored.content is None:
        return Allowed(tuple(deletes))
    named: Mapping[str, int] = stored.content["weights"]
    left = NOTICE - route.seconds_since(stored.content["changed"], snapshot.now)
    out, waits = [], False
    for delete in deletes:
        if delete.kind == "Service" and delete.name in named:
            continue
        can = delete.kind == "Deployment" and delete.name in wanted.serving
        leads = wanted.weights.get(delete.name)
        if can and (wanted.again is not None if leads else named.get(delete.name) or left > 0):
            waits = True
            continue
        out.append(delete)
    return Allowed(tuple(out), left if waits and left > 0 else None)


def _chosen(
    snapshot: Snapshot, step: RolloutStep, capacities: Mapping[str, int], settles: Collection[str]
) -> dict[str, int]:
    """Return slice -> weight for the slices that are to get requests."""
    stand = [name for name in snapshot.slices if _deployed(snapshot, name)]
    stay = [name for name in stand if name in step.keep]
    settled = [name for name in stay if name not in settles]
    go = [name for name in stand if name not in step.keep]
    for group in (settled, go, stay, snapshot.slices):
        if found := {name: capacities[name] for name in group if capacities[name]}:
            return found
    return dict.fromkeys(stay, 1)


def _settles(snapshot: Snapshot, revision: str) -> float:
    """Return the seconds until a router of a slice has been ready long enough; 0 if one has, or if the route leads there.

    The kubelet reports since when, by the clock of its node. A time in the future is not waited for.
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
    """Return what a slice can answer: nothing without a ready router."""
    if not _ready(_routers(snapshot, revision)):
        return 0
    return capacity(counts.seen.get(revision, {}), counts.wanted.get(revision, {}))


def _deployed(snapshot: Snapshot, revision: str) -> bool:
    """Return whether a slice has a router that is not being removed."""
    return any(child.kind == "Deployment" and not child.deleting for child in snapshot.slices[revision].workloads)


def _backend(snapshot: Snapshot, revision: str) -> str:
    """Return the Service of a slice's routers while any of them is left; "" if it is not stored, or not ours."""
    found = snapshot.controlled("Service", names.router(snapshot.service.name, revision))
    left = _deployed(snapshot, revision) or _routers(snapshot, revision)
    return found.name if found is not None and not found.deleting and left else ""


def _fitting(weight: int, largest: int) -> int:
    """Scale a weight to what the Gateway API accepts; a weight above zero stays above zero."""
    return weight if largest <= MOST else -(-weight * MOST // largest)
