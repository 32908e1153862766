"""A fixture with a cluster on which OME has run. It has none of this project's charts until a test installs them."""

from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.support import clusters


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Yield a cluster that is used only by the tests of this directory."""
    with clusters.fresh("adopt") as made:
        yield made
