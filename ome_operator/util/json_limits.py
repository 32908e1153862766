"""Limits for the memory and the nesting of JSON.

`parse_untrusted` is the only function that decodes JSON of authors who are not trusted: files of model repositories,
responses of hubs and registries, and results of pods. The values of a short text can need more than 40 times the memory of
the text, so a limit of its bytes does not protect a process; `parse_untrusted` has a limit of the memory instead.
`tests/unit/util/test_json_callers.py` contains the list of its callers, and the reason of every other decoder call.

Functions that process a value by recursion need a limit for the depth of the value. The API server accepts objects with
10,000 levels and returns them. Whether Python's decoder can decode such an object does not depend on
`sys.setrecursionlimit`: since Python 3.12 the decoder's C code has its own limit (measured: 1,497 levels in 3.12.1), and
since 3.14 the limit depends on the size of the stack. Therefore `decode_to_depth` and `truncate_depth` remove deeper parts
from the API server's text before it is decoded. No meaningful object is that deep.

`decode_json` decodes text of the API server with msgspec, in half the time of the standard decoder. Text that msgspec
refuses (infinite numbers, lone surrogates, other encodings than UTF-8, text that is too deep) is passed to the standard
decoder. For all other text, both decoders return the same values, even for integers beyond 64 bits and repeated keys. Text
of authors who are not trusted is decoded only by the standard decoder (decisions 43). `Decoders` read only some fields of an
object. The other fields, which are most of the text of a pod or node, are skipped. `PARTIAL_DECODERS` keep them as text, so
that they can be decoded later.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

import msgspec

from ome_operator.errors import OmeError

T = TypeVar("T")
MIB = 1 << 20
PARSE_LOCK = threading.RLock()
"""Held while `parse_untrusted` runs, so that only one untrusted text at a time uses memory in this process."""
_VALUE_BYTES = 160
"""Maximum bytes of memory for each `[`, `{`, `,` and `:` of a JSON text: a value or a key, its slot in the list or map, and
the decoder's table of keys. Measured with CPython 3.11: at most 143 (tests/unit/util/test_json_limits.py)."""
_PLAIN, _WIDE = 3, 10
"""Maximum bytes of memory for each byte of text: the bytes, the decoded text, and its strings. A single character or escape
beyond ASCII makes a complete string up to 4 times as wide."""
CONTAINER_TYPES = (dict, list)
MAX_DEPTH = 200
"""Number of levels that `truncate_depth` keeps. It is four times the limit for a spec, and low enough for every recursive
function."""
_OPENING = rb'\{(?:"[^"\\]*":)?|\['
_OPENINGS = re.compile(_OPENING)
_MARK = re.compile(rb"(?:" + _OPENING + rb')++|[\]}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""Pattern of a run of opening brackets with the first keys of maps, a run of closing brackets, or a string literal."""


Decode = Callable[[bytes | msgspec.Raw], Any]
_METADATA = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
)  # fmt: skip
_STATUS = ("message", "code")
"""Fields of the object of an event of the type ERROR."""


class Decoders(NamedTuple):
    """Decoders that skip the fields that their caller does not read."""

    item: Decode
    """Decodes an object."""
    event: Decode
    """Decodes an event of a watch about an object that `item` can decode."""


def fields_type(*names: str, **inner: Any) -> Any:
    """Return a type for msgspec: a dict with any of the fields `names`, whose values have any type, and the fields in
    `inner`, which contains their types. Other fields are left out when a text is decoded.
    """
    create: Any = TypedDict  # a type checker knows only types whose fields are written out
    return create("_Typed", {**dict.fromkeys(names, Any), **inner}, total=False)


def build_decoders(*, managed_fields: Any = None, spec: Any = Any, status: Any = Any) -> Decoders:
    """Return decoders of objects that consist of metadata, spec and status. `managed_fields`, `spec` and `status` are the
    types, for msgspec, of the fields that the caller reads. If `managed_fields` is None, the managed fields are skipped.
    """
    metadata = fields_type(*_METADATA, **({} if managed_fields is None else {"managedFields": managed_fields}))
    found = fields_type("apiVersion", "kind", *_STATUS, metadata=metadata, spec=spec, status=status)
    both = (msgspec.json.Decoder(each).decode for each in (found, fields_type("type", object=found)))
    return Decoders(*both)


DECODE_ALL: Decode = msgspec.json.Decoder().decode
FULL_DECODERS = Decoders(DECODE_ALL, DECODE_ALL)


_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_EVENT = msgspec.json.Decoder(fields_type("type", object=dict[str, msgspec.Raw])).decode
_SPEC, _MANAGED = "spec", "managedFields"


def _decode_in_part(parts: Any) -> Any:
    """Return an object that is decoded from the texts of its fields (`parts`). Its spec and its managed fields remain
    texts.
    """
    found = {name: text if name in (_SPEC, "metadata") else DECODE_ALL(text) for name, text in parts.items()}
    if "metadata" in found:
        metadata = _PARTS(found["metadata"])
        found["metadata"] = {name: text if name == _MANAGED else DECODE_ALL(text) for name, text in metadata.items()}
    return found


def _decode_event_in_part(text: bytes | msgspec.Raw) -> Any:
    event = _EVENT(text)
    return event | {"object": _decode_in_part(event["object"])} if "object" in event else event


PARTIAL_DECODERS = Decoders(lambda text: _decode_in_part(_PARTS(text)), _decode_event_in_part)
"""Decoders of objects whose spec and managed fields are decoded later, by `decode_remaining`, if at all."""


def decode_remaining(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object `body` with all of its fields decoded. `body` may be a result of `PARTIAL_DECODERS`."""
    spec, metadata = body.get(_SPEC), body.get("metadata") or {}
    if isinstance(spec, msgspec.Raw):
        body = {**body, _SPEC: decode_to_depth(bytes(spec))}
    if isinstance(managed := metadata.get(_MANAGED), msgspec.Raw):
        body = {**body, "metadata": {**metadata, _MANAGED: decode_to_depth(bytes(managed))}}
    return body


class TooLarge(OmeError, ValueError):
    """Error: the values of a JSON text might need more memory than its caller permits."""


def estimate_memory(text: bytes) -> int:
    """Return an upper bound, in bytes, of the memory that a JSON text and its values need while it is decoded.

    Brackets, commas and colons are counted everywhere, even inside strings, because this needs no parser that an author
    could mislead; a text with many of them in strings is overestimated.
    """
    plain = text.isascii() and b"\\u" not in text
    return len(text) * (_PLAIN if plain else _WIDE) + _VALUE_BYTES * sum(map(text.count, (b"[", b"{", b",", b":")))


def max_text_bytes(memory: int) -> int:
    """Return the length of the longest text that `parse_untrusted` may accept with this limit of memory."""
    return memory // _PLAIN


def parse_untrusted(text: str | bytes, description: str, *, memory: int, extract: Callable[[Any], T]) -> T:
    """Decode an untrusted JSON text, pass the decoded value to the function `extract`, and return what `extract` returns.
    `description` names the text in errors.

    The memory is estimated before the text is decoded. `extract` should return only what is needed, because the limit does
    not cover a value that outlives the call. Raises TooLarge if more than `memory` bytes might be necessary, ValueError for
    a text that is not JSON or is too deep for the decoder, and what `extract` raises.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with PARSE_LOCK:
        if (needed := estimate_memory(data)) > memory:
            raise TooLarge(
                f"{description} may need {-(-needed // MIB)} MiB of memory, and at most {memory // MIB} MiB are permitted"
            )
        try:
            return extract(json.loads(data))
        except RecursionError as error:
            raise ValueError(f"{description} is nested too deep") from error


def decode_json(text: bytes | msgspec.Raw, decode: Decode = DECODE_ALL) -> Any:
    """Return the value of a JSON text of the API server. `decode` is tried first, and may leave out fields. If `decode`
    refuses the text, the standard decoder returns the complete value. Raises ValueError for text that is not JSON, and
    RecursionError for text that is too deep for the standard decoder.
    """
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return json.loads(bytes(text))


def decode_to_depth(text: bytes, decode: Decode = DECODE_ALL) -> Any:
    """Return the value of a JSON text, as `decode_json` does. If the text is too deep for the decoder, lists and maps are
    empty where they are nested more than `MAX_DEPTH` deep.
    """
    try:
        return decode_json(text, decode)
    except RecursionError:
        return json.loads(_truncate(text))


def truncate_depth(text: bytes) -> bytes:
    """Return JSON text for a decoder that is not part of this project. Lists and maps that are nested more than `MAX_DEPTH`
    deep are empty in the result. Text that is not JSON is returned unchanged.
    """
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return text
    try:
        deep = exceeds_depth(json.loads(text), MAX_DEPTH)
    except RecursionError:
        deep = True
    except ValueError:
        return text
    return _truncate(text) if deep else text


def _truncate(text: bytes) -> bytes:
    """Return the JSON text without the parts that are nested more than `MAX_DEPTH` deep. The text is processed by runs of
    brackets, because processing single brackets would take a second for the largest possible object.
    """
    kept, depth, begin = [], 0, 0
    for match in _MARK.finditer(text):
        run = match[0]
        if run[0] in b"{[":
            opened = _OPENINGS.findall(run)
            if depth <= MAX_DEPTH < depth + len(opened):
                last = match.start() + sum(map(len, opened[: MAX_DEPTH - depth])) + 1
                kept.append(text[begin:last])
            depth += len(opened)
        elif run[0] in b"}]":
            if depth - len(run) <= MAX_DEPTH < depth:
                begin = match.start() + depth - MAX_DEPTH - 1
            depth -= len(run)
    return b"".join((*kept, text[begin:]))


def exceeds_depth(value: Any, max_depth: int) -> bool:
    """Return whether lists and maps are nested more than `max_depth` deep. This is true for a value that contains itself."""
    containers = {id(value): value} if isinstance(value, CONTAINER_TYPES) else {}
    for _ in range(max_depth):
        if not containers:
            return False
        # Each value once, because YAML may refer to a value in many places.
        containers = {
            id(inner): inner
            for container in containers.values()
            for inner in _children(container)
            if isinstance(inner, CONTAINER_TYPES)
        }
    return bool(containers)


def exceeds_count(value: Any, max_count: int) -> bool:
    """Return whether a value contains more than `max_count` values, over all depths. A value that occurs several times is
    counted each time.
    """
    count, pending = 0, [value]
    while pending and count <= max_count:
        count += 1
        pending.extend(_children(pending.pop()))
    return count > max_count


def _children(value: Any) -> Any:
    """Return the values that a list or map contains; nothing for any other value."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
