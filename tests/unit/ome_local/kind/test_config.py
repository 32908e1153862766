"""Tests of the configuration that kind receives for a cluster."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from ome_local.kind import config
from ome_local.layout import Layout
from ome_local.realnode.spec import NUMBERS, Network


@pytest.fixture
def at(tmp_path: Path) -> Layout:
    """Return the folder of a cluster."""
    return Layout(tmp_path / "mine")


def patches(at: Layout) -> dict[str, Any]:
    """Return the controller manager's arguments by the version of kubeadm's configuration."""
    told = [json.loads(one) for one in json.loads(config.cluster(at, 0))["kubeadmConfigPatches"]]
    assert {one["kind"] for one in told} == {"ClusterConfiguration"}
    return {one["apiVersion"]: one["controllerManager"]["extraArgs"] for one in told}


def test_controller_manager_tolerates_silent_nodes_for_ten_minutes(at: Layout) -> None:
    """The controller manager waits for longer than ten minutes for a silent node, because simulated nodes send a heartbeat
    every ten minutes. With kind's limit of 50 s they would be NotReady forever.
    """
    found = patches(at)
    assert found["kubeadm.k8s.io/v1beta3"] == {"node-monitor-grace-period": "1h"}
    listed = {one["name"]: one["value"] for one in found["kubeadm.k8s.io/v1beta4"]}
    assert listed["node-monitor-grace-period"] == "1h"
    assert listed["enable-hostpath-provisioner"] == "true", "kind's own argument"


def test_control_plane_is_the_real_node_without_workers(at: Layout) -> None:
    """Without workers, the control plane is the real node. It has the label of real nodes, and mounts the cluster's own
    models from a folder of the user who ran the command, and not of root.
    """
    (node,) = json.loads(config.cluster(at, 0))["nodes"]
    assert (node["role"], node["labels"]) == ("control-plane", {"ome.io/real": "true"})
    mount = {"hostPath": str(at.root / "models"), "containerPath": "/var/lib/ome/models", "readOnly": True}
    assert node["extraMounts"] == [mount]
    assert config.real_nodes(at, 0) == (config.control_plane(at),)


def test_workers_are_the_real_nodes_if_there_are_any(at: Layout) -> None:
    """If there are workers, they are the real nodes, and the control plane runs no pods. Kind adds a number to the names of
    workers, from the second one on.
    """
    first, *workers = json.loads(config.cluster(at, 3))["nodes"]
    assert first == {"role": "control-plane"}
    assert [(one["role"], one["labels"]) for one in workers] == [("worker", {"ome.io/real": "true"})] * 3
    name = config.name(at)
    assert config.real_nodes(at, 3) == (f"{name}-worker", f"{name}-worker2", f"{name}-worker3")


def test_clusters_in_two_home_directories_have_different_kind_names(tmp_path: Path) -> None:
    """Clusters of one name in two home directories have different names in kind, because kind's clusters belong to the
    machine. A host name has at most 63 characters.
    """
    one, two = (config.name(Layout(tmp_path / home / "ome-demo")) for home in ("a", "b"))
    assert one != two
    assert one.startswith("ome-demo-") and len(one) == len("ome-demo-") + 8
    assert len(config.control_plane(Layout(tmp_path / ("x" * 40)))) <= 63


def test_kind_cluster_addresses_differ_from_those_of_real_nodes() -> None:
    """A kind cluster uses other addresses than clusters with a real node, so that a machine can have routes to both at the
    same time.
    """
    mine = [ipaddress.ip_network(one) for one in (config.PODS, config.SERVICES)]
    others = [ipaddress.ip_network(one) for n in NUMBERS for one in (Network(n).pods, Network(n).services)]
    assert not any(one.overlaps(other) for one in mine for other in others)
