"""Read the facts of child objects. The fields that the operator owns are parsed only if they may have changed."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.util.json_limits import decode_json, decode_remaining, fields_type

_REPLICAS = msgspec.json.Decoder(fields_type("replicas")).decode
"""Decodes the only field of the spec of a StatefulSet that the facts of a child contain in addition to its owned fields."""

_STAMPED = ("generation", "labels", "annotations", "ownerReferences")


class OwnedFields:
    """A digest of the metadata of each child object at the time when its owned fields were read.

    Reading owned fields from managedFields is the most expensive part of a child's facts. The owned fields stay the same
    while only the status of the object changes.
    """

    def __init__(self) -> None:
        self._stamps: dict[str, int] = {}

    def child(self, kind: str, body: Mapping[str, Any], known: Child | None) -> Child:
        """Return the facts of a child object from its JSON, whose spec and managed fields may be texts. `known` is the
        stored fact; None if no fact is stored.
        """
        metadata = body.get("metadata") or {}
        uid = from_api.uid(body)
        if known is not None and from_api.version(body) < known.version:
            return from_api.child(kind, decode_remaining(body))  # a late answer: the stored fact is newer than this body
        # A digest, because anybody may give such an object labels of 1 MB.
        stamp = hash(repr([metadata.get(part) for part in _STAMPED]))
        # Kinds without a generation (Services, Roles, …) may change without any trace except in managedFields.
        if known is not None and metadata.get("generation") and self._stamps.get(uid) == stamp:
            if isinstance(spec := body.get("spec"), msgspec.Raw):
                body = {**body, "spec": decode_json(spec, _REPLICAS)}
            return from_api.child(kind, body, known.owned)
        self._stamps[uid] = stamp
        return from_api.child(kind, decode_remaining(body))

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._stamps.pop(uid, None)


def with_sent_data(child: Child, sent: Manifest) -> Child:
    """Return the facts of a ControllerRevision from the answer to an apply, with the data of the manifest `sent` if the API
    server has stored exactly this data. The data is then in memory only once, and results that were memoized for it are
    found in the next pass. The facts of all other objects are returned unchanged.
    """
    stored = child.content
    if child.kind != "ControllerRevision" or stored is None or stored["data"] != sent.get("data"):
        return child
    # Python's 1 and 1.0 are equal, but their digests differ.
    return child._replace(content={**stored, "data": sent["data"]}) if child.hash and child.owned == child.hash else child
