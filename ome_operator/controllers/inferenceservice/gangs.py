"""What all services want of the nodes, and what each of them is told about its turn (docs/placement.md).

Kept between passes; after a restart the first pass over each service says it again, from what its status has.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.core.observed.objects import NO_TURN, Pod, Ref, Turn
from ome_operator.core.placement.demand import demand
from ome_operator.core.placement.turns import Claim, left, turns
from ome_operator.core.render.statefulsets import Stored, stored


class Gangs:
    """Claims of services; `wake` is called with those that may have a turn since another claim changed."""

    def __init__(self, cluster: ClusterCache, wake: Callable[[Ref], None]) -> None:
        self._cluster, self._wake = cluster, wake
        self._claims: dict[Ref, Claim] = {}
        self._granted: dict[Ref, tuple[str, bool]] = {}
        """Since when who got a turn had waited, and what it was told: it may be asked for again, until its status tells."""

    def turn(self, ref: Ref, status: Mapping[str, Any], now: datetime) -> Turn:
        """What a service with this status is told."""
        rivals = tuple(claim for other, claim in self._claims.items() if other != ref)
        mine, waited = self._claims.get(ref), _waited(status)
        since, sure = self._granted.get(ref, ("", False))
        if waited and since == waited:
            return Turn(sure, rivals)
        if mine is None or mine.trying or not waited:
            return Turn(rivals=rivals) if rivals else NO_TURN
        nodes = self._cluster.deps().nodes
        found = turns(self._claims.values(), nodes, left(nodes, self._held()), now)
        if mine.key not in found.granted:
            return Turn(None, rivals, found.waits.get(mine.key, ""))
        self._granted[ref] = waited, found.granted[mine.key]
        return Turn(found.granted[mine.key], rivals)

    def tell(self, ref: Ref, claim: Claim | None) -> None:
        """What a service wants now. Another claim, or none any more, may be the turn of those that wait."""
        before = self._claims.pop(ref, None)
        if claim is not None:
            self._claims[ref] = claim
        else:
            self._granted.pop(ref, None)
        if (before and before._replace(rested=True)) != (claim and claim._replace(rested=True)):
            self.freed(ref)

    def freed(self, but: Ref | None = None) -> None:
        """Something left a node, or wants less: those that wait look again."""
        for ref, claim in self._claims.items():
            if ref != but and not claim.trying:
                self._wake(ref)

    def _held(self) -> Mapping[str, Mapping[str, int]]:
        """Node -> what pods of ours hold there. What strangers hold is not known."""
        held: dict[str, defaultdict[str, int]] = {}
        asked: dict[tuple[str, str, str], Mapping[str, Stored]] = {}
        for pod in self._cluster.pods:
            if pod.node and not pod.over and pod.component != keys.ROUTER:
                for resource, amount in self._requests(pod, asked):
                    held.setdefault(pod.node, defaultdict(int))[resource] += amount
        return held

    def _requests(self, pod: Pod, asked: dict[tuple[str, str, str], Mapping[str, Stored]]) -> tuple[tuple[str, int], ...]:
        key = pod.namespace, pod.service, pod.revision
        if key not in asked:
            kept = self._cluster.children["ControllerRevision"].group(key[:2])
            data = next((child.content for child in kept if child.labels.get(keys.REVISION) == pod.revision), None) or {}
            asked[key] = stored(data.get("data") or {})
        role = asked[key].get(pod.component)
        workload = role and (role.leader if pod.rank == 0 else role.worker)
        return demand(workload["spec"]["template"], True).requests if workload else ()


def _waited(status: Mapping[str, Any]) -> str:
    """Since when a service waits for its turn, by its status; "" where it does not."""
    stored = status.get("placement") or {}
    return "" if stored.get("trying") else str(stored.get("since") or "")
