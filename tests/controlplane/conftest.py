"""Fixtures: clusters that are deleted after the tests of a directory, because an idle cluster still uses a
tenth of a core.
"""

from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.support import clusters


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Yield a cluster for tests that start their own operator or need none."""
    with clusters.fresh("any") as made:
        yield made


@pytest.fixture(scope="module")
def own(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster with two nodes and its own home directory. The cluster of the session is created first, because a
    cluster that is created with this home directory could not be found later.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("OME_LOCAL_HOME", str(tmp_path_factory.mktemp("home") / "clusters"))
    cluster = Cluster.up("own", nodes=2, audit=True)
    yield cluster
    cluster.down()
    patch.undo()
