"""Take an object of OME over in place, so that the object keeps its UID, its address and its tokens.

The field manager that wrote the owner reference created the object. Its entries in `managedFields` become entries of this
operator's apply, and the operator's label is added. From then on, the operator treats the object as its own and applies the
desired state. That apply removes the fields that only OME set, because an apply removes all fields that the applier owned
and does not set any more.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.field_managers import Metadata, entries, writer_of
from ome_operator.core.observed.objects import Manifest


def patch(metadata: Metadata) -> Manifest:
    """Return a merge patch that takes the object over. The patch contains the resourceVersion, so that the API server
    rejects it after any other change.
    """
    maker = str(writer_of(metadata, "ownerReferences").get("manager") or "")
    omes_entries = [entry for entry in entries(metadata) if entry.get("manager") == maker]
    return {"metadata": {**_owned(metadata, omes_entries), "labels": {keys.MANAGED_BY: keys.MANAGER}}}


def status_patch(metadata: Metadata, managers: Collection[str]) -> Manifest:
    """Return a merge patch of `managedFields`, after which the operator's next status write removes the status fields
    that these managers wrote.
    """
    managers_and_own = {*managers, keys.MANAGER}
    their_entries = [entry for entry in entries(metadata, "status") if entry.get("manager") in managers_and_own]
    return {"metadata": _owned(metadata, their_entries)}


def _owned(metadata: Metadata, theirs: list[Any]) -> Manifest:
    """Return metadata in which the entries `theirs` are merged into one entry of this operator's apply; the other entries
    are unchanged.
    """
    other_entries = [one for one in metadata.get("managedFields") or () if one not in theirs]
    fields: Manifest = {}
    for one in theirs:
        fields = _union(fields, one.get("fieldsV1") or {})
    entry = {**theirs[-1], "manager": keys.MANAGER, "operation": "Apply", "fieldsV1": fields} if theirs else None
    return {
        "resourceVersion": metadata["resourceVersion"],
        "managedFields": [*other_entries, entry] if entry else other_entries,
    }


def _union(first: Mapping[str, Any], second: Mapping[str, Any]) -> Manifest:
    """Return the union of two FieldsV1 sets."""
    return {name: _union(first.get(name) or {}, second.get(name) or {}) for name in {**first, **second}}
