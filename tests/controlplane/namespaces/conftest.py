"""Fixtures: a cluster with the namespaces of two teams. Each test installs the chart with its own values and starts its
operator.
"""

from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.support import clusters, yamls
from tests.support.rig import Rig

TEAMS = ("team-a", "team-b")
HELD = {"models.ome.io/team-a.basemodel.tiny": "Ready", **yamls.READY}


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Yield a cluster with an audit log, because these tests check the requests of operators."""
    with clusters.fresh("places") as made:
        yield made


@pytest.fixture(scope="package")
def installed(cluster: Cluster) -> Rig:
    """Return the cluster with the namespaces and the charts. All nodes have the models, and there are models and runtimes
    for the whole cluster and for team-a.
    """
    rig = Rig(cluster)
    for name in TEAMS:
        make(rig, name)
    rig.install()
    for node in rig.all("Node", ""):
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": HELD}})
    rig.create(yamls.model())
    rig.create(yamls.runtime("w-pairs", size=2))
    return rig


@pytest.fixture
def rig(installed: Rig) -> Iterator[Rig]:
    """Yield the cluster. No operator runs before the test, and none runs after it."""
    yield installed
    for process in ("operator", "second"):
        installed.stop(process=process)
    for name in TEAMS:
        installed.cluster.kubectl("delete", "leases", "--all", "-n", name)  # A claim outlives its operator for a while.
        for quota in installed.all("ResourceQuota", name):
            installed.delete("ResourceQuota", name, quota["metadata"]["name"])
        installed.clear(name)
        installed.wait(f"{name} empty", lambda name=name: not installed.all("Pod", name), 60)


def make(rig: Rig, namespace: str) -> None:
    """Create a namespace."""
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
