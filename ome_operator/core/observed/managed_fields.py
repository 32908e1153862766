"""Compute digests of the fields that the operator owns in a live object, so that an object is written only if it differs
from the desired manifest.

`digest` of a manifest is stored in the annotation `keys.HASH`. `owned_digest` of a stored object is the digest of exactly
the fields that the API server lists under our name in `managedFields`. Both are equal after the first apply of a canonical
manifest (decisions 13). If another client changes one of our fields, the API server removes the field's path from our entry,
so that the digests differ. This also works for kinds without a generation, and after a restart of the operator.

The API server drops zero values of many fields (`value: ""`, `initialDelaySeconds: 0`) but keeps their paths under our name.
Therefore every zero value is treated as null (the path exists), whatever the stored object contains.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from json import dumps, loads
from typing import Any

import msgspec

from ome_operator import keys
from ome_operator.core.observed.field_managers import applied_entry
from ome_operator.core.observed.objects import Manifest
from ome_operator.util.json_text import encode_like_dumps
from ome_operator.util.memoize import memoize_by_identity

Fields = Mapping[str, Any]
"""A FieldsV1 set. It maps `f:name`, `k:{…}`, `v:…` or `i:…` to the fields below; {} is a leaf, and the key "." is the
item itself."""

_SORTED = msgspec.json.Encoder(order="sorted")
_encode_any = msgspec.json.Encoder().encode
_LONGEST = 65_536
"""Maximum length in bytes of a pod spec, and of the fields that the operator owns in it, for which `_owned_pods` keeps the
result. Anybody may store a longer pod spec in a workload."""
_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})


def digest(manifest: Manifest) -> str:
    """Return the digest of a manifest as 16 hexadecimal digits. Manifests have the same digest if they have the same
    content, apart from the fields that `_content` leaves out.
    """
    return _digest(_content(manifest))


def digest_of_rendered(manifest: Manifest) -> str:
    """Return the `digest` of a rendered manifest. The StatefulSets of all groups of a role share the object that is their
    pod spec, so its text is made once.
    """
    content = _content(manifest)
    try:
        return _digest(_with_pods(content, _text_of_pods(content["spec"]["template"]["spec"])))
    except (KeyError, TypeError):  # not a workload, or a text that only `dumps` can write
        return _digest(content)


@memoize_by_identity(64, grows=False)
def _text_of_pods(spec: Any) -> msgspec.Raw:
    return msgspec.Raw(text(_zeros(spec)))


def _with_pods(content: Manifest, pods: msgspec.Raw) -> Manifest:
    """Return the content of a workload with `pods`, the JSON text of its pod spec, in place of the pod spec."""
    spec = content["spec"]
    return {**content, "spec": {**spec, "template": {**spec["template"], "spec": pods}}}


def _content(manifest: Manifest) -> Manifest:
    """Return the parts of a manifest from which its digest is computed."""
    content = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "metadata")}
    if metadata := _metadata(manifest.get("metadata") or {}):
        content["metadata"] = metadata
    return content


def _digest(content: Manifest) -> str:
    return blake2b(text(_zeros(content)), digest_size=8).hexdigest()


class _Float(float):
    """A float that msgspec refuses to encode, so that `json.dumps` writes it. msgspec and `json.dumps` write exponents
    differently.
    """


def text(value: Any) -> bytes:
    """Return `dumps(value, sort_keys=True, separators=(",", ":"))` as bytes, for a result of `_zeros`.

    Digests are stored, so the text has to stay the same forever. msgspec writes the same text faster, except for the values
    that `encode_like_dumps` leaves out (decisions 44).
    """
    found = encode_like_dumps(value, _SORTED)
    return found if found is not None else dumps(value, sort_keys=True, separators=(",", ":")).encode()


def owned_digest(body: Mapping[str, Any]) -> str:
    """Return the digest of those fields of a stored object that the operator owns through server-side apply; "" if the
    operator never applied it.
    """
    fields = applied_fields(body)
    if fields is None:
        return ""
    with suppress(KeyError, TypeError, ValueError, OverflowError, RecursionError):  # no workload, or as in `text`
        template, within = body["spec"]["template"], fields["f:spec"]["f:template"]
        spec, below = _encode_any(template["spec"]), _encode_any(within["f:spec"])
        if len(spec) <= _LONGEST and len(below) <= _LONGEST:
            rest = {**fields, "f:spec": {**fields["f:spec"], "f:template": {**within, "f:spec": {}}}}
            return _digest(_with_pods(_content(project(body, rest)), _owned_pods(spec, below)))
    return digest(project(body, fields))


@lru_cache(maxsize=32)
def _owned_pods(spec: bytes, fields: bytes) -> msgspec.Raw:
    """Return the text of the fields of a pod spec that the operator owns. The answers to the applies of all groups of a role
    contain the same pod spec.
    """
    return msgspec.Raw(text(_zeros(_project(msgspec.json.decode(spec), msgspec.json.decode(fields)))))


def owned_status(body: Mapping[str, Any]) -> str:
    """Return the digest of those fields of a stored status that the operator owns through server-side apply, in the form
    `{"status": …}`; "" if the operator never applied it.
    """
    fields = applied_fields(body, "status")
    return "" if fields is None else digest({"status": project(body, fields).get("status")})


def applied_fields(body: Mapping[str, Any], subresource: str = "") -> Fields | None:
    """Return the fields that the operator's server-side apply owns according to `managedFields`, of the object or of a
    subresource; None if `managedFields` has no entry of the operator.
    """
    entry = applied_entry(body.get("metadata") or {}, subresource)
    return (entry.get("fieldsV1") or {}) if entry is not None else None


def project(body: Mapping[str, Any], fields_v1: Fields) -> Manifest:
    """Return the parts of an object that a FieldsV1 set names, in the object's own order."""
    result: Manifest = _project(body, fields_v1)
    return result


def _metadata(metadata: Mapping[str, Any]) -> Manifest:
    """Return an object's metadata without the object's identity and without the operator's hash annotation."""
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
    """Return a copy in which every zero value is null. Subclasses of str become `str`, and floats become `_Float`, as
    `text` requires.
    """
    if not value:
        return None
    if isinstance(value, str):
        return value if value.__class__ is str else str.__str__(value)
    if isinstance(value, dict):  # most values are strings: a function call for each took half of the time
        return {name: below if below.__class__ is str and below else _zeros(below) for name, below in value.items()}
    if isinstance(value, (list, tuple)):  # `list | tuple` would be created again for each value
        return [_zeros(below) for below in value]
    return _Float(value) if value.__class__ is float else value


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
    """Return the items of an associative list that `keyed` selects, each reduced to the selected fields. All keys of a list
    have the same names.

    Every client that may write the object may also write entries of `managedFields` under the operator's name, so keys may
    have any structure.
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
    """Parse `k:{"name":"main"}` to (("name", "main"),), sorted in the API server's order."""
    return tuple(sorted((name, _hashable(value)) for name, value in loads(path[2:]).items()))


def _hashable(value: Any) -> Any:
    """Return a part of a key, which is a string or number, as a hashable value."""
    return dumps(value) if isinstance(value, dict | list) else value
