"""Fixtures: one cluster for the whole suite with 16 simulated 8xH200 nodes, the charts, and the operator with its own
token.
"""

import itertools
from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.conftest import Tables
from tests.support import clusters, drains, yamls
from tests.support.fault_bench import Account
from tests.support.rig import Rig

_NUMBER = itertools.count()


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Yield the cluster for end-to-end tests, which share the charts and one operator."""
    with clusters.fresh("operator") as made:
        yield made


@pytest.fixture(scope="package")
def installed(cluster: Cluster) -> Rig:
    """Return the cluster with the charts and a model on every node, but without an operator."""
    rig = Rig(cluster)
    rig.install()
    for node in rig.all("Node", ""):
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
    rig.create(yamls.model())
    return rig


@pytest.fixture
def rig(installed: Rig) -> Iterator[Rig]:
    """Yield the cluster with a running operator. What a test changes about the operator is restored."""
    if not installed.cluster.process("operator"):
        installed.start()
    yield installed
    for name in ("etcd", "apiserver", "controller-manager", "scheduler", "kwok"):
        if not installed.cluster.process(name):
            installed.cluster.start(name)


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """Yield a separate namespace for each test, which is emptied afterwards."""
    with rig.own_namespace(f"t{next(_NUMBER)}") as name:
        yield name


@pytest.fixture(scope="module")
def stage(installed: Rig) -> Iterator[Rig]:
    """Yield the cluster with the runtimes of services that move, and a running operator. Its additional nodes are removed
    afterwards.
    """
    for body in drains.runtimes():
        installed.create(body)
    if not installed.cluster.process("operator"):
        installed.start()
    installed.wait_for_leader()
    yield installed
    for body in drains.runtimes():
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])
    drains.empty(installed)


@pytest.fixture(scope="session")
def account(tables: Tables) -> Iterator[Account]:
    """Yield the record of the faults that were caused and of their costs, which is printed at the end of the session."""
    made = Account()
    yield made
    tables["faults on the control plane"] = list(made.lines())
