"""Revisions of a service as ControllerRevisions store them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.core.render import meta
from ome_operator.core.resolve.identity import identity, same
from ome_operator.core.rollout.slices import ours

SIZE_LIMIT = 200_000
"""Bytes of JSON that a ControllerRevision may hold; etcd refuses requests above 1.5 MB, and ten of them are kept."""


class Revision(NamedTuple):
    """One stored revision."""

    name: str
    """The value of the label `ome.io/revision`."""
    number: int
    """Order of creation; the largest is the newest."""
    data: Mapping[str, Any]
    child: Child


def stored(children: Iterable[Child], uid: str) -> list[Revision]:
    """Revisions of the service with this UID, oldest first, orphans that it may adopt included.

    StatefulSets make ControllerRevisions too: those are controlled by the StatefulSet.
    """
    found = [
        Revision(one.labels.get(keys.REVISION, ""), int(one.content["revision"]), one.content["data"], one)
        for one in children
        if one.kind == "ControllerRevision" and ours(one, uid) and one.content and not one.deleting
    ]
    return sorted((one for one in found if one.name), key=lambda one: one.number)


def inputs(known: Iterable[Revision]) -> dict[str, Mapping[str, Any]]:
    """Revision -> stored inputs, in the order of `known`."""
    return {one.name: one.data["inputs"] for one in known if one.data.get("inputs")}


def match(inputs: Mapping[str, Any], known: list[Revision]) -> Revision | None:
    """The stored revision with these inputs, the newest first."""
    return next((one for one in reversed(known) if same(one.data.get("inputs") or {}, inputs)), None)


def name_of(inputs: Mapping[str, Any], known: list[Revision]) -> str:
    """A name for new inputs: their digest, with a counter where another revision has it already."""
    taken, count, inputs = {one.name for one in known}, 0, identity(inputs)
    while (name := names.digest([inputs, count] if count else inputs)) in taken:
        count += 1
    return name


def manifest(owner: meta.Owner, revision: str, number: int, data: Mapping[str, Any]) -> Manifest:
    """The ControllerRevision of a revision; `data` is immutable once stored, `number` may grow."""
    name = names.revision_object(owner.name, revision)
    labels = meta.labels(owner.name, revision=revision)
    body = {"revision": number, "data": dict(data)}
    return meta.manifest(owner, "apps/v1", "ControllerRevision", name, labels, body)


def size(data: Mapping[str, Any]) -> int:
    """Bytes of JSON that a revision's data takes."""
    return len(json.dumps(data, separators=(",", ":")).encode())


def surplus(known: list[Revision], used: frozenset[str], limit: int) -> list[Revision]:
    """Revisions beyond the history limit that no slice uses, oldest first."""
    spare = [one for one in known if one.name not in used]
    return spare[: max(0, len(known) - limit)]
