"""One cluster for the whole suite: 16 simulated 8xH200 nodes, our charts, our operator with its own token."""

import itertools
from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.conftest import Tables
from tests.support import clusters, yamls
from tests.support.fault_bench import Account
from tests.support.rig import Rig

_NUMBER = itertools.count()


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """For tests of the whole: charts and one operator for all of them."""
    with clusters.fresh("operator") as made:
        yield made


@pytest.fixture(scope="package")
def installed(cluster: Cluster) -> Rig:
    """The cluster with charts and a model on every node; no operator yet."""
    rig = Rig(cluster)
    rig.install()
    for node in rig.all("Node", ""):
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
    rig.create(yamls.model())
    return rig


@pytest.fixture
def rig(installed: Rig) -> Iterator[Rig]:
    """The cluster with a running operator; whatever a test did to it is mended."""
    if not installed.cluster.process("operator"):
        installed.start()
    yield installed
    for name in ("etcd", "apiserver", "controller-manager", "scheduler", "kwok"):
        if not installed.cluster.process(name):
            installed.cluster.start(name)


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """A namespace of its own for each test, emptied afterwards."""
    name = f"t{next(_NUMBER)}"
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    rig.clear(name)
    rig.wait(f"{name} empty", lambda: not rig.all("Pod", name) and not rig.all("StatefulSet", name), 60)
    rig.delete("Namespace", "", name)


@pytest.fixture(scope="session")
def account(tables: Tables) -> Iterator[Account]:
    """Of the faults that were tried and what they cost; it is shown when the session ends."""
    made = Account()
    yield made
    tables["faults on the control plane"] = list(made.lines())
