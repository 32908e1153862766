"""Which slices a Gateway sends requests to, and what of a slice waits until it sends them elsewhere (decisions 27).

The service's own Service selects the ready routers of every slice, so nobody has to switch it. An HTTPRoute names a Service
for each slice, with a weight. It is changed before the router of a slice goes, and Gateways get the time to read it.

Everything is derived from what is stored. The API server says where the route leads, and since when.
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
"""Seconds between a route that leads away from a slice and the end of the slice's router: Gateways may lag so long."""
SETTLED = 5.0
"""Seconds for which a router is ready before requests are taken from another slice for it: Kubernetes writes the endpoints
of a Service after its pods are ready, on a busy control plane seconds after.
"""
MOST = 1_000_000
"""The largest weight that the Gateway API takes."""


class TrafficSplit(NamedTuple):
    """Where the route of a service is to lead."""

    weights: Mapping[str, int]
    """Name of a Service -> its weight. A slice that is not to get requests has 0: a Gateway that has it at hand loses no
    answer that is under way, and has it ready for later."""
    serving: frozenset[str]
    """Names of the routers of slices that can answer now."""
    again: float | None = None
    """Seconds until a slice that stays has settled, and gets its share."""


class Allowed(NamedTuple):
    """What may be deleted in this pass."""

    delete: tuple[Delete, ...]
    again: float | None = None
    """Seconds until more may be."""


def weigh(snapshot: Snapshot, step: RolloutStep, counts: ReplicaCounts, routed: bool) -> TrafficSplit:
    """The weights of the slices: their capacities as the rollout counts them.

    A slice that goes gets requests only where no slice that stays can answer and has settled; what has not settled gets none
    where anything has. Where no router that stands can answer, all that still answer share; while none does, those that stay
    are alike.
    The service's own Service takes over where a slice that should get requests has no Service yet, or cannot have any, and
    where no router is in front (`routed`).
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
    """The deletions that break no request that comes through the route; `wanted` is None where no route is wanted.

    The router of a slice that can answer goes when the route has led elsewhere for some time, or when it is to lead there to
    the end because no other slice can answer, nor will as soon as it has settled. The Service of a slice goes when the route
    does not name it any more.
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
    """Slice -> weight, for the slices that are to get requests."""
    stand = [name for name in snapshot.slices if _deployed(snapshot, name)]
    stay = [name for name in stand if name in step.keep]
    settled = [name for name in stay if name not in settles]
    go = [name for name in stand if name not in step.keep]
    for group in (settled, go, stay, snapshot.slices):  # the last: the router of a slice was taken away, and still answers
        if found := {name: capacities[name] for name in group if capacities[name]}:
            return found
    return dict.fromkeys(stay, 1)


def _settles(snapshot: Snapshot, revision: str) -> float:
    """Seconds until a router of a slice has been ready for long enough; zero where one has, or where the route leads there.

    The kubelet says since when, by the clock of its node. A moment that is still to come is no reason to wait for it.
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
    """What a slice can answer: nothing without a ready router."""
    if not _ready(_routers(snapshot, revision)):
        return 0
    return capacity(counts.seen.get(revision, {}), counts.wanted.get(revision, {}))


def _deployed(snapshot: Snapshot, revision: str) -> bool:
    """Whether a slice has a router that stays."""
    return any(child.kind == "Deployment" and not child.deleting for child in snapshot.slices[revision].workloads)


def _backend(snapshot: Snapshot, revision: str) -> str:
    """The Service of a slice's routers, as long as any of them is left; "" where it is not stored, or not ours."""
    found = snapshot.controlled("Service", names.router(snapshot.service.name, revision))
    left = _deployed(snapshot, revision) or _routers(snapshot, revision)
    return found.name if found is not None and not found.deleting and left else ""


def _fitting(weight: int, largest: int) -> int:
    """A weight within what the Gateway API takes; what was above zero stays above zero."""
    return weight if largest <= MOST else -(-weight * MOST // largest)
