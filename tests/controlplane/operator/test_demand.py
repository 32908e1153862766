"""Tests of services with the class Demand on a real control plane. A test simulates the router, which serves /summary over
HTTP.

The operator is the real one, except that it decides sooner (`tests/support/hasty_operator.py`).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ome_operator import keys
from tests.conftest import Tables
from tests.controlplane.operator.test_life import writers
from tests.support import hasty_operator, yamls
from tests.support.demand_router import BURST, CALM, GRACE, SERVICE, WINDOW, Followed, Router, listening, restart_hasty
from tests.support.rig import Manifest, Rig

TARGETS = {"timeToFirstToken": "3s", "timeBetweenTokens": "40ms", "coolDown": "10s"}
LASTS = 3 * hasty_operator.DECISION
"""Seconds to wait before a test concludes that a number does not change."""
DEMAND: Manifest = {"minReplicas": 1, "autoscaler": {"class": "Demand"}}


def spec(mode: str, engine: int = 3, decoder: int = 2, **more: Any) -> Manifest:
    """Return a spec whose roles follow the demand up to these numbers of groups."""
    policy = {**TARGETS, "mode": mode, **more}
    roles = {"engine": {**DEMAND, "maxReplicas": engine}, "decoder": {**DEMAND, "maxReplicas": decoder}}
    return {**roles, "scalingPolicy": {"demand": policy}}


@pytest.fixture
def router() -> Iterator[Router]:
    with listening() as server:
        yield server


@pytest.fixture
def hasty(rig: Rig) -> Iterator[Rig]:
    """Yield the cluster with an operator that removes groups sooner."""
    restart_hasty(rig)
    yield rig
    rig.restart()


@pytest.fixture
def follow(hasty: Rig, namespace: str, router: Router) -> Iterator[Callable[..., Followed]]:
    """Yield a function that creates a service with these fields in its spec. Its groups have one pod, or `size` pods."""

    def made(size: int = 1, gpus: int = 0, **spec: Any) -> Followed:
        hasty.create(yamls.runtime(namespace, size=size, gpus=gpus, decoder=True, grace=GRACE if size == 1 else 0))
        return Followed(hasty, namespace, router, **spec)

    yield made
    hasty.delete("ClusterServingRuntime", "", namespace)


def numbers_have_one_writer(here: Followed) -> None:
    """Check by managedFields that each number of replicas of the service has a single writer."""
    rig, namespace = here.rig, here.namespace
    for kind in ("StatefulSet", "Deployment"):
        for one in rig.all(kind, namespace):
            assert writers(one) == {keys.MANAGER}, (kind, one["metadata"]["name"])
    for one in rig.all("RoleScale", namespace):
        assert len(writers(one)) == 1, one["metadata"]["name"]


@pytest.mark.timeout(900)
def test_burst_of_requests_scales_the_service_as_the_mode_permits(follow: Callable[..., Followed], tables: Tables) -> None:
    here = follow(**spec("Recommend"))
    rig, namespace = here.rig, here.namespace
    seconds = list[str]()

    def row(what: str, begin: float) -> None:
        seconds.append(f"{time.monotonic() - begin:>6.0f} s  {what}")

    rig.wait("nothing is measured yet", lambda: here.hold() == "Unmeasured", 60)
    # Recommend: the size is shown, and nothing changes.
    here.arrivals, began = BURST, time.monotonic()
    rig.wait("more groups are wanted", lambda: here.wanted() == (3, 2), 150)
    row("from the first burst, which is also the first measurement, until the decision", began)
    time.sleep(WINDOW)  # decode is measured under this load, too
    time.sleep(hasty_operator.DECISION)  # nothing has changed either
    assert here.size() == (1, 1) and "applied" not in here.scaling()
    assert "mode Recommend" in (said := here.shown()) and "requests/s arrive" in said
    assert here.json()["wanted"] == {"prefill": 3, "decode": 2, "routers": 1}
    here.arrivals = CALM
    here.give_up()
    # Apply begins with the size that exists. The number is in the status, and nobody writes the RoleScale.
    before = here.scale()
    here.policy(mode="Apply")
    rig.wait("the demand is small again", lambda: here.scaling().get("applied") and here.wanted() == (1, 1), 400)
    here.arrivals, began = BURST, time.monotonic()
    rig.wait("more groups are wanted", lambda: sum(here.wanted()) > 2, 150)
    row("from a burst until the decision", began)
    rig.wait("a StatefulSet is new", lambda: here.sets("engine") + here.sets("decoder") > 2, 30)
    row("from the same burst until the first new StatefulSet", began)
    rig.wait("the groups exist", lambda: here.size() == (3, 2), 120)
    row("from the same burst until all groups that are wanted exist", began)
    assert here.scaling()["applied"] == {"engine": 3, "decoder": 2}
    after = here.scale()
    assert after["spec"] == before["spec"] == {"replicas": 1} and after["metadata"]["generation"] == 1
    assert writers(after) == {keys.SCALE_MANAGER}, "the number in the RoleScale is that of its creation"
    numbers_have_one_writer(here)
    # A restart keeps the number of groups, and what the operator has learned.
    learned, made = here.scaling()["learned"], {one["metadata"]["uid"] for one in rig.all("StatefulSet", namespace)}
    restart_hasty(rig)
    time.sleep(LASTS)
    assert {one["metadata"]["uid"] for one in rig.all("StatefulSet", namespace)} == made
    assert here.size() == (3, 2) and here.scaling()["learned"]["prefill"] == learned["prefill"]
    assert here.scaling()["learned"]["configurations"] == learned["configurations"]
    assert learned["configurations"].keys() == {"prefill", "decode"}
    # Without numbers from the router, nothing changes.
    here.router.page = None
    rig.wait_for_condition(namespace, SERVICE, "FollowsDemand", "DemandUnknown", seconds=90)
    here.arrivals = CALM
    time.sleep(LASTS)
    assert here.size() == (3, 2)
    # After the end of the burst, groups are removed one at a time.
    here.router.page, began = here.summary, time.monotonic()
    rig.wait("a group less is wanted", lambda: sum(here.wanted()) == 4, 200)
    row("from the return of the numbers until a group less is wanted", began)
    rig.wait("two groups are removed", lambda: sum(here.size()) <= 3, 200)
    row("from the return of the numbers until two groups are removed", began)
    rig.ready(namespace, SERVICE, 60)
    numbers_have_one_writer(here)
    tables[f"class Demand on the control plane, with the times of {hasty_operator.__name__}"] = seconds


@pytest.mark.timeout(900)
def test_manually_set_number_is_kept_until_resume_or_wake(follow: Callable[..., Followed]) -> None:
    here = follow(**spec("Apply"))
    rig, namespace = here.rig, here.namespace
    here.edit(engine={"minReplicas": 0}, decoder={"minReplicas": 0})
    rig.wait("a number is decided", lambda: here.scaling().get("applied") == {"engine": 1, "decoder": 1}, 60)
    here.by_hand(2)
    rig.wait("the number counts", lambda: here.size() == (1, 2), 30)
    assert writers(here.scale()) == {"kubectl"}
    rig.wait_for_condition(namespace, SERVICE, "FollowsDemand", "ScaledByHand", seconds=90)
    assert f"RoleScale {SERVICE}-decoder was set by hand" in here.shown()
    assert "is created again" in here.shown("--resume")
    rig.wait("it is new", lambda: (here.scale().get("metadata") or {}).get("generation") == 1, 30)
    assert writers(here.scale()) == {keys.SCALE_MANAGER} and here.scale()["spec"] == {"replicas": 2}
    time.sleep(hasty_operator.DECISION)
    assert here.size() == (1, 2), "decisions start from the current size"
    # `ome wake` brings back the groups, and does not count as a number that is set by hand.
    for component in ("engine", "decoder"):
        here.by_hand(0, component)
    rig.wait("no group", lambda: here.size() == (0, 0), 90)
    assert "decoder: 2 groups" in here.ome("wake", SERVICE, "-n", namespace)
    rig.ready(namespace, SERVICE, 60)
    assert here.size() == (1, 2)
    rig.wait("the demand decides", lambda: here.scaling().get("applied") == {"engine": 1, "decoder": 2}, 60)
    assert rig.condition(namespace, SERVICE, "FollowsDemand")["reason"] != "ScaledByHand"
    assert "was set by hand" not in here.shown() and "so the service follows the demand already" in here.shown("--resume")
    numbers_have_one_writer(here)


@pytest.mark.timeout(600)
def test_another_autoscaler_class_starts_with_the_existing_groups(follow: Callable[..., Followed]) -> None:
    here = follow(**spec("Apply"))
    rig, namespace = here.rig, here.namespace
    rig.wait("a number is decided", lambda: here.scaling().get("applied") == {"engine": 1, "decoder": 1}, 60)
    here.edit(decoder={"minReplicas": 2, "maxReplicas": 3})
    rig.wait("the minimum counts", lambda: here.scaling().get("applied") == {"engine": 1, "decoder": 2}, 60)
    hpa: Manifest = {"minReplicas": 1, "autoscaler": {"class": "HPA"}}
    here.edit(engine={"autoscaler": None}, decoder=hpa)
    rig.wait("the RoleScale has the number", lambda: (here.scale().get("spec") or {}).get("replicas") == 2, 60)
    rig.wait("its field is gone", lambda: "applied" not in here.scaling(), 60)
    scaler = rig.wait("an HPA", lambda: rig.get("HorizontalPodAutoscaler", namespace, f"{SERVICE}-decoder"), 30)
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (1, 3) and here.size() == (1, 2)
    here.edit(decoder={"autoscaler": None})
    rig.wait("no HPA", lambda: rig.get("HorizontalPodAutoscaler", namespace, f"{SERVICE}-decoder") is None, 30)
    assert here.size() == (1, 2) and rig.condition(namespace, SERVICE, "FollowsDemand") == {}
    here.by_hand(1)
    rig.wait("people scale it", lambda: here.size() == (1, 1), 60)
    numbers_have_one_writer(here)


@pytest.mark.timeout(600)
def test_no_group_is_added_while_frozen_paused_or_without_free_nodes(follow: Callable[..., Followed]) -> None:
    """No group is added while the service is frozen or paused, or while no nodes are free. Each group takes five of the
    sixteen nodes.
    """
    here = follow(size=5, gpus=8, **spec("Apply", engine=3, decoder=2))
    rig, namespace = here.rig, here.namespace
    here.ome("freeze", f"{namespace}/{SERVICE}", "--why", "a test")
    here.arrivals = BURST
    rig.wait("it is frozen", lambda: here.hold() == "Frozen", 60)
    time.sleep(3 * LASTS)  # long enough for a measurement and a decision
    assert here.size() == (1, 1) and here.hold() == "Frozen"
    here.edit(rollout={"paused": True})
    here.ome("thaw", f"{namespace}/{SERVICE}")
    rig.wait("it is paused", lambda: "paused is true" in str(here.scaling().get("why")), 60)
    time.sleep(LASTS)
    assert here.size() == (1, 1)
    here.give_up()  # a long queue would need more groups than the maximum
    here.edit(rollout={"paused": False})
    rig.wait("there is room for one more", lambda: sum(here.size()) == 3 and here.hold() == "NoRoom", 120)
    rig.wait_for_condition(namespace, SERVICE, "FollowsDemand", "DemandUnmet", "no nodes", seconds=30)
    made = {one["metadata"]["uid"] for one in rig.all("StatefulSet", namespace)}
    time.sleep(LASTS)
    assert {one["metadata"]["uid"] for one in rig.all("StatefulSet", namespace)} == made
    assert all(pod["spec"].get("nodeName") for pod in rig.all("Pod", namespace)), "no pod waits for a node"
    assert [one.get("hold") for one in here.scaling()["decisions"]].count("NoRoom") == 1, "it is asked for once"


def test_service_from_before_an_upgrade_is_not_scaled(rig: Rig, namespace: str) -> None:
    """A service has the annotation of an autoscaler class with the value `demand`, and the policy of the class Demand, as
    before an upgrade of the operator. It is not scaled: earlier versions ignored both.
    """
    rig.create(yamls.runtime(namespace, decoder=True))
    body = yamls.service(namespace, SERVICE, namespace, "engine", "decoder", "router")
    body["metadata"]["annotations"] = {keys.AUTOSCALER_CLASS: "demand"}
    bounds = {"minReplicas": 1, "maxReplicas": 3}
    policy = {"demand": {**TARGETS, "mode": "Apply"}}
    rig.create({**body, "spec": {**body["spec"], "decoder": bounds, "scalingPolicy": policy}})
    rig.ready(namespace, SERVICE, 60)
    restart_hasty(rig)
    try:
        time.sleep(LASTS)
        status = (rig.get("InferenceService", namespace, SERVICE) or {})["status"]
        assert "scaling" not in status and rig.condition(namespace, SERVICE, "FollowsDemand") == {}
        assert "is 'demand', which is not an autoscaler class" in rig.condition(namespace, SERVICE, "Advice")["message"]
    finally:
        rig.restart()
        rig.delete("ClusterServingRuntime", "", namespace)


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        ({"timeToFirstToken": "soon"}, "write a duration such as"),
        ({"schedule": [{"start": "8 o'clock", "end": "18:00", "minimum": {}}]}, "write a time of day such as"),
        ({"schedule": [{"start": "08:00", "end": "18:00", "minimum": {}, "days": ["Monday"]}]}, "Unsupported value"),
        ({"mode": "Enforce"}, "Unsupported value"),
        ({"gpuBudget": 0}, "greater than or equal to 1"),
    ],
)
def test_api_server_refuses_invalid_demand_policies(rig: Rig, namespace: str, demand: Manifest, words: str) -> None:
    policy = {"timeToFirstToken": "3s", "timeBetweenTokens": "40ms", **demand}
    with pytest.raises(Exception, match=words):
        rig.create(yamls.service(namespace, SERVICE, "rt", scalingPolicy={"demand": policy}))
