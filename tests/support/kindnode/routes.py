"""Routes from this machine to pods and Services of a kind cluster, as the real node of this project creates them for
itself.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ome_local.cluster import Cluster
from ome_local.kind.config import SERVICES, control_plane
from ome_local.realnode.requirements import PATH


@contextmanager
def opened(cluster: Cluster) -> Iterator[None]:
    """Provide the routes inside the `with` block. Services are reached through the control plane, which no test stops."""
    made: list[str] = []
    try:
        for range_, gateway in wanted(cluster).items():
            _ip("route", "add", range_, "via", gateway)
            made.append(range_)
        yield
    finally:
        for range_ in made:
            _ip("route", "delete", range_, check=False)


def wanted(cluster: Cluster) -> dict[str, str]:
    """Return the node behind each address range."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", "type!=kwok", "-o", "json"))["items"]
    found = {node["metadata"]["name"]: (node["spec"]["podCIDR"], _address(node)) for node in nodes}
    return {**dict(found.values()), SERVICES: found[control_plane(cluster.at)][1]}


def _address(node: dict[str, dict[str, list[dict[str, str]]]]) -> str:
    return next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")


def _ip(*words: str, check: bool = True) -> None:
    environment = {**os.environ, "PATH": PATH}
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True, env=environment)
