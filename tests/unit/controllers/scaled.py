"""A stand-in for a service with the autoscaler class Demand. Tests set the numbers that its routers report."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.demand import DemandScaler
from ome_operator.core.demand.estimate import PERIOD
from ome_operator.core.demand.stored import to_status
from ome_operator.core.demand.task import APPLY, DemandTask
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.telemetry import LeaderLoad, LeaderReport, RouterReport, WorkRates
from ome_operator.core.placement.fit import Needs
from tests.support.simulator import START
from tests.unit.controllers.makers import cluster
from tests.unit.core.demand.loads import TARGETS, fleet, state

REF = Ref(SERVICE, "ns", "svc")
ROLES = {"prefill": "engine", "decode": "decoder"}


class Follower:
    """A service with a router, whose numbers and task a test sets."""

    def __init__(self, names: Iterable[str] = ("svc",), **status: Any) -> None:
        self.handler, self.now, self.news = cluster(), START, list[Ref]()
        self.rate: float | None = 4.0
        self.room = True
        for name in names:
            self.see(name, status)
        self.scaler = self.restarted()
        self.task = DemandTask(APPLY, fleet(), TARGETS, (2, 1, 1), roles=ROLES)

    def restarted(self, interval: float = 5.0) -> DemandScaler:
        """Return the autoscaler of a new process, which asks routers at this interval."""
        return DemandScaler(
            self.handler.cache, self.reports, self.has_capacity, self.news.append, lambda: self.now, interval
        )

    def see(self, name: str, status: Mapping[str, Any], namespace: str = "ns") -> None:
        """Show the autoscaler a service with a router, as a watch event does."""
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": name if namespace == "ns" else f"{namespace}-{name}",
            "resourceVersion": "1",
        }
        self.handler.handle_observed(SERVICE, {"metadata": metadata, "spec": {"engine": {}}, "status": status})
        labels = {"ome.io/inferenceservice": name, "component": "router", "ome.io/revision": "r1"}
        service = {"kind": SERVICE, "name": name, "uid": metadata["uid"], "controller": True}
        about = {"namespace": namespace, "labels": labels, "resourceVersion": "1"}
        deployment = {**about, "name": f"{name}-router-r1", "uid": f"{metadata['uid']}-d", "ownerReferences": [service]}
        self.handler.handle_observed("Deployment", {"metadata": deployment})
        replica_set = {"kind": "ReplicaSet", "name": f"{name}-router-r1-5f4d", "uid": "rs", "controller": True}
        uid = f"{name}-r" if namespace == "ns" else f"{namespace}-{name}-r"
        metadata = {**about, "name": f"{name}-r", "uid": uid, "ownerReferences": [replica_set]}
        self.handler.handle_observed(
            "Pod", {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        )

    def has_capacity(self, ref: Ref, needs: Needs, now: datetime) -> bool:
        """Return whether nodes for further groups are free, as the test has set it."""
        return self.room

    def reports(self, pods: Iterable[Pod]) -> Mapping[str, RouterReport]:
        """Return a report of each router, with a leader of each role."""
        if self.rate is None:
            return {}
        at, rate = self.now.timestamp(), self.rate
        work = {"requests": rate, "promptTokens": 1000 * rate, "outputTokens": 100 * rate, "errors": 0.0}
        histogram = {"firstToken": ((1.0, 30 * rate), (4.0, 30 * rate))}
        load = LeaderLoad(at, round(2 * rate), 0, 0, 0.4)
        leaders = {
            role: LeaderReport(role, "serving", load, WorkRates(at, 60.0, work, histogram)) for role in ("prefill", "decode")
        }
        return {pod.uid: RouterReport(at, 0, 0.0, WorkRates(at, 60.0, work, {}), 8 if rate else 0, leaders) for pod in pods}

    async def wait(self, seconds: float = PERIOD, **task: Any) -> None:
        """Let time pass, with a reconciliation and a decision every ten seconds."""
        self.task = self.task._replace(**task)
        for _ in range(round(seconds / PERIOD)):
            self.now += timedelta(seconds=PERIOD)
            self.scaler.report(REF, self.task)
            await self.scaler.decide_all()

    def field(self) -> dict[str, Any]:
        """Return the value of `status.scaling`."""
        service = self.handler.cache.find_resource(REF)
        assert service is not None
        return self.scaler.scaling_status(service) or {}


STORED = {"mode": "Apply", "applied": {"engine": 2, "decoder": 1}, **to_status(state())}
