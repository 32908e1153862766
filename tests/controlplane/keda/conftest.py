"""Fixtures: a cluster with the real KEDA, an operator that creates ScaledObjects, and a stand-in for Prometheus.

KEDA is compiled, which takes minutes. Without OME_E2E these tests run only where its programs exist already.
"""

import itertools
import os
from collections.abc import Iterator

import pytest

from ome_local.binaries import ensure
from ome_local.binaries.versions import TOOLS, this_machine
from tests.support import clusters, yamls
from tests.support.load_server import LoadServer
from tests.support.rig import Rig

_NUMBER = itertools.count()
BUILT = all(ensure.place(TOOLS[name], this_machine()).exists() for name in ("keda-operator", "keda-adapter"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip the tests where KEDA would have to be compiled first, and exclude fixtures from the time limit."""
    if not (BUILT or os.environ.get("OME_E2E")):
        item.add_marker(pytest.mark.skip(reason="KEDA is not compiled: make e2e, or ome local up --with keda"))
    item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.fixture(scope="package")
def rig() -> Iterator[Rig]:
    """Yield the cluster with the charts, a model on every node, and a running operator."""
    with clusters.fresh("keda", 4, keda=True) as cluster:
        made = Rig(cluster)
        made.install("keda.enabled=true")
        for node in made.all("Node", ""):
            made.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
        made.create(yamls.model())
        made.create(yamls.runtime("one", gpus=1, router=False))
        made.start("operator", "--keda")
        made.leads()
        yield made


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """Yield a separate namespace for each test, which is emptied afterwards."""
    with rig.own_namespace(f"k{next(_NUMBER)}", "ScaledObject", 90) as name:
        yield name


@pytest.fixture
def prometheus() -> Iterator[LoadServer]:
    """Yield the stand-in for Prometheus."""
    with LoadServer() as server:
        yield server
