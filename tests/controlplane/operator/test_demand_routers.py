"""Tests of routers with the class Demand on a real control plane: their number follows the requests in flight. A test
simulates the routers, which serve /summary over HTTP, and the operator decides sooner (`tests/support/hasty_operator.py`).
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ome_operator import keys
from tests.conftest import Tables
from tests.controlplane.operator.test_life import writers
from tests.support import hasty_operator, yamls
from tests.support.demand_router import ADDRESSES, SERVICE, Followed, Router, listening, restart_hasty
from tests.support.rig import Manifest, Rig, is_ready

EACH = 10
"""Requests in flight for which one router is needed."""


def spec(mode: str) -> Manifest:
    """Return the spec of a service whose routers follow the demand, and whose groups are fixed in number."""
    demand = {"timeToFirstToken": "3s", "timeBetweenTokens": "40ms", "mode": mode, "requestsPerRouter": EACH}
    router = {"minReplicas": 1, "maxReplicas": 3, "autoscaler": {"class": "Demand"}}
    return {"router": router, "scalingPolicy": {"demand": demand}}


@pytest.fixture
def routers() -> Iterator[list[Router]]:
    with ExitStack() as stack:
        yield [stack.enter_context(listening(address)) for address in ADDRESSES]


@pytest.fixture
def here(rig: Rig, namespace: str, routers: list[Router]) -> Iterator[Followed]:
    """Yield a service with the mode Recommend whose routers follow the demand."""
    restart_hasty(rig)
    rig.create(yamls.runtime(namespace, decoder=True))
    yield Followed(rig, namespace, routers[0], **spec("Recommend"))
    rig.restart()
    rig.delete("ClusterServingRuntime", "", namespace)


def deployment(here: Followed) -> Manifest:
    """Return the Deployment of the routers."""
    (found,) = here.rig.all("Deployment", here.namespace, f"{keys.COMPONENT}={keys.ROUTER}")
    return found


def wanted(here: Followed) -> int:
    """Return the wanted number of routers; 0 before the first decision."""
    return int((here.scaling().get("wanted") or {}).get("routers", 0))


def connected(here: Followed, routers: list[Router]) -> None:
    """Wait until each of these simulated routers has a ready pod, and let it answer requests to that pod."""
    selector = f"{keys.COMPONENT}={keys.ROUTER}"
    all_ready = [True] * len(routers)
    here.rig.wait("routers", lambda: [is_ready(pod) for pod in here.rig.all("Pod", here.namespace, selector)] == all_ready)
    here.connect(routers)


def test_routers_are_added_for_requests_in_flight_without_measurements(
    here: Followed, routers: list[Router], tables: Tables
) -> None:
    rig, seconds = here.rig, list[str]()
    rig.wait("one router is wanted", lambda: (wanted(here), here.hold()) == (1, "Unmeasured"), 120)
    before = here.scale("router")
    # Recommend: more routers are shown, and nothing changes.
    here.in_flight, began = 2 * EACH, time.monotonic()
    rig.wait("two routers are wanted", lambda: wanted(here) == 2, 30, often=True)
    seconds.append(f"{time.monotonic() - began:>6.0f} s  from more requests in flight until the decision")
    time.sleep(hasty_operator.DECISION)
    assert deployment(here)["spec"]["replicas"] == 1 and "applied" not in here.scaling()
    # Apply: the Deployment follows, no group is added, and nobody writes the RoleScale.
    here.policy(mode="Apply")
    rig.wait("two routers", lambda: deployment(here)["spec"]["replicas"] == 2, 30, often=True)
    connected(here, routers[:2])
    here.in_flight, began = 4 * EACH, time.monotonic()  # per router, so their sum needs more routers than the maximum
    rig.wait("three routers", lambda: deployment(here)["spec"]["replicas"] == 3, 30, often=True)
    seconds.append(
        f"{time.monotonic() - began:>6.0f} s  from more requests in flight until the Deployment has more replicas"
    )
    connected(here, routers)
    time.sleep(2 * hasty_operator.DECISION)
    assert (deployment(here)["spec"]["replicas"], wanted(here), here.size()) == (3, 3, (1, 1))
    assert here.scaling()["applied"] == {"router": 3} and here.hold() == "Unmeasured"
    after = here.scale("router")
    assert after["spec"] == before["spec"] == {"replicas": 1} and after["metadata"]["generation"] == 1
    assert (writers(after), writers(deployment(here))) == ({keys.SCALE_MANAGER}, {keys.MANAGER})
    # If one router does not answer, the number of requests is unknown, and the number of routers stays.
    routers[1].page = None
    rig.wait_for_condition(here.namespace, SERVICE, "FollowsDemand", "DemandUnknown", seconds=60)
    assert deployment(here)["spec"]["replicas"] == 3
    tables[f"routers of the class Demand, with the times of {hasty_operator.__name__}"] = seconds
