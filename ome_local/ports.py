"""Loopback ports, chosen once when a cluster is made and kept, so that its kubeconfig outlives a restart."""

import http.client
import json
import random
import socket
from collections.abc import Iterable
from pathlib import Path

from ome_operator.errors import UserError

RANGE = range(20000, 32000)
"""Below the ports that Linux gives to outgoing connections (32768 and up): nothing takes them between stop and start."""


def choose(count: int, taken: Iterable[int] = (), dice: random.Random | None = None) -> list[int]:
    """Free ports, none of them in `taken` (the ports of clusters that are stopped right now)."""
    dice, avoid = dice or random.Random(), set(taken)
    found: list[int] = []
    for port in dice.sample(RANGE, len(RANGE)):
        if port not in avoid and is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise UserError(f"No {count} free ports between {RANGE.start} and {RANGE.stop} on 127.0.0.1.")


def is_free(port: int) -> bool:
    """Nobody listens on it. SO_REUSEADDR as servers set it: a closing connection does not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(host: str, port: int) -> bool:
    """Somebody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def answers(host: str, port: int, path: str) -> bool:
    """An HTTP server there answers 200."""
    probe = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        probe.request("GET", path)
        return probe.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        probe.close()


def of_clusters(home: Path) -> set[int]:
    """The ports that other clusters of this home keep for themselves."""
    kept: set[int] = set()
    for spec in home.glob("*/cluster.json"):
        try:
            kept |= set(json.loads(spec.read_text())["ports"].values())
        except (OSError, ValueError, KeyError, TypeError):
            continue  # being written or removed by another process; its ports are still tried by binding
    return kept
