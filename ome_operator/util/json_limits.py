"""How deep lists and maps lie in each other: whoever walks them by recursion has to know before."""

from typing import Any

HOLDERS = (dict, list)


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
