"""Tests that `down` removes everything that `up` creates, even after `up` was killed."""

import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_local import layout, lifecycle, processes, spec
from ome_local.cluster import Cluster
from ome_local.images import build
from ome_local.realnode import cgroups, image_cache, images
from ome_local.realnode.spec import COMPONENTS
from ome_operator.errors import UserError
from tests.node.serving.conftest import MINUTES
from tests.node.test_pods import eventually, inside, pod, wait_ready
from tests.support import busybox, clusters, traces


@pytest.fixture
def name(real: Cluster) -> Iterator[str]:
    """Yield a name for a second cluster, which is deleted after the test."""
    name = clusters.name("life")
    yield name
    lifecycle.down(layout.layout(name))


def test_two_clusters_with_real_nodes_leave_nothing_behind(real: Cluster, name: str, busybox_archive: Path) -> None:
    """Two clusters with real nodes run at the same time and have separate networks. After both are deleted, one of them with
    a running pod, the machine is in its original state.
    """
    root = layout.layout(name).root
    before = traces.current_traces(root)
    cluster = Cluster.up(name, real_node=True)
    assert cluster.node.pods != real.node.pods
    cluster.load_image(busybox_archive)
    memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    mount = {"volumeMounts": [{"name": "memory", "mountPath": "/memory"}]}
    cluster.apply(pod("alone", "exec sleep 1000", container=mount, volumes=[memory]))
    wait_ready(cluster, "alone")
    look = "wget -q -O- --no-check-certificate https://kubernetes.default.svc/readyz"
    eventually("kube-proxy has the Service", lambda: answers(cluster, "alone", look) == "ok")
    seen = traces.changed_traces(before, traces.current_traces(root))
    assert {"links", "routes", "control groups", "processes"} <= set(seen), "the comparison must find the traces of a node"
    cluster.down()
    assert traces.changed_traces(before, traces.current_traces(root)) == {}
    assert not cluster.at.root.exists()


@MINUTES
def test_killed_up_is_completed_by_the_next_up(real: Cluster, name: str) -> None:
    """After `up` is killed at any moment, the next `up` completes the cluster, and `down` removes all of it."""
    at, dice = layout.layout(name), random.Random(7)
    before = traces.current_traces(at.root)
    for completes in (False, True, False):
        killed_up(name, dice.uniform(0.3, 4.0))
        if completes:
            cluster = Cluster.up(name, real_node=True)
            assert all(row.pid for row in cluster.status())
        lifecycle.down(at)
        assert traces.changed_traces(before, traces.current_traces(at.root)) == {}, completes


def killed_up(name: str, after_s: float) -> None:
    """Run `up` and kill it after `after_s` seconds."""
    command = [sys.executable, "-m", "ome_operator", "local", "up", "--real-node", "--name", name]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    process.kill()
    process.wait()
    cgroups.remove(
        f"ome-probe-{process.pid}"
    )  # The check whether `up` may create cgroups uses this name, and no other code does.


def test_pods_keep_running_after_kubelet_and_containerd_are_killed(name: str, real: Cluster, busybox_archive: Path) -> None:
    """If kubelet and containerd are killed, pods keep running. If the process that holds the node's namespaces is killed,
    the next `up` starts the node with new containers.
    """
    cluster = Cluster.up(name, real_node=True)
    cluster.load_image(busybox_archive)
    cluster.apply(pod("kept", "exec sleep 1000"))
    wait_ready(cluster, "kept")
    container = "jsonpath={.status.containerStatuses[0].containerID}"
    began = cluster.kubectl("get", "pod", "kept", "-o", container)
    for program in ("kubelet", "containerd"):
        cluster.restart(program, signal.SIGKILL)
    eventually("the new kubelet knows the pod", lambda: answers(cluster, "kept", "echo here") == "here\n")
    assert began == cluster.kubectl("get", "pod", "kept", "-o", container)
    cluster.stop(COMPONENTS[0], signal.SIGKILL)
    cluster = Cluster.up(name)
    assert all(row.pid for row in cluster.status())
    eventually("a new container", lambda: cluster.kubectl("get", "pod", "kept", "-o", container) not in ("", began), 60.0)
    eventually("it answers", lambda: answers(cluster, "kept", "echo here") == "here\n")


def answers(cluster: Cluster, name: str, script: str) -> str:
    """Return the output of a shell script in the pod; empty if it cannot run or fails."""
    try:
        return inside(cluster, name, script)
    except UserError:
        return ""


def test_cluster_keeps_the_node_kinds_of_its_creation(
    real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster keeps the kinds of nodes with which it was created: `up` with a real node is refused if the cluster was
    created without a real node.
    """
    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path))
    at = layout.layout("plain")
    at.make()
    spec.save(at, spec.ClusterFile(spec.Spec(), {}))
    with pytest.raises(UserError, match="Cluster plain was created without a real node"):
        Cluster.up("plain", real_node=True)
    assert processes.processes_of_cluster(at) == []


@MINUTES
def test_new_cluster_has_images_of_deleted_cluster(
    real: Cluster, name: str, busybox_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of a new cluster has the images that the node of a deleted cluster had, but nothing of the pods that ran
    there.
    """
    place = layout.layout(name).root.with_name(f"{name}-images")
    monkeypatch.setattr(image_cache, "_place", lambda: place)  # next to the cluster of the session
    cluster = Cluster.up(name, real_node=True)
    cluster.load_image(busybox_archive)
    cluster.apply(pod("first", "exec sleep 1000"))
    wait_ready(cluster, "first")
    cluster.down()
    assert place.is_dir()
    cluster = Cluster.up(name, real_node=True)
    assert f"docker.io/{busybox.REFERENCE}" in images.image_references(cluster.node)
    layers = snapshots(cluster)
    assert "Committed" in layers and "Active" not in layers, "only unpacked layers, and no writable layer of a container"
    busybox_archive.touch()  # For the node, this is a new file.
    cluster.load_image(busybox_archive)
    assert len([one for one in images.loaded_records(cluster.node.images) if busybox.REFERENCE in one.read_text()]) == 1
    cluster.load_image(namesake(tmp_path))
    cluster.load_image(busybox_archive)  # Another image has taken its name meanwhile.
    images.remove_unused(cluster.node)
    assert len(images.image_references(cluster.node)) == 6, (
        "busybox and pause, each by its name, by buildah's, and by its digest"
    )
    assert snapshots(cluster) == layers, "an import fails if a layer that it finds is removed meanwhile"
    cluster.apply(pod("second", "exec sleep 1000"))
    wait_ready(cluster, "second")
    monkeypatch.setattr(image_cache, "store_images", lambda at: None)
    cluster.down()
    shutil.rmtree(place, ignore_errors=True)


def snapshots(cluster: Cluster) -> str:
    """Return a line for each unpacked layer and for each writable layer of a container."""
    ctr = ["ctr", "--address", str(cluster.node.socket), "--namespace", "k8s.io", "snapshots", "list"]
    return subprocess.run(ctr, capture_output=True, text=True, check=True).stdout


def namesake(folder: Path) -> Path:
    """Return an image without files that has the same name as the busybox image."""
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.addfile(tarfile.TarInfo("empty"))
    return build.single("namesake", busybox.REFERENCE, {folder / "layer.tar": "/"})


@MINUTES
def test_images_can_be_loaded_before_the_node_exists(name: str, real: Cluster, busybox_archive: Path) -> None:
    """Images can be loaded into the node's disk while programs of the node are still missing, as in the demo."""
    before = Cluster.up(name, nodes=1, real_node=True, join=False)
    assert before.process("kubelet") is None and len(before.kubectl("get", "nodes", "-o", "name").split()) == 1
    before.load_image(busybox_archive)
    cluster = Cluster.up(name, real_node=True)
    assert all(row.pid for row in cluster.status())
    cluster.apply(pod("there", "exec sleep 1000"))
    wait_ready(cluster, "there")
