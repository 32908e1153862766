"""A page of a list, object by object: to decode 500 of them at a time takes as long as a stall that people notice."""

import re
from collections.abc import Generator, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

ITEM = None
"""Stands for the name beside an object of the list."""
_ITEMS = "items"
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = JSONDecoder().raw_decode


def members(page: bytes) -> Iterator[tuple[str | None, Any]]:
    """Names and values of a page, in its order; of `items` each for itself. Raises ValueError where it is no JSON object,
    or ends too early, and RecursionError where the decoder cannot go as deep as it does.
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
        raise JSONDecodeError("something follows the page", text, at)


def _each(text: str, at: int) -> Generator[tuple[None, Any], None, int]:
    """The items of a list that begins here; returns where it ends."""
    at, more = _after(text, at, "["), True
    if text[at : at + 1] == "]":
        return at + 1
    while more:
        item, at = _decode(text, at)
        yield ITEM, item
        at, more = _next(text, at, "]")
    return at


def _next(text: str, at: int, end: str) -> tuple[int, bool]:
    """The place after a comma, or after what ends it; whether more follows."""
    at = _skip(text, at)
    if text[at : at + 1] == end:
        return at + 1, False
    return _after(text, at, ","), True


def _after(text: str, at: int, sign: str) -> int:
    """The place of what follows a sign, which must be here."""
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise JSONDecodeError(f"{sign} is missing", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
