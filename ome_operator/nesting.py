"""How deep lists and maps lie in each other: whoever walks them by recursion has to know before."""

from collections.abc import Iterable, Mapping
from typing import Any


def deeper(value: Any, levels: int) -> bool:
    """Whether more than so many lists and maps lie in each other; a value that holds itself is deeper than any."""
    at = [value]
    for _ in range(levels):
        at = [inner for one in at for inner in held(one)]
    return any(isinstance(one, Mapping | list) for one in at)


def larger(value: Any, most: int) -> bool:
    """Whether it has more than so many values at all depths; what stands there by an alias counts each time."""
    seen, at = 0, [value]
    while at and seen <= most:
        seen += 1
        at.extend(held(at.pop()))
    return seen > most


def held(value: Any) -> Iterable[Any]:
    """What lies in a list or map; nothing lies in anything else."""
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
