"""Revisions of a service: which are stored, and which one the service wants.

Contents are compared, never hashes of two operator versions: both sides are parsed by the running code with unset fields
left out, so neither a new default nor a new renderer rolls anything (decisions 2).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from ome_operator import keys, names
from ome_operator.api import Component
from ome_operator.facts import Child, Manifest
from ome_operator.render import meta
from ome_operator.resolve.inputs import CHOSEN
from ome_operator.rollout.slices import ours

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


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two sets of inputs mean the same to the running code."""
    return left == right or _parsed(left) == _parsed(right)


def _parsed(inputs: Mapping[str, Any]) -> Manifest:
    out = _identity(inputs)
    for part in (keys.ENGINE, keys.DECODER):
        if part in out:
            out[part] = _component(out[part])
    runtime = dict(out.get("runtime") or {})
    for part in ("engineConfig", "decoderConfig"):
        if part in runtime:
            runtime[part] = _component(runtime[part])
    return {**out, "runtime": runtime}


def _identity(inputs: Mapping[str, Any]) -> Manifest:
    """Inputs without the record of how they came to be."""
    return {key: value for key, value in inputs.items() if key != CHOSEN}


def _component(stored: Any) -> Any:
    """As the running code understands it; what it refuses (another version stored it) stays as it is."""
    try:
        return Component.model_validate(stored).dump()
    except ValidationError:
        return stored


def newest(known: list[Revision]) -> Mapping[str, Any] | None:
    """The inputs of the newest stored revision, None without one."""
    return (known[-1].data.get("inputs") or None) if known else None


def match(inputs: Mapping[str, Any], known: list[Revision]) -> Revision | None:
    """The stored revision with these inputs, the newest first."""
    return next((one for one in reversed(known) if same(one.data.get("inputs") or {}, inputs)), None)


def name_of(inputs: Mapping[str, Any], known: list[Revision]) -> str:
    """A name for new inputs: their digest, with a counter where another revision has it already."""
    taken, count, inputs = {one.name for one in known}, 0, _identity(inputs)
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
