"""Keep large objects of tenants out of memory.

The operator keeps the parsed spec of each of its own kinds. The values of an object of 1 MB need about 10 MB, so a hundred
objects of one tenant could take all memory of the operator, and again after each restart. Therefore an object of a namespace
whose values need more than `LARGEST` is reduced to the fields that identify it, and is treated as invalid. Cluster-wide
objects belong to administrators and are not limited.

Objects are reduced in two places. `reduce_large_objects` reduces the JSON text that kopf receives from the API server,
because kopf would keep the decoded objects of a list for some seconds. `reduce` reduces each object again before the
operator stores it, because the API server answers the operator's own writes with the whole object.
"""

import json
from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.util.json_limits import estimate_memory
from ome_operator.util.json_pages import ITEM, members

LARGEST = 512 * 1024
"""Maximum memory of the parts of an object that people write, in bytes. The largest object of this project's samples needs
59,000 bytes, and a revision of a service may have 200,000 characters."""
NEEDS = "needs"
"""Field of a reduced object that contains the memory, in bytes, that its values would need. No stored object has this field,
because the API server drops fields that a CRD does not define."""
_EXAMINED = 8 * LARGEST
"""A text is examined only if its `memory_of`, which is never smaller than its `memory`, exceeds this value. The value is a
multiple of `LARGEST`, so that lists of ordinary objects are not examined. A large object in a text that is not examined
is reduced when the object is stored."""
_STRING, _WIDE, _MAP, _ENTRY, _LIST, _ITEM, _NUMBER = 50, 4, 64, 100, 56, 8, 32
"""Sizes in CPython, in bytes: of a value of each type in addition to its content, and (`_WIDE`) of a character beyond
ASCII."""
_IDENTITY = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "ownerReferences",
)  # fmt: skip


def memory(value: Any) -> int:
    """Return an estimate, in bytes, of the memory of a decoded JSON value."""
    total, pending = 0, [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            total += _STRING + len(value) * (1 if value.isascii() else _WIDE)
        elif isinstance(value, dict):
            total += _MAP + _ENTRY * len(value)
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            total += _LIST + _ITEM * len(value)
            pending.extend(value)
        else:
            total += _NUMBER
    return total


def reduce(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object `body` unchanged, unless it is in a namespace and its spec, labels and annotations need more than
    `LARGEST` bytes of memory. In that case, return only the fields that identify the object, the label that names its
    operator, and those fields of its status that the operator owns. The field `NEEDS` is added.
    """
    metadata = body.get("metadata") or {}
    if not metadata.get("namespace") or NEEDS in body:
        return body
    labels, owners = metadata.get("labels") or {}, metadata.get("ownerReferences") or ()
    needed = sum(map(memory, (body.get("spec"), labels, metadata.get("annotations"), list(owners))))
    if needed <= LARGEST:
        return body
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    kept["ownerReferences"] = [owner for owner in owners if owner.get("controller")][:1]
    if keys.OPERATOR_CLASS in labels:
        kept["labels"] = {keys.OPERATOR_CLASS: labels[keys.OPERATOR_CLASS]}
    managers = metadata.get("managedFields") or ()
    kept["managedFields"] = [entry for entry in managers if entry.get("subresource") == "status"]
    rest = {name: body[name] for name in ("apiVersion", "kind", "status") if name in body}
    return {**rest, "metadata": kept, "spec": {}, NEEDS: needed}


def refusal(body: Mapping[str, Any]) -> str:
    """Return the reason why a reduced object is not used; "" for any other object."""
    if not (needed := body.get(NEEDS)):
        return ""
    return (
        f"spec, labels and annotations need {needed // 1024:,} KiB of the operator's memory, and at most "
        f"{LARGEST // 1024} KiB are permitted: move large values (chat templates, configuration files) to a ConfigMap and "
        "mount it, and shorten long lists"
    )


def reduce_large_objects(text: bytes) -> bytes:
    """Return the JSON text of a list, or of an event of a watch, with its large objects reduced. Text without large objects,
    and text that is not JSON, is returned unchanged.
    """
    if estimate_memory(text) <= _EXAMINED:
        return text
    parts: dict[str, str] = {}
    items: list[str] = []
    changed = False
    try:
        for name, value in members(text):
            small = reduce(value) if (name is ITEM or name == "object") and isinstance(value, dict) else value
            changed |= small is not value
            if name is ITEM:
                items.append(json.dumps(small))
            else:
                parts[name] = json.dumps(small)
    except (ValueError, RecursionError):
        return text
    if items:
        parts["items"] = f"[{','.join(items)}]"
    return f"{{{','.join(f'{json.dumps(name)}:{part}' for name, part in parts.items())}}}".encode() if changed else text
