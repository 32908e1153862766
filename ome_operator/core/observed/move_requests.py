"""Read the requests to move groups away from a node, which `ome move NODE` writes into an annotation of the node, and
determine for how long new groups are not placed on this node (docs/moves.md).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.api.moves import Moves
from ome_operator.core.observed.objects import Node

NOW = "now"
"""Word in the annotation of a node with which groups leave the node at once and do not wait until their replacements serve.
"""
TIMEOUT = 1800.0
"""Default of `spec.moves.timeout`, in seconds."""
SHORTEST, LONGEST = 20.0, 30 * 24 * 3600.0
"""Minimum and maximum of `spec.moves.timeout`, in seconds. In less time than the minimum, the pods of a replacement are
often not created and assigned to nodes although nodes are free, so every replacement would be removed before it could
start. The maximum keeps the end of a wait a valid date."""


class MoveRequest(NamedTuple):
    """A request that `ome move` has written. It applies to the pods that were created before the time of the request."""

    at: datetime
    now: bool = False


class NamedNode(NamedTuple):
    """A node on which new groups are not placed, because `ome move` has named it."""

    left: float
    """Seconds until new groups may be placed on the node again."""
    now: bool
    """Whether the groups leave the node at once and do not wait until their replacements serve."""


def node_request(text: str, now: datetime) -> MoveRequest | None:
    """Parse the annotation of a node: a time in RFC 3339, optionally followed by a space and "now". Return None for
    anything else, and for a time in the future.
    """
    time, _, word = text.partition(" ")
    at = quantity.moment(time, now)
    return MoveRequest(at, word == NOW) if at is not None and word in ("", NOW) else None


def timeout(moves: Moves) -> float:
    """Return the timeout of the moves of a service in seconds, from SHORTEST to LONGEST."""
    return min(max(TIMEOUT if moves.timeout is None else quantity.seconds(moves.timeout), SHORTEST), LONGEST)


def named_nodes(nodes: Iterable[Node], lasts: float, now: datetime) -> Mapping[str, NamedNode]:
    """Return the nodes that `ome move` has named in the last `lasts` seconds, by their names.

    A cordoned node whose groups leave at once (`NamedNode.now`) is left out: if no other node is free, the new groups wait
    until this node accepts pods again.
    """
    found = {}
    for node in nodes:
        asked = node_request(node.move, now) if node.move else None
        if asked is None or (asked.now and is_cordoned(node)):
            continue
        left = (asked.at + timedelta(seconds=lasts) - now).total_seconds()
        if left > 0:
            found[node.name] = NamedNode(left, asked.now)
    return found


def is_cordoned(node: Node) -> bool:
    """Return whether a node reports its state and accepts no pods."""
    return node.alive and not node.ready
