"""Faults of services that are scaled with their demand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault
from tests.controlplane.alerts.faults.served import SERVICE
from tests.support import hasty_operator, yamls
from tests.support.demand_router import BURST, CALM, Followed, listening

TARGETS = {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms"}
DEMAND: dict[str, Any] = {"minReplicas": 1, "autoscaler": {"class": "Demand"}}


def prepared(bed: Bed, gpus: int = 8) -> str:
    """Create a runtime with prefill and decode. Return its namespace, whose services are deleted during the cleanup."""
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace, gpus=gpus, decoder=True))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    return namespace


def followed(bed: Bed, reason: str, **demand: Any) -> str:
    """Create a service with the autoscaler class Demand, wait until its condition FollowsDemand has this reason, and return
    its namespace.
    """
    namespace = prepared(bed)
    spec: dict[str, Any] = {"decoder": {**DEMAND, "maxReplicas": 2}, "scalingPolicy": {"demand": {**TARGETS, **demand}}}
    bed.rig.create(yamls.service(namespace, SERVICE, namespace, "engine", "decoder", "router", **spec))
    bed.rig.ready(namespace, SERVICE, 60)
    bed.rig.wait_for_condition(namespace, SERVICE, "FollowsDemand", reason, seconds=60)
    return namespace


@contextmanager
def loaded(bed: Bed, **spec: Any) -> Iterator[Followed]:
    """Yield a service whose router is simulated, with an operator that decides sooner and reads this router. The service
    gets these fields when its load is known already.
    """
    bed.later(bed.operate)
    bed.operate("--router-watch=2", program=hasty_operator.__name__)
    with listening() as router:
        here = Followed(bed.rig, prepared(bed, gpus=0), router)
        here.edit(**spec)
        bed.rig.wait("nothing is measured yet", lambda: here.hold() == "Unmeasured", 90)
        yield here
        another_class(bed, here.namespace)


def another_class(bed: Bed, namespace: str) -> None:
    """Remove the class Demand from the service, so that its groups are no longer scaled with the demand."""
    roles = {role: {"autoscaler": None} for role in ("engine", "decoder")}
    bed.rig.patch("InferenceService", namespace, SERVICE, {"spec": roles})


@fault("OmeDemandUnknown")
def _(bed: Bed) -> Iterator[None]:
    """The operator requests no load reports from routers, because its option `router-watch` is 0."""
    namespace = followed(bed, "DemandUnknown")
    yield
    another_class(bed, namespace)


@fault("OmeDemandUnmet")
def _(bed: Bed) -> Iterator[None]:
    """More requests arrive than the largest permitted number of groups can serve."""
    roles = {role: {**DEMAND, "maxReplicas": 1} for role in ("engine", "decoder")}
    with loaded(bed, **roles, scalingPolicy={"demand": TARGETS}) as here:
        here.arrivals = BURST
        bed.rig.wait_for_condition(here.namespace, SERVICE, "FollowsDemand", "DemandUnmet", "maximum", seconds=200)
        yield


@fault("OmeDemandIgnored")
def _(bed: Bed) -> Iterator[None]:
    """The GPU budget of a service is too small for one group of each role."""
    namespace = followed(bed, "DemandIgnored", gpuBudget=8)
    yield
    another_class(bed, namespace)


@fault("OmeDemandStopped")
def _(bed: Bed) -> Iterator[None]:
    """Somebody writes the RoleScale of a service that is scaled with its demand. In the mode Recommend, this would stop
    nothing.
    """
    namespace = followed(bed, "DemandUnknown", mode="Apply")
    bed.rig.cluster.kubectl("scale", "-n", namespace, f"rolescale/{SERVICE}-decoder", "--replicas=2")
    bed.rig.wait_for_condition(namespace, SERVICE, "FollowsDemand", "ScaledByHand", seconds=30)
    yield
    bed.rig.delete("RoleScale", namespace, f"{SERVICE}-decoder")  # as `ome scale --resume` does
    another_class(bed, namespace)


@fault("OmeDemandSurplus")
def _(bed: Bed) -> Iterator[None]:
    """The limit of changes within an hour keeps a group that is not needed any more."""
    roles = {role: {**DEMAND, "maxReplicas": 3} for role in ("engine", "decoder")}
    policy = {**TARGETS, "coolDown": "10s"}
    with loaded(bed, **roles, scalingPolicy={"demand": policy}) as here:
        here.arrivals = BURST  # both roles are measured; the mode is Recommend
        bed.rig.wait("more groups are wanted", lambda: sum(here.wanted()) > 2, 200)
        here.arrivals = CALM
        bed.rig.wait("one group of each role is enough", lambda: here.wanted() == (1, 1), 300)
        here.edit(engine={"minReplicas": 2}, scalingPolicy={"demand": {"mode": "Apply", "changesPerHour": 1}})
        bed.rig.wait("two prefill groups are decided", lambda: here.size() == here.wanted() == (2, 1), 60)
        here.edit(engine={"minReplicas": 1})
        bed.rig.wait("the limit keeps a group", lambda: here.hold() == "Cap", 90)
        yield
        here.policy(changesPerHour=40)
        bed.rig.wait("the group is removed", lambda: here.size() == (1, 1), 90)
