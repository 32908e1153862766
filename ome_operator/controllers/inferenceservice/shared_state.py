"""State that the reconciliations of all services share, and that events change between reconciliations.

The state is created before the event handler, which calls it, and before the reconciler, which uses the state and the event
handler.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.resources import Resource
from ome_operator.cache.scope import Scope
from ome_operator.controllers.inferenceservice.image_pulls import PullCounts
from ome_operator.controllers.inferenceservice.memory import Memories
from ome_operator.controllers.placement.gangs import Gangs
from ome_operator.controllers.pod_dry_runs import PodDryRuns
from ome_operator.core.demand.task import DemandTask
from ome_operator.core.observed.arrivals import NO_ARRIVALS, Arrivals
from ome_operator.core.observed.objects import Manifest, Pod, Ref
from ome_operator.core.observed.silence import Silence
from ome_operator.core.observed.telemetry import DrainReport, ForeignWorkers, LeaderStart
from ome_operator.core.observed.transfers import Transfers
from ome_operator.kube.client import Client
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.settings import Settings


class Reports(NamedTuple):
    """Functions that return reports of the registries of a service's routers, decisions about the service's size, and the
    nodes that the service avoids. Most of the functions take the pods of the service, and leave out reports about other
    pods.
    """

    strangers: Callable[[Iterable[Pod]], Mapping[str, ForeignWorkers]] = lambda _: {}
    """Returns the workers in the worker lists of routers that do not belong to the service, by the UID of the router's
    pod."""
    drains: Callable[[Iterable[Pod]], Mapping[str, tuple[DrainReport, ...]]] = lambda _: {}
    """Returns the numbers of requests that remain in leaders that are being drained, by the UID of the leader's pod."""
    traffic: Callable[[Resource], Manifest | None] = lambda _: None
    """Returns the value of the service's `status.traffic`; None if nothing is known."""
    starts: Callable[[Iterable[Pod]], Mapping[str, LeaderStart]] = lambda _: {}
    """Returns the times of the stages of recent starts of leaders, by the UID of the leader's pod."""
    silences: Callable[[Iterable[Pod]], Mapping[str, Silence]] = lambda _: {}
    """Returns the times since which silent leaders have not responded, by the UID of the leader's pod."""
    transfers: Callable[[Iterable[Pod]], Transfers] = lambda _: {}
    """Returns the pairs of leaders whose transfers fail, by the UID of the pod of the router that reports them."""
    arrivals: Callable[[Iterable[Pod]], Arrivals] = lambda _: NO_ARRIVALS
    """Returns two times: of the last request that no engine could serve, and of the last generated token."""
    scaling: Callable[[Resource], Manifest | None] = lambda _: None
    """Returns the value of the service's `status.scaling`; None if nothing was decided."""
    avoided: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Returns the nodes on which no new groups of a namespace's services are placed, with the reason."""
    goes: Callable[[Resource], bool] = lambda _: False
    """Returns whether it was decided within the last `STALE` seconds that the service should have no groups."""

    def observed_fields(self, pods: Iterable[Pod]) -> dict[str, Any]:
        """Return the reports about these pods, as fields of `Observed`."""
        names = ("strangers", "drains", "silences", "transfers", "starts", "arrivals")
        return {name: getattr(self, name)(pods) for name in names}


NO_REPORTS = Reports()


class SharedState(NamedTuple):
    """The memory of each service, the claims of all services to nodes, the reports of routers' registries, whether pods may
    be created in dry runs, and how many images are pulled.
    """

    memories: Memories
    gangs: Gangs
    reports: Reports
    pods: PodDryRuns
    pulls: PullCounts
    report_demand: Callable[[Ref, DemandTask | None], None] = lambda *_: None
    """Called after each pass over a service, with the service's description for the autoscaler of the class Demand; None if
    the service does not use this autoscaler."""

    @classmethod
    def empty(
        cls,
        cache: ClusterCache,
        client: Client,
        queue: WorkQueue[Ref],
        settings: Settings,
        reports: Reports = NO_REPORTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> "SharedState":
        """Return the state before the first reconciliation. Services that are later admitted to a rollout or to nodes are
        added to `queue`.
        """
        wake = partial(queue.add, after=settings.child_delay, spaced=settings.child_spacing)
        foreign = ForeignPods(client, clock, partial(cache.occupies_node, namespaces=settings.watch_namespaces))
        scope = Scope(settings.watch_namespaces, settings.policy.sees_cluster)
        pods = PodDryRuns(client, scope, settings.own_name, clock)
        return cls(Memories(), Gangs(cache, foreign, wake), reports, pods, PullCounts())
