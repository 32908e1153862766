"""The attack of finding T2 of the second security review, on a real control plane: a tenant with a quota of one node
repeatedly requests all nodes, and another tenant needs a single node (docs/placement.md, "Fairness between tenants").
"""

import time

import pytest

from tests.controlplane.operator.test_placement import gangs
from tests.support import yamls
from tests.support.rig import Rig

__all__ = ["gangs"]
SQUATS = 6
ALONE = 60.0
"""Seconds for which only the attacker has services. They are enough for each of the attacker's gangs to fail, so that some
gangs wait for their next attempt.
"""
PATIENCE = 60.0
"""Seconds within which the newcomer has to serve. Attempts last five seconds here."""


@pytest.mark.timeout(600)
def test_tenant_with_a_quota_of_one_node_blocks_no_other_tenant(gangs: Rig, namespace: str) -> None:
    """A tenant whose quota permits one node repeatedly requests all nodes, while all 16 nodes are free except one. The
    service of another tenant starts. The review reported that three of four nodes stayed free for 35 minutes while that
    service waited.
    """
    other, large, small = f"{namespace}-b", f"large-{namespace}", f"small-{namespace}"
    gangs.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    quota = {"hard": {"requests.nvidia.com/gpu": "8"}}
    metadata = {"name": "one-node", "namespace": namespace}
    gangs.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": quota})
    gangs.create(yamls.runtime(large, size=16, gpus=8, router=False))
    gangs.create(yamls.runtime(small, gpus=8, router=False))
    for at in range(SQUATS):
        gangs.create(yamls.service(namespace, f"squat{at}", large, "engine"))
    time.sleep(ALONE)
    waiting = [at for at in range(SQUATS) if gangs.condition(namespace, f"squat{at}", "EngineReady").get("status") != "True"]
    assert len(waiting) == SQUATS, "the quota permits no complete gang"
    began = time.monotonic()
    gangs.create(yamls.service(other, "newcomer", small, "engine"))
    gangs.ready(other, "newcomer", PATIENCE)
    print(f"the newcomer served after {time.monotonic() - began:.1f} s")
    for at in range(SQUATS):
        gangs.delete("InferenceService", namespace, f"squat{at}")
    gangs.delete("InferenceService", other, "newcomer")
    for name in (large, small):
        gangs.delete("ClusterServingRuntime", "", name)
    gangs.delete("Namespace", "", other)
