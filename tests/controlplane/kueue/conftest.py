"""Fixtures: a cluster with the real Kueue and an operator that releases partial gangs in a queue after ten seconds.

Kueue is compiled, and its tests wait for minutes, so they run only with OME_E2E.
"""

import itertools
from collections.abc import Iterator

import pytest

from tests.support import clusters, yamls
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
    with clusters.fresh("kueue", kueue=True) as cluster:
        made = Rig(cluster)
        made.install()
        for node in made.all("Node", ""):
            made.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
        made.create(yamls.model())
        made.create(yamls.runtime("split", size=2, gpus=8, decoder=True, router=False))
        made.start("operator", "--gang-timeout", "1")
        made.wait_for_leader()
        yield made


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """Yield a separate namespace for each test, which is emptied afterwards."""
    with rig.own_namespace(f"q{next(_NUMBER)}") as name:
        yield name
