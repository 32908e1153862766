"""Search the entries of `managedFields`, in which the API server records who wrote which fields of an object, and when."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ome_operator import keys

Entry = Mapping[str, Any]
"""An entry of `managedFields`. Its field `fieldsV1` names the written fields (`core/observed/managed_fields.py:Fields`)."""
Metadata = Mapping[str, Any]
_NONE: Entry = {}
HPA = "kube-controller-manager"
"""The field manager under which HorizontalPodAutoscalers write numbers of replicas. It is also the field manager of
HorizontalPodAutoscalers that KEDA creates for ScaledObjects."""


def entries(metadata: Metadata, subresource: str = "") -> Iterator[Entry]:
    """Yield the entries about the object itself, or about a subresource such as `status`."""
    for entry in metadata.get("managedFields") or ():
        if (entry.get("subresource") or "") == subresource:
            yield entry


def applied_entry(metadata: Metadata, subresource: str = "") -> Entry | None:
    """Return the entry of the operator's server-side apply; None if the operator never applied the object. `subresource` is
    the subresource that was applied, such as `status`; "" for the object itself.
    """
    for entry in entries(metadata, subresource):
        if entry.get("manager") == keys.MANAGER and entry.get("operation") == "Apply":
            return entry
    return None


def writer_of(metadata: Metadata, *path: str) -> Entry:
    """Return the first entry that lists the metadata field at `path`, such as `("annotations", "ome.io/move")`; {} if there
    is none.
    """
    written: Iterable[Entry] = metadata.get("managedFields") or ()
    for entry in written:
        fields: Any = entry.get("fieldsV1") or {}
        for name in ("metadata", *path):
            fields = fields.get(f"f:{name}")
            if fields is None:
                break
        else:
            return entry
    return _NONE


def replicas_writer(metadata: Metadata) -> str:
    """Return the field manager that wrote `spec.replicas` last, in the object itself or by its subresource `scale`; "" if
    it is unknown.
    """
    found = ("", "")
    for entry in metadata.get("managedFields") or ():
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:replicas" in spec and entry.get("subresource") != "status":
            found = max(found, (str(entry.get("time") or ""), str(entry.get("manager") or "")))
    return found[1]


def last_writer(metadata: Metadata) -> str:
    """Return the field manager that wrote the object itself last; "" if it is unknown."""
    ordered = sorted(entries(metadata), key=lambda entry: entry.get("time") or "")
    return str(ordered[-1].get("manager") or "") if ordered else ""
