"""A cluster with two namespaces of teams; each test installs the chart with its own values and starts its operator."""

from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.support import clusters, yamls
from tests.support.rig import Rig

TEAMS = ("team-a", "team-b")
HELD = {"models.ome.io/team-a.basemodel.tiny": "Ready", **yamls.READY}


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """With an audit log: what operators ask is what these tests are about."""
    with clusters.fresh("places") as made:
        yield made


@pytest.fixture(scope="package")
def installed(cluster: Cluster) -> Rig:
    """Namespaces, charts, nodes that hold the models, and a model and a runtime for the cluster and for team-a."""
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
    """No operator runs before and after a test."""
    yield installed
    for process in ("operator", "second"):
        installed.stop(process=process)
    for name in TEAMS:
        installed.cluster.kubectl("delete", "leases", "--all", "-n", name)  # a claim lives on for a while
        for quota in installed.all("ResourceQuota", name):
            installed.delete("ResourceQuota", name, quota["metadata"]["name"])
        installed.clear(name)
        installed.wait(f"{name} empty", lambda name=name: not installed.all("Pod", name), 60)


def make(rig: Rig, namespace: str) -> None:
    """A namespace."""
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
