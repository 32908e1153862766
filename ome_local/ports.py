"""Choose loopback ports for a cluster. The ports are chosen once when the cluster is created, so that its kubeconfig
stays valid after a restart.
"""

import http.client
import json
import random
import socket
from collections.abc import Iterable
from pathlib import Path

from ome_operator.errors import UserError

RANGE = range(20000, 32000)
"""Port numbers from which ports are chosen. They are below the ports that Linux uses for outgoing connections (32768 and
above). No connection can therefore use a port of a cluster while the cluster is stopped."""


def choose(count: int, taken: Iterable[int] = (), dice: random.Random | None = None) -> list[int]:
    """Return `count` free ports that are not in `taken` (the ports of stopped clusters). Raises UserError if not enough
    ports are free. Ports are drawn at random, with `dice` if it is given.
    """
    dice, avoid = dice or random.Random(), set(taken)
    found: list[int] = []
    for port in dice.sample(RANGE, len(RANGE)):
        if port not in avoid and is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise UserError(
        f"There are no {count} free ports between {RANGE.start} and {RANGE.stop} on 127.0.0.1: stop programs "
        "that use these ports."
    )


def is_free(port: int) -> bool:
    """Return whether no process listens on the port. SO_REUSEADDR is set, as servers do, so that closing connections do
    not make the port appear used.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(host: str, port: int) -> bool:
    """Return whether a server accepts connections at this address and port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def answers_with_200(host: str, port: int, path: str) -> bool:
    """Return whether an HTTP server at this address and port answers a request for `path` with status 200."""
    probe = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        probe.request("GET", path)
        return probe.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        probe.close()


def of_clusters(home: Path) -> set[int]:
    """Return the ports that other clusters of this home have reserved."""
    kept: set[int] = set()
    for spec in home.glob("*/cluster.json"):
        try:
            kept |= set(json.loads(spec.read_text())["ports"].values())
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another process is writing or removing this file; its ports are still tested by binding
    return kept
