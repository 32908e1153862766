"""An object of OME's becomes ours in place, so that it keeps its UID, its address and its tokens.

The manager that wrote the owner reference made the object. Its entries in `managedFields` become those of our own apply,
and our label is added: from then on the operator takes the object for its own and applies what it wants of it. Fields that
only OME wanted go with that apply, as everything goes that an applier owned and does not name any more.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest

Metadata = Mapping[str, Any]


def patch(metadata: Metadata) -> Manifest:
    """A merge patch that takes the object over; it carries the resourceVersion, so it is refused after any change."""
    entries = metadata.get("managedFields") or ()
    maker = _maker(entries)
    theirs = [one for one in entries if one.get("manager") == maker and not one.get("subresource")]
    return {"metadata": {**_owned(metadata, theirs), "labels": {keys.MANAGED_BY: keys.MANAGER}}}


def status_patch(metadata: Metadata, managers: Collection[str]) -> Manifest:
    """A merge patch after which our next status drops what these managers wrote into it."""
    ours = {*managers, keys.MANAGER}
    theirs = [
        one
        for one in metadata.get("managedFields") or ()
        if one.get("subresource") == "status" and one.get("manager") in ours
    ]
    return {"metadata": _owned(metadata, theirs)}


def _owned(metadata: Metadata, theirs: list[Any]) -> Manifest:
    """These entries as one entry of our apply, the others as they are."""
    rest = [one for one in metadata.get("managedFields") or () if one not in theirs]
    fields: Manifest = {}
    for one in theirs:
        fields = _union(fields, one.get("fieldsV1") or {})
    entry = {**theirs[-1], "manager": keys.MANAGER, "operation": "Apply", "fieldsV1": fields} if theirs else None
    return {"resourceVersion": metadata["resourceVersion"], "managedFields": [*rest, entry] if entry else rest}


def _maker(entries: Iterable[Mapping[str, Any]]) -> str:
    """The manager that wrote the owner reference."""
    for one in entries:
        if "f:ownerReferences" in ((one.get("fieldsV1") or {}).get("f:metadata") or {}):
            return str(one.get("manager"))
    return ""


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> Manifest:
    """Both FieldsV1 sets."""
    return {name: _union(one.get(name) or {}, other.get(name) or {}) for name in {**one, **other}}
