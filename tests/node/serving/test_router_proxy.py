"""Test of an operator outside the cluster, which gets the right to read routers through the API server only during the
test.
"""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ome_local.images.build import REFERENCES
from ome_operator import quantity
from tests.node.conftest import Steps
from tests.support.rig import Rig
from tests.support.traffic import stream_of

NAME = "kimi-k2-tiny"
ROLE = "reads-routers"
HEARD_WITHIN_S = 300.0


@pytest.fixture
def outside(serving: Rig, tiny: str) -> Iterator[Rig]:
    """Replace the operator inside the cluster by one on this machine that reads routers only through the API server. Its
    ServiceAccount does not have the right yet.
    """
    kubectl = serving.cluster.kubectl
    kubectl("scale", "-n", "ome", "deployment/ome-operator", "--replicas=0")
    serving.wait("no operator inside", lambda: not serving.all("Pod", "ome"), 60)
    config = serving.cluster.keep_token("ome", "ome-operator")
    words = (f"--sidecar-image={REFERENCES['operator']}", f"--tools-image={REFERENCES['agent']}")
    serving.start("operator", *words, "--router-watch=0", "--router-proxy", program="ome_operator", kubeconfig=config)
    serving.wait_for_leader()
    kubectl("create", "clusterrole", ROLE, "--verb=get", "--resource=pods/proxy")
    yield serving
    kubectl("delete", "clusterrolebinding", ROLE, "--ignore-not-found")
    kubectl("delete", "clusterrole", ROLE)
    serving.stop()
    kubectl("scale", "-n", "ome", "deployment/ome-operator", "--replicas=1")


@pytest.mark.timeout(600, func_only=True)
async def test_operator_outside_reads_routers_once_it_has_the_permission(outside: Rig, tiny: str, steps: Steps) -> None:
    def traffic() -> dict[str, Any]:
        status = (outside.get("InferenceService", NAME, NAME) or {})["status"]
        return dict(status.get("traffic") or {})

    async with stream_of(tiny, 2.0) as report:
        await asyncio.sleep(75)
        log = outside.cluster.log(outside.process).read_text()
        refused = [line for line in log.splitlines() if "pods/proxy" in line]
        assert len(refused) == 1, log
        granted = quantity.rfc3339(datetime.now(UTC))
        binding = f"--clusterrole={ROLE}", "--serviceaccount=ome:ome-operator"
        outside.cluster.kubectl("create", "clusterrolebinding", ROLE, *binding)
        began = time.monotonic()
        while not (traffic().get("time", "") > granted and traffic().get("requestsPerSecond")):
            assert time.monotonic() - began < HEARD_WITHIN_S, f"status.traffic is not written: {traffic()}"
            await asyncio.sleep(1)
        heard = time.monotonic() - began
    steps.note("from the right to read pods/proxy to status.traffic", f"{heard:>8.1f} s")
    assert 1.0 < traffic()["requestsPerSecond"] < 3.0
    assert not report.failed_answers
