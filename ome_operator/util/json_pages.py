"""Decode a page of a list one object at a time, because decoding 500 objects at once blocks the process noticeably."""

import re
from collections.abc import Generator, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

import msgspec

from ome_operator.util.json_limits import DECODE_ALL, Decode, decode_json

ITEM = None
"""The name under which `members` returns an object of the list."""
_ITEMS = "items"
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = JSONDecoder().raw_decode
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def members(page: bytes, decode: Decode = DECODE_ALL) -> Iterator[tuple[str | None, Any]]:
    """Yield the name and the value of each field of a page, which is the JSON text of a list of the API server. Each element
    of the field `items` is decoded with `decode`, and is yielded separately under the name ITEM.

    The page is split into the texts of its values, of which one is decoded at a time. Raises ValueError if the page is not a
    JSON object or is truncated, and RecursionError if it is too deep for the decoder.
    """
    try:
        parts = _parts(page)
        items = _elements(parts.pop(_ITEMS, b"[]"))
    except (ValueError, RecursionError):
        yield from _members_of(page)
        return
    for name, text in parts.items():
        yield name, decode_json(text)
    for text in items:
        yield ITEM, decode_json(text, decode)


def _members_of(page: bytes) -> Iterator[tuple[str | None, Any]]:
    """Yield the same names and values as `members`, in the order of the page, for pages that msgspec refuses. The standard
    decoder also decodes one object at a time.
    """
    text = page.decode("utf-8", "surrogatepass")
    at, more = _after(text, 0, "{"), True
    if text[at : at + 1] == "}":
        at, more = at + 1, False
    while more:
        name, at = _decode(text, at)
        at = _after(text, at, ":")
        if name == _ITEMS and text[at : at + 1] == "[":
            at = yield from _each(text, at)
        else:
            value, at = _decode(text, at)
            yield name, value
        at, more = _next(text, at, "}")
    if _skip(text, at) != len(text):
        raise JSONDecodeError("data follows after the end of the page", text, at)


def _each(text: str, at: int) -> Generator[tuple[None, Any], None, int]:
    """Yield the elements of the list that begins at position `at`. Return the position of the end of the list."""
    at, more = _after(text, at, "["), True
    if text[at : at + 1] == "]":
        return at + 1
    while more:
        item, at = _decode(text, at)
        yield ITEM, item
        at, more = _next(text, at, "]")
    return at


def _next(text: str, at: int, end: str) -> tuple[int, bool]:
    """Return the position after the comma or the closing bracket `end` that is expected at position `at`, and whether
    another element follows (after a comma).
    """
    at = _skip(text, at)
    if text[at : at + 1] == end:
        return at + 1, False
    return _after(text, at, ","), True


def _after(text: str, at: int, sign: str) -> int:
    """Return the position after the required character `sign` and the white space around it. White space at the position
    `at`, before the character, is also skipped. Raises JSONDecodeError if the character is missing.
    """
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise JSONDecodeError(f"{sign} is missing", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
