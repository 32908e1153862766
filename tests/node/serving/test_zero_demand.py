"""Tests in which the schedule of a service of the class Demand brings its real engines to zero, and a request brings them
back (docs/demand.md).
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Tables
from tests.node.serving.conftest import READY_WITHIN_S, tokens
from tests.node.serving.test_zero import NAME, ROLES, answered, ask, groups, zero
from tests.support import yamls
from tests.support.rig import Rig

HEADING = "zero by a schedule of the class Demand, and back by a request"
TARGETS = {"timeToFirstToken": "2s", "timeBetweenTokens": "10s", "coolDown": "10s", "mode": "Apply"}


@pytest.fixture
def scheduled(hasty: Rig, tiny: str) -> Iterator[str]:
    """Yield the URL of the service. Its groups follow the demand, and its minimum is now 0, so that the schedule can bring
    it to zero.
    """
    role = {"minReplicas": 1, "maxReplicas": 2, "autoscaler": {"class": "Demand"}}
    policy = {"demand": {**TARGETS, "schedule": yamls.night(True)}, "wakeOnRequest": True}
    hasty.patch("InferenceService", NAME, NAME, {"spec": {**dict.fromkeys(ROLES, role), "scalingPolicy": policy}})
    hasty.wait("a group of each role is in its RoleScale", lambda: scales(hasty) == [1, 1], 90)
    least = {name: {"minReplicas": 0} for name in ROLES}  # new RoleScales with 0 would begin at zero
    hasty.patch("InferenceService", NAME, NAME, {"spec": least})
    yield tiny
    one = {"minReplicas": 1, "maxReplicas": 1, "autoscaler": None}
    hasty.patch("InferenceService", NAME, NAME, {"spec": {**dict.fromkeys(ROLES, one), "scalingPolicy": None}})
    hasty.ready(NAME, NAME, READY_WITHIN_S)


def scales(rig: Rig) -> list[int | None]:
    """Return the numbers of groups in the RoleScales of both roles; None for a role without a RoleScale."""
    found = (rig.get("RoleScale", NAME, f"{NAME}-{role}") for role in ROLES)
    return [one["spec"].get("replicas") if one is not None else None for one in found]


def condition(rig: Rig, kind: str) -> dict[str, Any]:
    """Return a condition of the service."""
    return dict(rig.condition(NAME, NAME, kind))


@pytest.mark.timeout(900, func_only=True)
def test_idle_service_scales_to_zero_and_a_request_wakes_it(hasty: Rig, scheduled: str, tables: Tables) -> None:
    began = time.monotonic()
    hasty.wait("no engine", lambda: groups(hasty) == 0, 300)
    empty = time.monotonic() - began
    hasty.wait("the registry answers", lambda: answered(scheduled), 60)
    hasty.wait_for_condition(NAME, NAME, "Ready", "ScaledToZero", seconds=60)
    time.sleep(25)  # requests of the last 20 s would bring the service back
    assert groups(hasty) == 0, "health checks are no requests"
    began = time.monotonic()
    status, headers, body = ask(scheduled)
    assert (status, headers["Retry-After"], body["error"]["code"]) == (503, "30", "no_engine")
    hasty.wait("both roles have pods again", lambda: groups(hasty) >= 2, 60)
    woken = time.monotonic() - began
    refused = 0
    while (last := ask(scheduled)[0]) != 200:
        refused += last == 0
        assert time.monotonic() - began < READY_WITHIN_S, f"no token after {READY_WITHIN_S} s: {last}"
        time.sleep(0.5)
    first = time.monotonic() - began
    assert refused == 0, "a connection was refused"
    assert tokens(scheduled, "hello")
    hasty.wait("the wake is in the status", lambda: "servedAfterSeconds" in zero(hasty).get("wake", {}), 60)
    assert zero(hasty)["wake"]["by"] == "Request"
    assert condition(hasty, "FollowsDemand")["reason"] != "ScaledByHand"
    tables.setdefault(HEADING, []).extend([
        f"from the schedule until no pod of an engine is left, with the times of the hasty operator  {empty:>6.1f} s",
        f"from the request until both roles have pods  {woken:>6.1f} s",
        f"from the request until the first token  {first:>6.1f} s",
    ])  # fmt: skip
