"""Tests of `ome scale --undo`, and of a schedule that brings a service of the class Demand to zero, on a real control plane.
A test simulates the router, which serves /summary over HTTP.
"""

import time
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli.app import app
from tests.controlplane.operator.test_life import writers
from tests.support import hasty_operator, yamls
from tests.support.demand_router import BURST, CALM, GRACE, SERVICE, Followed, listening, restart_hasty
from tests.support.rig import Manifest, Rig

ROLE: Manifest = {"minReplicas": 1, "maxReplicas": 2, "autoscaler": {"class": "Demand"}}
TARGETS = {"timeToFirstToken": "3s", "timeBetweenTokens": "40ms", "coolDown": "10s", "mode": "Apply"}
LASTS = 3 * hasty_operator.DECISION
"""Seconds to wait before a test concludes that a number does not change."""


@pytest.fixture
def here(rig: Rig, namespace: str) -> Iterator[Followed]:
    """Yield a service with one group of each role, whose operator decides sooner."""
    restart_hasty(rig)
    rig.create(yamls.runtime(namespace, decoder=True, grace=GRACE))
    with listening() as router:
        yield Followed(rig, namespace, router, engine=ROLE, decoder=ROLE, scalingPolicy={"demand": TARGETS})
    rig.delete("ClusterServingRuntime", "", namespace)
    rig.restart()


@pytest.mark.timeout(600)
def test_size_before_a_decision_is_kept_until_resume(here: Followed) -> None:
    """`--undo` brings the service back to its size before the last decision, and keeps it whatever the demand needs. The
    numbers in the RoleScales do not change.
    """
    here.arrivals = BURST
    here.rig.wait("more groups are wanted and exist", lambda: here.size() == here.wanted() == (2, 2), 200)
    assert "goes back to 1 prefill and 1 decode groups" in here.shown("--undo")
    here.rig.wait("the former size", lambda: here.size() == (1, 1), 120)
    here.rig.wait_for_condition(here.namespace, SERVICE, "FollowsDemand", "DemandUndone", seconds=60)
    time.sleep(LASTS)
    assert here.size() == (1, 1) and here.hold() == "Undone"
    again = CliRunner().invoke(
        app, ["scale", SERVICE, "--undo", "-n", here.namespace, "--kubeconfig", str(here.rig.cluster.kubeconfig)]
    )
    assert again.exit_code != 0 and "--resume" in str(again.exception), again.output
    assert all(writers(here.scale(component)) == {keys.SCALE_MANAGER} for component in (keys.ENGINE, keys.DECODER))
    here.shown("--resume")
    here.rig.wait("the demand decides again", lambda: here.size() == (2, 2), 120)


@pytest.mark.timeout(900)
def test_schedule_scales_a_service_to_zero_and_back(here: Followed) -> None:
    """During the scheduled period of zero groups, groups stay as long as requests arrive. Without requests, both roles go
    to zero together. `ome wake` during the period brings both roles back, and so does the end of the period.
    """
    rig, namespace = here.rig, here.namespace
    here.arrivals = CALM
    rig.wait("a number is decided", lambda: here.scaling().get("applied") == {"engine": 1, "decoder": 1}, 60)
    here.edit(engine={"minReplicas": 0}, decoder={"minReplicas": 0})  # a new service with 0 would begin at zero
    here.policy(schedule=yamls.night(True))
    time.sleep(hasty_operator.SPAN + LASTS)
    assert here.size() == (1, 1), "requests keep the service"
    here.arrivals, here.in_flight = 0, 0
    rig.wait("no group", lambda: here.size() == (0, 0), 240)
    rig.wait_for_condition(namespace, SERVICE, "Ready", "ScaledToZero", seconds=60)
    assert {here.scale(component)["spec"]["replicas"] for component in (keys.ENGINE, keys.DECODER)} == {0}
    time.sleep(LASTS)
    assert here.size() == (0, 0) and here.hold() == "ScheduledZero"
    assert "decoder: 1 group" in here.ome("wake", SERVICE, "-n", namespace)
    rig.wait("both roles are back", lambda: here.size() == (1, 1), 60)
    rig.wait("no group again", lambda: here.size() == (0, 0), 240)
    here.policy(schedule=yamls.night(False))
    rig.wait("the end of the time brings both roles back", lambda: here.size() == (1, 1), 60)
    rig.ready(namespace, SERVICE, 60)
    assert rig.condition(namespace, SERVICE, "FollowsDemand")["reason"] != "ScaledByHand"
