"""Tests of the pure parts of the real node: addresses, files, command lines, and the reasons why a machine cannot have
one.
"""

import ipaddress
import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest

from ome_local import components, creation, layout, spec
from ome_local.cancel import side_by_side
from ome_local.realnode import cgroups, configs, namespaces, requirements
from ome_local.realnode.spec import NUMBERS, PLACED, TAINT, Network, RealNode, link_name
from ome_local.spec import Spec
from ome_operator.errors import UserError


@pytest.fixture
def node(tmp_path: Path) -> RealNode:
    """Return the fourth node of a machine."""
    return RealNode(layout.Layout(tmp_path / "mine"), Network(3))


class TestAddresses:
    """Tests that no two nodes of a machine share an address."""

    def test_address_ranges_of_nodes_do_not_overlap(self) -> None:
        """The address ranges of any two nodes do not overlap. A node's own addresses are in its range, and no
        pod gets them.
        """
        ranges = [ipaddress.ip_network(text) for n in NUMBERS for text in (Network(n).pods, Network(n).services)]
        assert not any(one.overlaps(two) for i, one in enumerate(ranges) for two in ranges[:i])
        network = Network(63)
        for address in (network.gateway, network.host):
            assert ipaddress.ip_address(address) in ipaddress.ip_network(network.pods)
        assert ipaddress.ip_address(network.service_ip) in ipaddress.ip_network(network.services)

    def test_used_address_ranges_are_skipped(self) -> None:
        """A range of addresses is not chosen if a route of the machine overlaps it, or if a stopped cluster has
        its number.
        """
        assert namespaces.free_network([], ()) == Network(0)
        assert namespaces.free_network(["192.0.2.0/24", "10.244.0.0/24", "10.97.3.0/24", "10.244.3.7"], {2}) == Network(4)
        with pytest.raises(UserError, match="routes of this machine use all of them"):
            namespaces.free_network(["10.0.0.0/8"], ())

    def test_home_directory_below_run_is_refused(self) -> None:
        """A home directory in /run is refused, because the node has its own /run, which would hide it."""
        with pytest.raises(UserError, match="mounts its own folder over /run: set OME_LOCAL_HOME"):
            namespaces.choose(layout.Layout(Path("/run/x")), ())

    def test_address_range_is_stored_with_the_cluster(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The chosen address range is stored with the cluster. The next cluster gets another range, and the kubeconfigs of
        the components contain an address of the cluster's own.
        """
        monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path))
        monkeypatch.setattr(namespaces, "_routes", lambda: ["10.244.1.0/24"])
        kept = [creation.create(layout.layout(name), Spec(real_node=True)) for name in ("a", "b")]
        assert [one.network for one in kept] == [Network(0), Network(2)]
        at = layout.layout("b")
        assert spec.load(at) == kept[1]
        for user in ("kubelet", "kube-proxy", "coredns"):
            server = json.loads(at.component_kubeconfig(user).read_text())["clusters"][0]["cluster"]["server"]
            assert server == f"https://10.244.2.254:{kept[1].ports['apiserver']}"


def test_real_node_files_are_valid(node: RealNode) -> None:
    """Each file is valid in its language, and names nothing that another node uses."""
    files = configs.files(node, "/usr/lib/cni", 16 * 2**30)
    containerd = tomllib.loads(files["containerd.toml"])
    assert containerd["root"].startswith(str(node.folder))
    assert containerd["plugins"]["io.containerd.grpc.v1.cri"]["cni"]["bin_dir"] == "/usr/lib/cni"
    kubelet = json.loads(files["kubelet.yaml"])
    assert kubelet["cgroupRoot"] == f"/{link_name(node.at.root)}"
    assert kubelet["enforceNodeAllocatable"] == ["pods"]
    assert kubelet["systemReserved"] == {"memory": f"{4 * 2**20}Ki"}  # a quarter, so all pods together may use 12 GiB
    assert kubelet["clusterDNS"] == [kubelet["address"]] == ["10.244.3.1"]
    assert kubelet["registerWithTaints"] == [TAINT]
    [[pods]] = json.loads(files["net.d/10-pods.conflist"])["plugins"][0]["ipam"]["ranges"]
    assert pods == {
        "subnet": "10.244.3.0/24", "gateway": "10.244.3.1", "rangeStart": "10.244.3.10", "rangeEnd": "10.244.3.250",
    }  # fmt: skip
    assert "bind 10.244.3.1\n" in files["Corefile"]


def test_first_api_server_is_reachable_from_pods(node: RealNode) -> None:
    """The first API server listens for pods and is listed in the Service `kubernetes`. A second API server is not listed."""
    ports = {name: 20000 + number for number, name in enumerate(components.PORTS)}
    kept = spec.ClusterFile(Spec(real_node=True), ports, node.network)
    first, second = (
        components.apiserver(node.at, kept, ports[name], node.at.audit_log) for name in ("apiserver", "apiserver-2")
    )
    assert {"--bind-address=0.0.0.0", "--advertise-address=10.244.3.254", "--endpoint-reconciler-type=lease"} <= set(first)
    assert "--service-cluster-ip-range=10.99.0.0/16" in first
    assert "--endpoint-reconciler-type=none" in second


def test_pod_on_the_real_node_gets_the_toleration_of_its_taint() -> None:
    """A pod that is placed on the real node gets the toleration of the node's taint, and nothing else."""
    [toleration] = PLACED["tolerations"]
    assert toleration == {**TAINT, "operator": "Equal"}
    assert PLACED["nodeSelector"] == {TAINT["key"]: TAINT["value"]}


def test_cgroup_hierarchies_of_both_versions_are_found() -> None:
    """The cgroup hierarchies are read from /proc/mounts."""
    mounts = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""
    assert cgroups.hierarchies(mounts) == [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/unified")]


class TestWhyNot:
    """Tests of the reason why a machine cannot have a real node: one message, before anything is started."""

    def test_real_node_requires_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the user is not root, the message says so, before any other requirement is checked."""
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert str(requirements.why_not()).startswith("A real node creates networks and mounts, which only root may do")

    def test_real_node_requires_linux(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On another system than Linux, the message contains an alternative."""
        monkeypatch.setattr(requirements.sys, "platform", "darwin")
        assert requirements.why_not() == "A real node runs on Linux, not on darwin: use simulated nodes, or --kind."

    def test_missing_packages_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If packages are missing, the message names those to install."""
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(shutil, "which", lambda program, path=None: None)
        monkeypatch.setattr(requirements, "_PLUGIN_FOLDERS", ())
        said = "A real node needs containerd, runc, nftables, iproute2, containernetworking-plugins (names"
        assert str(requirements.why_not()).startswith(said)

    def test_refusal_of_kernel_is_explained(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the kernel refuses what a node needs, the message states what was tried and the kernel's answer."""
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(requirements, "_PROBES", (("sh", "echo no >&2; exit 1", "do this in {folder}"),))
        monkeypatch.setattr(requirements, "missing_packages", list)
        said = str(requirements.why_not())
        assert said.startswith("A real node cannot run here: this machine does not permit ome to do this in ")
        assert "--privileged" in said


def test_packages_are_installed_sequentially(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only one apt-get runs at a time. The real node and buildah install their packages at the same time, and apt-get fails
    while another apt-get is running.
    """
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/sh\nmkdir {tmp_path}/lock || exit 100\nsleep 0.3\nrmdir {tmp_path}/lock\necho "$@" >>{tmp_path}/said\n'
    )
    apt.chmod(0o755)
    monkeypatch.setattr(requirements, "PATH", f"{tmp_path}:/usr/bin:/bin")
    side_by_side(requirements.install, [["containerd", "runc"], ["buildah"], ["mmdebstrap"]])
    said = [line.rpartition(" install ")[2] for line in (tmp_path / "said").read_text().splitlines()]
    assert sorted(said) == ["buildah", "containerd runc", "mmdebstrap"]
