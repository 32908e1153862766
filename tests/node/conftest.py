"""Fixtures: a cluster with a real node, if this machine supports one. Otherwise all tests of this directory are skipped,
with the reason.

With OME_E2E=kind, the cluster is a kind cluster in Docker with two workers, and a third worker that is cordoned.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ome_local import layout, lifecycle
from ome_local.binaries import ensure, versions
from ome_local.cluster import Cluster
from ome_local.kind import config as kind_config
from ome_local.realnode import requirements
from tests.conftest import Tables
from tests.support import busybox, clusters
from tests.support.kindnode import docker as kind_docker
from tests.support.kindnode import routes

ON_KIND = os.environ.get("OME_E2E") == "kind"
WORKERS = 2


@dataclass
class Steps:
    """The measured durations of the steps of this session."""

    told: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str, megabytes: float | None = None) -> Iterator[None]:
        """Record the duration of a step in seconds under this name, and its size in megabytes. Both are printed at the
        end of the session.
        """
        began = time.monotonic()
        yield
        size = f"{megabytes:>10,.0f} MB" if megabytes is not None else ""
        self.note(name, f"{time.monotonic() - began:>8.1f} s{size}")

    def note(self, name: str, said: str) -> None:
        """Record another figure under this name."""
        self.told[name] = said


@pytest.fixture(scope="session")
def steps(tables: Tables) -> Iterator[Steps]:
    """Yield the session's record of steps, which is printed at the end of the session."""
    made = Steps()
    yield made
    tables["steps of the node suite"] = [f"{name:<56}{said}" for name, said in made.told.items()]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Exclude fixtures from the time limit. The first test waits for tools, which may take minutes to build."""
    item.add_marker(pytest.mark.timeout(600, func_only=True))


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip tests on a machine that cannot run a real node, with the reason that `ome local up --real-node` prints."""
    if reason := kind_docker.why_not() if ON_KIND else requirements.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def docker(machine: None, steps: Steps) -> Iterator[None]:
    """Provide Docker, kind and kind's node image."""
    with contextlib.ExitStack() as stack:
        with steps.measure("Docker, and kind's node image"):
            stack.enter_context(kind_docker.running())
        yield


@pytest.fixture(scope="session")
def ours() -> None:
    """Skip a test on a kind cluster. Such a test reads the directories and processes of a node or stops its control plane,
    but kind's nodes are containers.
    """
    if ON_KIND:
        pytest.skip("it reaches into the node and the control plane, which are Docker's here")


@pytest.fixture(scope="package")
def real(request: pytest.FixtureRequest, steps: Steps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster whose real nodes have the busybox image: one real node and two simulated nodes with 8 H200 GPUs
    each, or two kind workers and a spare one.
    """
    clusters.sweep()
    request.getfixturevalue("docker" if ON_KIND else "machine")
    with workers(steps) if ON_KIND else node_of_ours(steps) as cluster:
        with steps.measure("image of busybox"):
            cluster.load_image(busybox.image(tmp_path_factory.mktemp("busybox")))
        yield cluster


@contextmanager
def workers(steps: Steps) -> Iterator[Cluster]:
    """Yield a kind cluster, with routes from this machine to its pods. Images are loaded into all workers but the spare one,
    which is cordoned.
    """
    name = clusters.name("kind")
    try:
        with steps.measure(f"kind with {WORKERS} workers and a spare one, until they are Ready"):
            cluster = Cluster.up(name, kind=True, workers=WORKERS + 1)
        cluster.kubectl("cordon", spare(cluster))
        with routes.opened(cluster):
            yield replace(cluster, kept=cluster.kept.with_spec(workers=WORKERS))
    finally:
        with steps.measure("down"):
            lifecycle.down(layout.layout(name))


def spare(cluster: Cluster) -> str:
    """Return the name of the spare worker of the kind cluster. A test that uncordons this worker has to load the images
    into it first.
    """
    return kind_config.real_nodes(cluster.at, WORKERS + 1)[-1]


@contextmanager
def node_of_ours(steps: Steps) -> Iterator[Cluster]:
    """Yield a cluster whose node is a kubelet on this machine, not a container of kind."""
    with steps.measure("packages"):
        requirements.require()
    with steps.measure("tools"):
        ensure.ensure([*versions.CONTROL_PLANE, *versions.NODE])
    name = clusters.name("real")
    try:
        with steps.measure("up, until the node is Ready"):
            cluster = Cluster.up(name, nodes=2, real_node=True)
        yield cluster
    finally:
        with steps.measure("down"):
            lifecycle.down(layout.layout(name))


@pytest.fixture(scope="session")
def busybox_archive(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the image as a file, for clusters that a test creates itself."""
    return busybox.image(tmp_path_factory.mktemp("archive"))
