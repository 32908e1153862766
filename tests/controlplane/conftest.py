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
