"""Limits for the nesting of JSON. Functions that process a value by recursion need a limit of its depth.

The API server accepts objects with 10,000 levels and returns them. Whether Python's decoder can decode them does not depend
on `sys.setrecursionlimit`: since 3.12 its C code has its own limit (measured: 1,497 levels in 3.12.1), and since 3.14 it
depends on the stack. Therefore deeper parts are removed from the text before it is decoded. No meaningful object is that
deep.
"""

import json
import re
from typing import Any

HOLDERS = (dict, list)
LEVELS = 200
"""Number of levels that `shallow` keeps. It is four times the limit for a spec, and low enough for every recursive
function."""
_OPENING = rb'\{(?:"[^"\\]*":)?|\['
_OPENINGS = re.compile(_OPENING)
_MARK = re.compile(rb"(?:" + _OPENING + rb')++|[\]}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""Pattern of a run of opening brackets with the first keys of maps, a run of closing brackets, or a string literal."""


def decoded(text: bytes) -> Any:
    """Return the value of a JSON text. If the text is too deep for the decoder, the parts below LEVELS are left out."""
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text))


def shallow(text: bytes) -> bytes:
    """Return JSON text for a decoder that is not part of this project. Lists and maps below LEVELS are empty in it. Text
    that is not JSON is returned unchanged.
    """
    if text.count(b"{") + text.count(b"[") <= LEVELS:
        return text
    try:
        deep = deeper(json.loads(text), LEVELS)
    except RecursionError:
        deep = True
    except ValueError:
        return text
    return _cut(text) if deep else text


def _cut(text: bytes) -> bytes:
    """Return the JSON text without the parts below LEVELS. The text is processed by runs of brackets, because processing
    single brackets would take a second for the largest possible object.
    """
    kept, depth, begin = [], 0, 0
    for match in _MARK.finditer(text):
        run = match[0]
        if run[0] in b"{[":
            opened = _OPENINGS.findall(run)
            if depth <= LEVELS < depth + len(opened):
                last = match.start() + sum(map(len, opened[: LEVELS - depth])) + 1
                kept.append(text[begin:last])
            depth += len(opened)
        elif run[0] in b"}]":
            if depth - len(run) <= LEVELS < depth:
                begin = match.start() + depth - LEVELS - 1
            depth -= len(run)
    return b"".join((*kept, text[begin:]))


def deeper(value: Any, levels: int) -> bool:
    """Return whether lists and maps are nested more than `levels` deep. This is true for a value that contains itself."""
    containers = {id(value): value} if isinstance(value, HOLDERS) else {}
    for _ in range(levels):
        if not containers:
            return False
        # Each value once, because YAML may refer to a value in many places.
        containers = {
            id(inner): inner for container in containers.values() for inner in _held(container) if isinstance(inner, HOLDERS)
        }
    return bool(containers)


def larger(value: Any, most: int) -> bool:
    """Return whether a value contains more than `most` values, over all depths. A value that is referred to several times
    counts each time.
    """
    count, pending = 0, [value]
    while pending and count <= most:
        count += 1
        pending.extend(_held(pending.pop()))
    return count > most


def _held(value: Any) -> Any:
    """Return the values that a list or map contains; nothing for any other value."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
