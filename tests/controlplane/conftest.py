"""Clusters of a test session, under names of their own; leftovers of killed sessions go first."""

import os
import re
from collections.abc import Iterator

import pytest

from ome_operator.local import layout, lifecycle
from ome_operator.local.cluster import Cluster
from ome_operator.local.processes import started_at

_NAME = re.compile(r"(?:test|spine|adopt)-(\d+)")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """For tests that bring their own operator, or none."""
    yield from _cluster("test")


@pytest.fixture(scope="session")
def spine_cluster() -> Iterator[Cluster]:
    """For tests of the whole: charts and one operator for all of them."""
    yield from _cluster("spine")


@pytest.fixture(scope="session")
def adopt_cluster() -> Iterator[Cluster]:
    """Where OME has run: none of our charts until a test installs them."""
    yield from _cluster("adopt")


def _cluster(prefix: str) -> Iterator[Cluster]:
    """16 nodes of 8 H200 GPUs, with an audit log and the controllers' request limits raised."""
    _sweep()
    name = f"{prefix}-{os.getpid()}"
    try:
        yield Cluster.up(name, nodes=16, accelerator="h200", audit=True, fast=True)
    finally:
        lifecycle.down(layout.layout(name))


def _sweep() -> None:
    """Take down clusters whose test session no longer lives."""
    for name in layout.known():
        found = _NAME.fullmatch(name)
        if found and started_at(int(found[1])) is None:
            lifecycle.down(layout.layout(name))
