"""What of a live object is ours, as a digest: an object is written only when it differs from what we want.

`digest` of a manifest goes into the annotation `keys.HASH`. `owned` of the stored object is the digest of exactly the
fields that the API server lists under our name in `managedFields`. Both are equal right after the first apply of a
canonical manifest (decisions 13). A stranger who changes a field of ours takes its path out of our entry, so the two
differ then, on kinds that have no generation too, and after a restart of the operator.

The server drops zero values of many fields (`value: ""`, `initialDelaySeconds: 0`) but keeps their paths under our
name. So every zero value counts as "the path is there" (null), whatever the stored object shows.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from json import dumps, loads
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest

Fields = Mapping[str, Any]
"""A FieldsV1 set: `f:name`, `k:{…}`, `v:…`, `i:…` -> what lies below; {} is a leaf, "." the item itself."""

_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})


def digest(manifest: Manifest) -> str:
    """16 hexadecimal digits: equal for manifests that want the same of the same object."""
    content = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "metadata")}
    if metadata := _metadata(manifest.get("metadata") or {}):
        content["metadata"] = metadata
    text = dumps(_zeros(content), sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def owned(body: Mapping[str, Any]) -> str:
    """Digest of what our applies own of a stored object; "" when it was never applied by us."""
    fields = applied_fields(body)
    return "" if fields is None else digest(project(body, fields))


def owned_status(body: Mapping[str, Any]) -> str:
    """Digest of what our applies own of a stored status: that of `{"status": …}`; "" when we never wrote it."""
    fields = applied_fields(body, "status")
    return "" if fields is None else digest({"status": project(body, fields).get("status")})


def applied_fields(body: Mapping[str, Any], subresource: str = "") -> Fields | None:
    """Our server-side apply's entry in `managedFields`, of the object itself or of a subresource."""
    for entry in (body.get("metadata") or {}).get("managedFields") or ():
        if (
            entry.get("manager") == keys.MANAGER
            and entry.get("operation") == "Apply"
            and (entry.get("subresource") or "") == subresource
        ):
            fields: Fields = entry.get("fieldsV1") or {}
            return fields
    return None


def project(body: Mapping[str, Any], fields_v1: Fields) -> Manifest:
    """The parts of an object that a FieldsV1 set names, in the object's own order."""
    result: Manifest = _project(body, fields_v1)
    return result


def _metadata(metadata: Mapping[str, Any]) -> Manifest:
    """Metadata without identity and without our own hash; annotations that held only the hash are no annotations."""
    wanted = {name: value for name, value in metadata.items() if name not in _IDENTITY}
    annotations = wanted.get("annotations")
    if annotations and keys.HASH in annotations:
        rest = {name: value for name, value in annotations.items() if name != keys.HASH}
        if rest:
            wanted["annotations"] = rest
        else:
            del wanted["annotations"]
    return wanted


def _zeros(value: Any) -> Any:
    """A copy in which every zero value is null."""
    if not value:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, dict):  # most values are texts: a call for each was half of the time
        return {name: below if below.__class__ is str and below else _zeros(below) for name, below in value.items()}
    if isinstance(value, (list, tuple)):  # a union would be made anew for each value
        return [_zeros(below) for below in value]
    return value


def _project(value: Any, fields: Fields) -> Any:
    if not fields:
        return value
    if isinstance(value, list | tuple):
        return _project_list(value, fields)
    below = value if isinstance(value, Mapping) else {}
    return {
        path[2:]: _project(below.get(path[2:]), under) if under else below.get(path[2:])
        for path, under in fields.items()
        if path.startswith("f:")
    }


def _project_list(items: Sequence[Any], fields: Fields) -> list[Any]:
    keyed = [(_key(path), under) for path, under in fields.items() if path.startswith("k:")]
    if keyed:
        return _project_keyed(items, keyed)
    values = {path[2:] for path in fields if path.startswith("v:")}
    if values:
        return [item for item in items if dumps(item, separators=(",", ":")) in values]
    indices = sorted(int(path[2:]) for path in fields if path.startswith("i:"))
    return [_project(items[i], fields[f"i:{i}"]) for i in indices if i < len(items)]


def _project_keyed(items: Sequence[Any], keyed: list[tuple[tuple[tuple[str, Any], ...], Fields]]) -> list[Any]:
    """Items of an associative list; all keys of one list have the same names.

    Whoever may write an object may write these entries of ours, too, with keys of any shape.
    """
    names = [name for name, _ in keyed[0][0]]
    wanted = {tuple(value for _, value in key): under for key, under in keyed}
    result = []
    for item in items:
        under = wanted.get(tuple(_hashable(item.get(name)) for name in names)) if isinstance(item, Mapping) else None
        if under is not None:
            result.append(_project(item, under))
    return result


@lru_cache(maxsize=4096)
def _key(path: str) -> tuple[tuple[str, Any], ...]:
    """`k:{"name":"main"}` -> (("name", "main"),), sorted as the server spells it."""
    return tuple(sorted((name, _hashable(value)) for name, value in loads(path[2:]).items()))


def _hashable(value: Any) -> Any:
    """A part of a key, which is a text or a number."""
    return dumps(value) if isinstance(value, dict | list) else value
