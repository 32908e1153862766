"""Tests of services with the class Demand that a HorizontalPodAutoscaler of a user scales, too, on a real control plane.

The HorizontalPodAutoscaler is run by the real kube-controller-manager. It has no metrics: it writes its minimum because the
present number is below it.
"""

import time
from collections.abc import Iterator

import pytest

from ome_operator import keys
from ome_operator.core.observed.field_managers import HPA
from tests.controlplane.operator.test_demand import DEMAND, TARGETS
from tests.controlplane.operator.test_life import writers
from tests.support import hasty_operator, yamls
from tests.support.demand_router import SERVICE, Followed, listening, restart_hasty
from tests.support.rig import Manifest, Rig

MINE = "mine"
"""Name of the HorizontalPodAutoscaler."""


@pytest.fixture
def here(rig: Rig, namespace: str) -> Iterator[Followed]:
    """Yield a service of the class Demand with one group of each role, without load."""
    restart_hasty(rig)
    rig.create(yamls.runtime(namespace, size=1, decoder=True))
    role = {**DEMAND, "maxReplicas": 3}
    with listening() as router:
        policy = {"demand": {**TARGETS, "mode": "Apply"}}
        found = Followed(rig, namespace, router, engine=role, decoder=role, scalingPolicy=policy)
        rig.wait("a number is decided", lambda: found.scaling().get("applied") == {"engine": 1, "decoder": 1}, 60)
        yield found
    rig.delete("ClusterServingRuntime", "", namespace)
    rig.restart()


def hpa(here: Followed, kind: str, name: str, version: str) -> None:
    """Create the HorizontalPodAutoscaler of a user, with the minimum 2. It scales the object of this kind, name and API
    version.
    """
    spec = {
        "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name},
        "minReplicas": 2,
        "maxReplicas": 3,
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
        ],
    }
    metadata = {"name": MINE, "namespace": here.namespace}
    here.rig.create({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec})


def advice(here: Followed) -> str:
    """Return the message of the condition Advice; "" if the service has no such condition."""
    return str(here.rig.condition(here.namespace, SERVICE, "Advice").get("message") or "")


@pytest.mark.timeout(600)
def test_autoscaler_number_applies_and_both_scalers_are_named(here: Followed) -> None:
    rig, namespace = here.rig, here.namespace
    hpa(here, "RoleScale", f"{SERVICE}-decoder", "ome.io/v1beta1")
    rig.wait("its number applies", lambda: here.size() == (1, 2), 90)
    assert writers(here.scale()) == {HPA}, "one writer"
    rig.wait_for_condition(
        namespace, SERVICE, "FollowsDemand", "ScaledByHand", f"HorizontalPodAutoscaler {MINE}", seconds=60
    )
    rig.wait("both are named", lambda: f"{MINE} and the class Demand both scale decoder" in advice(here), 60)
    assert f"RoleScale {SERVICE}-decoder was written by a HorizontalPodAutoscaler" in here.shown()
    # Without the HorizontalPodAutoscaler, its last number applies until the demand is resumed.
    rig.delete("HorizontalPodAutoscaler", namespace, MINE)
    time.sleep(3 * hasty_operator.DECISION)
    assert here.size() == (1, 2)
    assert "If the HorizontalPodAutoscaler still exists, the next number" in here.shown("--resume")
    rig.wait("the RoleScale is new", lambda: (here.scale().get("metadata") or {}).get("generation") == 1, 30)
    assert writers(here.scale()) == {keys.SCALE_MANAGER}
    rig.wait("the demand decides", lambda: here.scaling().get("applied") == {"engine": 1, "decoder": 2}, 60)
    rig.wait("the autoscaler is no longer named", lambda: MINE not in advice(here), 60)
    assert rig.condition(namespace, SERVICE, "FollowsDemand")["reason"] != "ScaledByHand"


@pytest.mark.timeout(600)
def test_workload_scaled_by_an_autoscaler_has_one_writer_and_is_reported(here: Followed) -> None:
    rig, namespace = here.rig, here.namespace

    def routers() -> Manifest:
        (found,) = rig.all("Deployment", namespace)
        return found

    before = routers()
    hpa(here, "Deployment", before["metadata"]["name"], "apps/v1")
    rig.wait("it writes", lambda: routers()["metadata"]["generation"] > before["metadata"]["generation"], 90)
    rig.wait("the number is set back", lambda: routers()["spec"]["replicas"] == 1, 60)
    assert writers(routers()) == {keys.MANAGER}
    rig.wait("it is named", lambda: f"{MINE} scales Deployment" in advice(here), 60)
