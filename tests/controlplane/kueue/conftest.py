"""Fixtures: a cluster with the real Kueue and an operator that releases partial gangs in a queue after ten seconds.

Kueue is compiled, which takes minutes. Without OME_E2E these tests run only where the program exists already.
"""

import itertools
import os
from collections.abc import Iterator

import pytest

from ome_local.binaries import ensure
from ome_local.binaries.versions import TOOLS, this_machine
from tests.support import clusters, yamls
from tests.support.rig import Rig

_NUMBER = itertools.count()
BUILT = ensure.place(TOOLS["kueue"], this_machine()).exists()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip the tests where Kueue would have to be compiled first, and exclude fixtures from the time limit."""
    if not (BUILT or os.environ.get("OME_E2E")):
        item.add_marker(pytest.mark.skip(reason="Kueue is not compiled: make e2e, or ome local up --with kueue"))
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
        made.leads()
        yield made


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """Yield a separate namespace for each test, which is emptied afterwards."""
    with rig.own_namespace(f"q{next(_NUMBER)}") as name:
        yield name
