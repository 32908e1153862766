"""Faults of services that are scaled with their demand."""

from collections.abc import Iterator
from typing import Any

from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault
from tests.controlplane.alerts.faults.served import SERVICE
from tests.support import yamls

TARGETS = {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms"}


def followed(bed: Bed, reason: str, **demand: Any) -> str:
    """Create a service with the autoscaler class Demand, wait until its condition FollowsDemand has this reason, and return
    its namespace.
    """
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace, gpus=8, decoder=True))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    spec = {
        "decoder": {"minReplicas": 1, "maxReplicas": 2, "autoscaler": {"class": "Demand"}},
        "scalingPolicy": {"demand": {**TARGETS, **demand}},
    }
    bed.rig.create(yamls.service(namespace, SERVICE, namespace, "engine", "decoder", "router", **spec))
    bed.rig.ready(namespace, SERVICE, 60)
    bed.rig.says(namespace, SERVICE, "FollowsDemand", reason, seconds=60)
    return namespace


def another_class(bed: Bed, namespace: str) -> None:
    """Remove the class Demand from the service, so that its groups are no longer scaled with the demand."""
    bed.rig.patch("InferenceService", namespace, SERVICE, {"spec": {"decoder": {"autoscaler": None}}})


@fault("OmeDemandUnknown")
def _(bed: Bed) -> Iterator[None]:
    """The operator requests no load reports from routers, because its option `router-watch` is 0."""
    namespace = followed(bed, "DemandUnknown")
    yield
    another_class(bed, namespace)


@fault("OmeDemandUnmet")
def _(bed: Bed) -> Iterator[None]:
    """The GPU budget of a service is too small for one group of each role."""
    namespace = followed(bed, "DemandIgnored", gpuBudget=8)
    yield
    another_class(bed, namespace)
