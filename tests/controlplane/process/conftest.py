"""Fixtures: one small cluster for the tests of the operator's controllers and client. It has the CRDs, and no operator
unless a test starts one.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ome_local.cluster import Cluster
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from tests.support import clusters

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Yield the cluster. All of its components are running again after each test."""
    with clusters.fresh("shell", nodes=2) as made:
        made.kubectl("apply", "--server-side", "-f", str(CRDS))
        made.await_crds()
        yield made


@pytest_asyncio.fixture
async def connection(cluster: Cluster) -> Connection:
    """Return a connection with the administrator's identity."""
    return await Connection.open(cluster.kubeconfig)


@pytest_asyncio.fixture
async def client(connection: Connection) -> AsyncIterator[Client]:
    """Yield a client with the administrator's identity."""
    made = Client(connection)
    yield made
    await made.close()
