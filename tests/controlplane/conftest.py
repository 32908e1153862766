"""A cluster lives as long as the tests of one folder: an idle one still costs a tenth of a core."""

from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.support import clusters


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """For tests that bring their own operator, or none."""
    with clusters.fresh("any") as made:
        yield made


@pytest.fixture(scope="module")
def own(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, in a home of its own. The session's cluster comes first: made there, it would never be found again."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OME_LOCAL_HOME", str(tmp_path_factory.mktemp("home") / "clusters"))
    cluster = Cluster.up("own", nodes=2, audit=True)
    yield cluster
    cluster.down()
    patch.undo()
