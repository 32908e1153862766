"""Clusters of a test session, under names of their own; leftovers of killed sessions go first."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ome_local import layout, lifecycle
from ome_local.binaries import versions
from ome_local.cluster import Cluster
from ome_local.processes import started_at

MINOR = versions.minor(versions.kubernetes(os.environ.get(lifecycle.VERSION, versions.KUBERNETES)))
"""Of the Kubernetes that the control-plane tests run on: 34 of 1.34.2. docs/production.md says what differs."""
_NAME = re.compile(r"test-[a-z]+-(\d+)")


def name(what: str) -> str:
    """The name of a cluster of this session."""
    return f"test-{what}-{os.getpid()}"


@contextmanager
def fresh(what: str, nodes: int = 16) -> Iterator[Cluster]:
    """Nodes of 8 H200 GPUs, with an audit log and the controllers' request limits raised."""
    sweep()
    named = name(what)
    try:
        yield Cluster.up(named, nodes=nodes, accelerator="h200", audit=True, fast=True)
    finally:
        lifecycle.down(layout.layout(named))


def sweep() -> None:
    """Take down clusters whose test session no longer lives."""
    for known in layout.known():
        found = _NAME.fullmatch(known)
        if found and started_at(int(found[1])) is None:
            lifecycle.down(layout.layout(known))
