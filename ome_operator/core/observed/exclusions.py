"""Read the nodes on which the pods of a group are not placed from the annotation of the group's StatefulSets."""

import re

MOST = 64
"""Largest number of nodes that a group excludes. The number is limited because a name may have 253 characters, and each
pod of the group contains all names."""
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)

Exclusion = tuple[str, ...]
"""Names of nodes, sorted, each once."""


def exclusion(text: object) -> Exclusion:
    """Return the nodes that `text`, the value of the annotation `ome.io/excluded-nodes`, names; at most MOST nodes, and ()
    without the annotation.

    Invalid names are ignored, because anyone who may write StatefulSets can write any text into the annotation.
    """
    names = text.split(",", 4 * MOST) if isinstance(text, str) else ()
    return tuple(sorted({name for name in names if OBJECT_NAME.fullmatch(name)})[:MOST])
