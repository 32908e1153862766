"""Fixtures: a cluster with the real KEDA, an operator that creates ScaledObjects, and a stand-in for Prometheus.

KEDA is compiled, and its tests wait for minutes, so they run only with OME_E2E.
"""

import itertools
from collections.abc import Iterator

import pytest

from tests.support import clusters, yamls
from tests.support.load_server import LoadServer
from tests.support.rig import Rig
from tests.support.works_with import MINUTES

_NUMBER = itertools.count()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip the tests without OME_E2E, and exclude fixtures from the time limit."""
    item.add_marker(MINUTES)
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
        made.wait_for_leader()
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
