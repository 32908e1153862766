"""Which slices a Gateway sends requests to, and what of a slice waits until it sends them elsewhere (decisions 27).

The service's own Service selects the ready routers of every slice, so nobody has to switch it. An HTTPRoute names a Service
for each slice, with a weight. It is changed before the router of a slice goes, and Gateways get the time to read it.

Everything is derived from what is stored. The API server says where the route leads, and since when.
"""

from collections.abc import Iterable, Mapping
from math import gcd
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed import route
from ome_operator.core.observed.snapshot import Snapshot
from ome_operator.core.plan import Delete
from ome_operator.core.render.router import ENDPOINT_LAG
from ome_operator.core.rollout.planner import ReplicaCounts, capacity
from ome_operator.core.rollout.step import RolloutStep

NOTICE = float(ENDPOINT_LAG)
"""Seconds between a route that leads away from a slice and the end of the slice's router: Gateways may lag so long."""
MOST = 1_000_000
"""The largest weight that the Gateway API takes."""


class TrafficSplit(NamedTuple):
    """Where the route of a service is to lead."""

    weights: Mapping[str, int]
    """Name of a Service -> its weight. A slice that is not to get requests has 0: a Gateway that has it at hand loses no
    answer that is under way, and has it ready for later."""
    serving: frozenset[str]
    """Names of the routers of slices that can answer now."""


class Allowed(NamedTuple):
    """What may be deleted in this pass."""

    delete: tuple[Delete, ...]
    again: float | None = None
    """Seconds until more may be."""


def weigh(snapshot: Snapshot, step: RolloutStep, counts: ReplicaCounts, routed: bool) -> TrafficSplit:
    """The weights of the slices: their capacities as the rollout counts them.

    A slice that goes gets requests only where no slice that stays can answer. While no slice can, those that stay are alike.
    The service's own Service takes over where a slice that should get requests has no Service yet, or cannot have any, and
    where no router is in front (`routed`).
    """
    own = snapshot.service.name
    capacities = {revision: _capacity(snapshot, counts, revision) for revision in snapshot.slices}
    serving = frozenset(names.router(own, revision) for revision, can in capacities.items() if can)
    there = {name for revision in snapshot.slices if (name := _backend(snapshot, revision))}
    leads = {names.router(own, name): weight for name, weight in _chosen(snapshot, step, capacities).items()}
    if not routed or not leads or leads.keys() - there:
        return TrafficSplit({own: 1, **dict.fromkeys(sorted(there), 0)}, serving)
    least = gcd(*leads.values())
    weights = {name: _fitting(leads.get(name, 0) // least, max(leads.values()) // least) for name in sorted(there)}
    return TrafficSplit(weights, serving)


def allowed(snapshot: Snapshot, wanted: TrafficSplit | None, deletes: Iterable[Delete]) -> Allowed:
    """The deletions that break no request that comes through the route; `wanted` is None where no route is wanted.

    The router of a slice that can answer goes when the route has led elsewhere for some time, or when it is to lead there to
    the end because no other slice can answer. The Service of a slice goes when the route does not name it any more.
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
        needed = delete.kind == "Deployment" and delete.name in wanted.serving and not wanted.weights.get(delete.name)
        if needed and (named.get(delete.name) or left > 0):
            waits = True
            continue
        out.append(delete)
    return Allowed(tuple(out), left if waits and left > 0 else None)


def _chosen(snapshot: Snapshot, step: RolloutStep, capacities: Mapping[str, int]) -> dict[str, int]:
    """Slice -> weight, for the slices that are to get requests."""
    stay = [name for name in snapshot.slices if name in step.keep and _deployed(snapshot, name)]
    go = [name for name in snapshot.slices if name not in step.keep]
    for group in (stay, go):
        if found := {name: capacities[name] for name in group if capacities[name]}:
            return found
    return dict.fromkeys(stay, 1)


def _capacity(snapshot: Snapshot, counts: ReplicaCounts, revision: str) -> int:
    """What a slice can answer: nothing without a ready router."""
    routers = (pod for pod in snapshot.slices[revision].pods if pod.component == keys.ROUTER)
    if not any(pod.ready and not pod.deleting for pod in routers):
        return 0
    return capacity(counts.seen.get(revision, {}), counts.wanted.get(revision, {}))


def _deployed(snapshot: Snapshot, revision: str) -> bool:
    """Whether a slice has a router that stays."""
    return any(child.kind == "Deployment" and not child.deleting for child in snapshot.slices[revision].workloads)


def _backend(snapshot: Snapshot, revision: str) -> str:
    """The Service of a slice's routers, as long as any of them is left; "" where it is not stored, or not ours."""
    found = snapshot.controlled("Service", names.router(snapshot.service.name, revision))
    here = snapshot.slices[revision]
    left = _deployed(snapshot, revision) or any(pod.component == keys.ROUTER for pod in here.pods)
    return found.name if found is not None and not found.deleting and left else ""


def _fitting(weight: int, largest: int) -> int:
    """A weight within what the Gateway API takes; what was above zero stays above zero."""
    return weight if largest <= MOST else -(-weight * MOST // largest)
