"""Tests on a real control plane with simulated nodes: a group that fails again and again on a node is created on another
node (docs/bad-nodes.md).
"""

import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from ome_operator import keys
from tests.support import yamls
from tests.support.kubelet import ended, write_status
from tests.support.rig import Manifest, Rig


@pytest.fixture
def runtime(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a runtime whose groups have one pod. The test's NodeFaults are deleted afterwards."""
    name = f"bad-{namespace}"
    rig.create(yamls.runtime(name))
    yield name
    rig.delete("ClusterServingRuntime", "", name)
    for faults in rig.all("NodeFaults", ""):
        rig.delete("NodeFaults", "", faults["metadata"]["name"])


def engine(rig: Rig, namespace: str) -> Manifest:
    """Return the engine pod of the service; {} unless exactly one exists and is on a node."""
    pods = [pod for pod in rig.all("Pod", namespace, "component=engine") if "deletionTimestamp" not in pod["metadata"]]
    return pods[0] if len(pods) == 1 and pods[0]["spec"].get("nodeName") else {}


def scraped(rig: Rig) -> str:
    """Return the page of the operator's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.metrics_port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def exclusions(rig: Rig, namespace: str) -> list[str]:
    """Return the annotation that lists the excluded nodes, for each engine group, sorted."""
    found = [each["metadata"] for each in rig.all("StatefulSet", namespace, "component=engine")]
    return sorted((each.get("annotations") or {}).get(keys.EXCLUDED_NODES, "") for each in found)


def test_group_is_moved_from_a_node_after_three_failures(rig: Rig, namespace: str, runtime: str) -> None:
    rig.create(yamls.service(namespace, "svc", runtime))
    rig.ready(namespace, "svc", 60)
    pod = rig.wait("its pod", lambda: engine(rig, namespace))
    bad, first = pod["spec"]["nodeName"], pod["metadata"]["name"]

    def failures() -> int:
        found = (rig.get("NodeFaults", "", bad) or {}).get("status", {}).get("faults", ())
        return sum(fault["count"] for fault in found if fault.get("namespace") == namespace)

    # The container ends three times, with minutes between. Each end is reported after the previous one is counted.
    for restarts, ago in ((1, 500.0), (2, 300.0), (3, 100.0)):
        write_status(rig, engine(rig, namespace) or pod, ended(restarts, ago))
        if restarts == 1:
            rig.wait("it is remembered", lambda: "ome_node_failures 1" in scraped(rig), 40)
        elif restarts == 2:
            rig.wait("two failures are stored", lambda: failures() == 2, 40)
            rig.restart()
            rig.wait_for_leader()

    def moved() -> Manifest:
        found = engine(rig, namespace)
        return found if found and found["metadata"]["name"] != first and found["spec"]["nodeName"] != bad else {}

    new = rig.wait("another group on another node", moved, 60)
    rig.ready(namespace, "svc", 60)
    assert exclusions(rig, namespace) == [bad]
    assert new["metadata"]["labels"][keys.GROUP_INDEX] == "1"
    advice = rig.condition(namespace, "svc", "Advice")
    assert f"node {bad} is avoided for new groups" in advice["message"], advice
    assert rig.get("NodeFaults", "", bad)["status"]["avoided"].startswith(f"by services of {namespace}")  # type: ignore[index]

    # The excluded node is remembered after a restart of the operator, until a user forgives it.
    rig.restart()
    rig.wait_for_leader()
    rig.patch("InferenceService", namespace, "svc", {"spec": {"engine": {"minReplicas": 2}}})
    rig.wait("two groups", lambda: len(rig.all("Pod", namespace, "component=engine")) == 2)
    assert bad not in {each["spec"].get("nodeName") for each in rig.all("Pod", namespace, "component=engine")}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rig.patch("NodeFaults", "", bad, {"metadata": {"annotations": {keys.FORGIVEN: now}}})
    rig.wait("nobody avoids it", lambda: "avoided" not in (rig.get("NodeFaults", "", bad) or {}).get("status", {}), 40)
    rig.patch("InferenceService", namespace, "svc", {"spec": {"engine": {"minReplicas": 3}}})
    rig.wait("the third group excludes nothing", lambda: exclusions(rig, namespace) == ["", bad, bad])
    rig.ready(namespace, "svc", 60)
