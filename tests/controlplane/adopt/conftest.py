"""Where OME has run: none of our charts until a test installs them."""

from collections.abc import Iterator

import pytest

from ome_local.cluster import Cluster
from tests.support import clusters


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """For this story alone."""
    with clusters.fresh("adopt") as made:
        yield made
