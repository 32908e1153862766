"""Tests in which nodes that are containers of kind are drained, stopped and disconnected, while groups of a service run on
them.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_local.cluster import Cluster
from ome_local.kind.config import control_plane
from ome_local.realnode.requirements import PATH
from tests.node.conftest import ON_KIND, Steps
from tests.node.serving.conftest import READY_WITHIN_S
from tests.node.serving.test_faults import TINY, leaders, ready_leaders
from tests.node.serving.test_lost import (
    GRACE_S,
    LOST_WITHIN_S,
    engines,
    groups,
    objects,
    phases,
    recycles,
    said_by,
    start,
)
from tests.support.kubelet import reports
from tests.support.rig import Manifest, Rig

pytestmark = [
    pytest.mark.skipif(not ON_KIND, reason="needs nodes of kind's: `make e2e` runs it with OME_E2E=kind"),
    pytest.mark.timeout(900, func_only=True),
]
MANIFEST = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
TOKENS_WITHIN_S = 300.0
"""Seconds within which a request has to return tokens. They are enough for several attempts: a request over a connection
to a pod whose node has vanished hangs for a minute."""
GRACE = "--node-monitor-grace-period="


def docker(*words: str) -> str:
    """Run a Docker command and return its output."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout


def grace(cluster: Cluster) -> str:
    """Return how long the running controller-manager waits for a silent node."""
    query = "jsonpath={.items[*].spec.containers[0].command}"
    said = cluster.kubectl("get", "pods", "-n", "kube-system", "-l", "component=kube-controller-manager", "-o", query)
    return said.partition(GRACE)[2].partition('"')[0]


@pytest.fixture(scope="module")
def watched(serving: Rig) -> Iterator[Rig]:
    """Yield the cluster with a controller-manager that notices silent nodes as in any other cluster. The kubelet restarts
    the controller-manager when its manifest changes.
    """
    cluster, node = serving.cluster, control_plane(serving.cluster.at)

    def wait_for(seconds: str) -> None:
        docker("exec", node, "sed", "-i", f"s/{GRACE}.*/{GRACE}{seconds}/", MANIFEST)
        serving.wait(f"a controller-manager with {seconds}", lambda: grace(cluster) == seconds, 120)

    assert grace(cluster) == "1h"
    wait_for(f"{GRACE_S}s")
    yield serving
    wait_for("1h")


def on(rig: Rig, node: str) -> list[Manifest]:
    """Return the leader pods of the service's engines on this node."""
    return [pod for pod in leaders(rig) if pod["spec"].get("nodeName") == node]


@pytest.fixture
def victim(serving: Rig, tiny: str) -> str:
    """Return the worker node on which the operator does not run. The decode group of the service runs on it."""
    cluster = serving.cluster
    (operator,) = serving.all("Pod", "ome")
    home = operator["spec"]["nodeName"]
    (node,) = set(cluster.real_nodes) - {home}
    if not on(serving, node):
        cluster.kubectl("cordon", home)
        try:
            cluster.kubectl("delete", "pod", "-n", TINY, "-l", "component=decoder", "--wait=false")
            serving.wait("the decode group is on it", lambda: on(serving, node), READY_WITHIN_S)
        finally:
            cluster.kubectl("uncordon", home)
    whole(serving)
    return node


def whole(rig: Rig) -> None:
    """Wait until every group is ready and the service is Ready."""
    rig.wait("ready leaders", lambda: len(ready_leaders(rig)) == len(leaders(rig)) > 0, READY_WITHIN_S)
    rig.ready(TINY, TINY, READY_WITHIN_S)


def test_drained_node_has_no_pods_and_the_service_becomes_complete(
    serving: Rig, tiny: str, victim: str, steps: Steps
) -> None:
    """A drained node has no pods of the service any more, and the service becomes complete: the disruption budget permits
    the eviction, and the group starts again on the other worker.
    """
    cluster = serving.cluster
    said = serving.wait("tokens", lambda: said_by(tiny), TOKENS_WITHIN_S)
    try:
        with steps.measure("worker of kind's drained, until the service is whole"):
            words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
            cluster.kubectl("drain", victim, *words)
            assert not on(serving, victim)
            serving.wait("groups elsewhere", lambda: len(ready_leaders(serving)) == 2, READY_WITHIN_S)
            whole(serving)
    finally:
        cluster.kubectl("uncordon", victim)
    assert serving.wait("tokens", lambda: said_by(tiny), TOKENS_WITHIN_S) == said


def test_pods_restart_after_their_node_was_stopped(watched: Rig, tiny: str, victim: str, steps: Steps) -> None:
    """A node is stopped and started again. While the node is stopped, the status reports its groups as lost. Afterwards the
    same pods start again and generate the same tokens.
    """
    said = watched.wait("tokens", lambda: said_by(tiny), TOKENS_WITHIN_S)
    before, all_before, spent = (
        {one["metadata"]["name"]: start(one) for one in on(watched, victim)},
        objects(watched),
        recycles(watched),
    )
    docker("kill", victim)
    try:
        with steps.measure("worker of kind's stopped, until the status says so"):
            watched.wait("the loss is told", lambda: "NodeLost" in phases(watched), LOST_WITHIN_S)
        assert watched.condition(TINY, TINY, "Ready")["status"] == "False"
    finally:
        docker("start", victim)
    with steps.measure("worker started again, until the service is whole"):
        watched.wait("it reports", lambda: reports(watched, victim), LOST_WITHIN_S)
        watched.wait("other starts", lambda: set(engines(watched).values()).isdisjoint(before.values()), READY_WITHIN_S)
        whole(watched)
    assert watched.wait("tokens", lambda: said_by(tiny), TOKENS_WITHIN_S) == said
    assert objects(watched) == all_before
    assert recycles(watched) - spent <= len(groups(watched)), "one recycle per group at most"


def test_nothing_is_deleted_while_a_node_is_disconnected(watched: Rig, tiny: str, victim: str, steps: Steps) -> None:
    """A node loses its network while its pods keep running. Nothing is deleted, and every group is ready once the network is
    back.
    """
    said = watched.wait("tokens", lambda: said_by(tiny), TOKENS_WITHIN_S)
    before, all_before, spent = engines(watched), objects(watched), recycles(watched)
    cable = link(victim)
    ip("link", "set", cable, "down")
    try:
        with steps.measure("worker of kind's cut off, until the status says so"):
            watched.wait("the loss is told", lambda: "NodeLost" in phases(watched), LOST_WITHIN_S)
        assert watched.condition(TINY, TINY, "Ready")["status"] == "False"
    finally:
        ip("link", "set", cable, "up")
    with steps.measure("worker reached again, until the service is whole"):
        watched.wait("it reports", lambda: reports(watched, victim), LOST_WITHIN_S)
        whole(watched)
    assert watched.wait("tokens", lambda: said_by(tiny), TOKENS_WITHIN_S) == said
    assert (engines(watched), objects(watched), recycles(watched)) == (before, all_before, spent)


def link(node: str) -> str:
    """Return the interface on this machine to which the container's eth0 is connected."""
    index = docker("exec", node, "cat", "/sys/class/net/eth0/iflink").strip()
    files = Path("/sys/class/net").glob("*/ifindex")
    return next(file.parent.name for file in files if file.read_text().strip() == index)


def ip(*words: str) -> None:
    """Run the `ip` command on this machine."""
    subprocess.run(["ip", *words], check=True, env={**os.environ, "PATH": PATH})
