"""How deep lists and maps lie in each other: whoever walks them by recursion has to know before.

The API server takes objects of 10,000 levels, and hands them out. Whether Python's decoder bears that is no matter of
`sys.setrecursionlimit`: its C code has a limit of its own since 3.12 (measured: 1,497 levels in 3.12.1), and asks the stack
since 3.14. So what lies deep is cut out of the text before it is decoded, for no object that means something is so deep.
"""

import json
import re
from typing import Any

HOLDERS = (dict, list)
LEVELS = 200
"""Levels that `shallow` leaves: four times what a spec may have, and few enough for any function that calls itself."""
_OPENING = rb'\{(?:"[^"\\]*":)?|\['
_OPENINGS = re.compile(_OPENING)
_MARK = re.compile(rb"(?:" + _OPENING + rb')++|[\]}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""A run of brackets that open, with the first keys of maps; a run of brackets that close; or a text."""


def decoded(text: bytes) -> Any:
    """A value of JSON. Where the decoder cannot go as deep as the text does, what is deeper than LEVELS is missing."""
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text))


def shallow(text: bytes) -> bytes:
    """JSON for a decoder that we do not write: lists and maps below LEVELS are empty. What is no JSON stays as it is."""
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
    """It goes by runs: a bracket at a time would take a second for the largest object that there can be."""
    kept, depth, begin = [], 0, 0
    for found in _MARK.finditer(text):
        run = found[0]
        if run[0] in b"{[":
            opened = _OPENINGS.findall(run)
            if depth <= LEVELS < depth + len(opened):
                last = found.start() + sum(map(len, opened[: LEVELS - depth])) + 1
                kept.append(text[begin:last])
            depth += len(opened)
        elif run[0] in b"}]":
            if depth - len(run) <= LEVELS < depth:
                begin = found.start() + depth - LEVELS - 1
            depth -= len(run)
    return b"".join((*kept, text[begin:]))


def deeper(value: Any, levels: int) -> bool:
    """Whether more than so many lists and maps lie in each other; a value that holds itself is deeper than any."""
    at = {id(value): value} if isinstance(value, HOLDERS) else {}
    for _ in range(levels):
        if not at:
            return False
        # Each once: YAML may name one thing in many places.
        at = {id(inner): inner for one in at.values() for inner in _held(one) if isinstance(inner, HOLDERS)}
    return bool(at)


def larger(value: Any, most: int) -> bool:
    """Whether it has more than so many values at all depths; what stands there by an alias counts each time."""
    seen, at = 0, [value]
    while at and seen <= most:
        seen += 1
        at.extend(_held(at.pop()))
    return seen > most


def _held(value: Any) -> Any:
    """What lies in a list or map; nothing lies in anything else."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
