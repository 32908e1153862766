"""Tests of the life of a kind cluster with real containers: it is created, started again, stopped, interrupted and
deleted.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ome_local import layout, lifecycle
from ome_local.cluster import Cluster
from ome_local.kind import config, life
from ome_operator.errors import UserError
from tests.node.conftest import Steps
from tests.support.local import eventually, ready, statefulset
from tests.support.rig import is_ready

SILENCE_S = 75.0
"""Seconds for which a test waits. They are more than the 40 s or 50 s for which controllers of various versions wait for a
silent node, plus the interval of their checks.
"""


def nodes(cluster: Cluster) -> dict[str, Any]:
    """Return name -> node."""
    return {node["metadata"]["name"]: node for node in json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]}


def system_pods(cluster: Cluster, *words: str) -> list[Any]:
    """Return the pods of kind's add-ons and of the control plane."""
    found: list[Any] = json.loads(cluster.kubectl("get", "pods", "-n", "kube-system", *words, "-o", "json"))["items"]
    return found


@pytest.mark.timeout(600, func_only=True)
def test_simulated_nodes_stay_ready_and_real_pods_resolve_names(home: Path, steps: Steps) -> None:
    """Simulated nodes stay Ready for longer than kind's controllers wait for a silent node, even after Docker was stopped
    and started again. Real pods resolve names.
    """
    with steps.measure("ome local up --kind --nodes 4"):
        cluster = Cluster.up("life", kind=True, nodes=4)
    began = time.monotonic()
    cluster.apply(statefulset("sim", 3))
    eventually("3 simulated pods", lambda: ready(cluster, "sim") == 3, 60)
    (real,) = cluster.real_nodes
    addons_are_on(cluster, real)
    cluster.kubectl("delete", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")
    eventually("CoreDNS is back", lambda: all(is_ready(pod) for pod in system_pods(cluster, "-l", "k8s-app=kube-dns")), 60)
    addons_are_on(cluster, real)

    with steps.measure("ome local up of a kind cluster that is up"):
        assert Cluster.up("life").real_nodes == (real,)
    subprocess.run(["docker", "stop", "--time", "5", real], check=True, capture_output=True)
    assert not cluster.is_ready()
    with steps.measure("ome local up of a kind cluster that Docker had stopped"):
        Cluster.up("life")
    time.sleep(max(0.0, began + SILENCE_S - time.monotonic()))
    eventually("the real node again", lambda: is_ready(nodes(cluster)[real]), 60)
    assert all(is_ready(node) for node in nodes(cluster).values())
    assert ready(cluster, "sim") == 3
    with steps.measure("down of a kind cluster"):
        cluster.down()
    assert life.containers(cluster.at) == []
    assert list(home.iterdir()) == []


def addons_are_on(cluster: Cluster, real: str) -> None:
    """Check that all add-ons run, and that none of their pods is on a simulated node."""
    pods = system_pods(cluster)
    assert len(pods) >= 8
    assert {pod["spec"].get("nodeName", real) for pod in pods} == {real}


@pytest.mark.timeout(600, func_only=True)
def test_interrupted_kind_cluster_is_completed_and_others_are_unaffected(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps
) -> None:
    """After an interrupted start, `up` completes the cluster and `down` removes it. A cluster of the same name in another
    home directory is not affected.
    """
    first = layout.layout("half")
    interrupted(first, "half")
    assert life.containers(first) and not first.kubeconfig.exists()
    with steps.measure("ome local up after an interrupted one"):
        cluster = Cluster.up("half")
    assert cluster.is_ready()

    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path))
    second = layout.layout("half")
    interrupted(second, "half")
    assert life.containers(second)
    lifecycle.down(second)
    assert life.containers(second) == []
    monkeypatch.setenv("OME_LOCAL_HOME", str(home))
    assert cluster.is_ready()
    assert life.containers(first) == [config.control_plane(first)]


def interrupted(at: layout.Layout, name: str) -> None:
    """Kill `ome local up --kind` as soon as a container exists."""
    command = [sys.executable, "-m", "ome_operator", "local", "up", "--kind", "--name", name]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        eventually("a container", lambda: bool(life.containers(at)), 60)
    finally:
        subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)
        process.wait()


def test_refused_option_combination_creates_no_files(home: Path) -> None:
    """Options that do not work together are refused with a message before anything is created."""
    for wanted in ({"kind": True, "audit": True}, {"workers": 2}):
        with pytest.raises(UserError, match="Leave"):
            Cluster.up("none", **wanted)
    assert list(home.iterdir()) == []
