"""Tests of a kind cluster from its creation to its removal, wherever the previous attempt stopped."""

from pathlib import Path

import pytest

from ome_local import creation, lifecycle, processes, spec
from ome_local.kind import config, life
from ome_local.layout import Layout
from ome_local.spec import Spec
from ome_operator.errors import UserError
from tests.unit.ome_local.kind.fakes import Fakes


@pytest.fixture(autouse=True)
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the API server of a restarted cluster be ready at once."""
    monkeypatch.setattr(life, "_wait_ready", lambda at: None)


def test_up_creates_kind_cluster_once(at: Layout, fakes: Fakes) -> None:
    """`up` creates the kind cluster once. Only the user may read the kubeconfig and the folder that the nodes mount."""
    life.start(at, 0)
    life.start(at, 0)
    (line,) = fakes.asked()
    which = f"--name {config.name(at)} --kubeconfig {at.root}/kubeconfig.new"
    assert line == f"kind create cluster {which} --config - --wait 120s"
    assert (fakes.here / "config").read_text() == config.cluster(at, 0)
    assert at.kubeconfig.stat().st_mode & 0o077 == 0
    assert at.models.stat().st_mode & 0o777 == 0o755


def test_environment_variable_names_another_node_image(at: Layout, fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable names another node image, for mirrors and for machines without access to the internet."""
    monkeypatch.setenv("OME_KIND_IMAGE", "mirror.example/node:v1")
    life.start(at, 0)
    assert fakes.asked()[-1].endswith("--image mirror.example/node:v1")


def test_interrupted_creation_is_repeated(at: Layout, fakes: Fakes) -> None:
    """If `up` was interrupted while kind created the cluster, the next `up` creates it again. Kind's containers exist, but
    the cluster has no kubeconfig yet, so it is incomplete.
    """
    (fakes.here / "clusters").write_text(f"{config.name(at)}\n")
    (at.root / "kubeconfig.new").write_text("half")
    life.start(at, 0)
    deleted, created = fakes.asked()
    assert deleted.startswith(f"kind delete cluster --name {config.name(at)}")
    assert created.startswith("kind create cluster")
    assert at.kubeconfig.read_text() == "{}\n"


def test_a_failed_creation_leaves_no_kubeconfig(at: Layout, fakes: Fakes) -> None:
    """If kind fails to create the cluster, no kubeconfig is left, and the message names the step and the image."""
    (fakes.here / "fails").write_text(" ✗ Ensuring node image (x)\nERROR: failed to pull image\n" + "stack\n" * 9)
    with pytest.raises(UserError, match=r"(?s)`kind create cluster` failed: .*✗ Ensuring.*ERROR: failed to pull image"):
        life.start(at, 0)
    assert not at.kubeconfig.exists()


def test_up_starts_stopped_kind_containers(at: Layout, fakes: Fakes) -> None:
    """`up` starts the containers of a cluster that are stopped, as after a restart of the machine. The control plane is
    started first.
    """
    life.start(at, 1)
    fakes.asked()
    nodes = [f"{config.name(at)}-{role}" for role in ("worker", "control-plane")]
    (fakes.here / "stopped").write_text("\n".join(nodes))
    life.start(at, 1)
    assert fakes.asked() == [f"docker start {nodes[1]} {nodes[0]}"]


def test_deleted_kind_cluster_is_created_again(at: Layout, fakes: Fakes) -> None:
    """If somebody has deleted the kind cluster, `up` creates it again, and ends the processes that were connected to the old
    one.
    """
    life.start(at, 0)
    (fakes.here / "clusters").write_text("")
    old = processes.spawn(at, "kwok", ["sleep", "1000"])
    life.start(at, 0)
    assert not old.is_running()
    assert [line.split()[1] for line in fakes.asked()] == ["create", "create"]


def test_down_removes_a_partly_created_cluster(at: Layout, fakes: Fakes) -> None:
    """`down` removes a kind cluster whose creation was interrupted: cluster.json states that kind created it, but it has no
    kubeconfig yet.
    """
    creation.create(at, Spec(kind=True))
    (fakes.here / "clusters").write_text(f"{config.name(at)}\n")
    assert lifecycle.down(at)
    assert [line.split()[1] for line in fakes.asked()] == ["delete"]
    assert not at.root.exists()


def test_container_still_being_created_is_removed_after_down(at: Layout, fakes: Fakes) -> None:
    """If Docker is still creating a container when `down` runs, the container is removed afterwards. Kind prints "Deleted
    nodes" although Docker is still creating a container that an interrupted `up` had requested.
    """
    creation.create(at, Spec(kind=True))
    (fakes.here / "late").write_text("half\n")
    assert lifecycle.down(at)
    assert [line.split()[1] for line in fakes.asked()] == ["delete", "delete"]


def test_down_does_not_contact_kind_for_a_cluster_without_kind(at: Layout, fakes: Fakes) -> None:
    creation.create(at, Spec())
    assert lifecycle.down(at)
    assert fakes.asked() == []


def test_down_when_cluster_json_cannot_be_read(at: Layout, fakes: Fakes) -> None:
    """If cluster.json cannot be read, `down` recognizes a kind cluster by its folder: only a cluster without kind has the
    key of a certificate authority there.
    """
    at.spec.write_text("{")
    assert life.is_ours(at)
    (at.pki / "ca.key").touch()
    assert not life.is_ours(at)


def test_down_without_the_kind_program_removes_nothing(at: Layout, fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program `kind`, the cluster's files must stay. If they were removed, its container would keep running and
    belong to no known cluster.
    """
    creation.create(at, Spec(kind=True))
    running = processes.spawn(at, "kwok", ["sleep", "1000"])
    (fakes.here / "kind").unlink()
    monkeypatch.setenv("PATH", str(fakes.here))
    with pytest.raises(
        UserError, match=r"Cluster mine runs in Docker and .* there is no `kind` in PATH, so nothing was removed"
    ):
        lifecycle.down(at)
    assert running.is_running()
    assert spec.load(at) is not None
    processes.end_all(at)


def test_up_of_an_existing_kind_cluster_builds_no_control_plane(
    at: Layout, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an existing kind cluster, `up` without --kind downloads and builds neither etcd nor an API server."""
    creation.create(at, Spec(kind=True))
    wanted: list[str] = []

    def noted(names: list[str], kubernetes: str) -> dict[str, Path]:
        wanted.extend(names)
        raise UserError("enough")

    monkeypatch.setattr("ome_local.binaries.ensure.ensure", noted)
    with pytest.raises(UserError, match="enough"):
        lifecycle.up(at, Spec())
    assert set(wanted) == {"kwok", "kubectl", "helm"}
