"""Cache results of pure functions by the identity of their arguments.

Parsed objects and rendered manifests are never changed in place. A result therefore stays valid for the objects from which
it was computed. Hashing or comparing the objects would take as long as computing the result again.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import wraps
from itertools import islice
from typing import Any, ParamSpec, TypeVar

SERVICES = 500
"""Number of services for which the caches are large enough without being enlarged. They are large enough even in the
middle of a rollout."""
P = ParamSpec("P")
R = TypeVar("R")


def memoize_by_identity(size: int, *, grows: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a pure function with positional arguments, so that its last `size` results are cached.

    If `grows` is true, `resize` enlarges the cache when there are many services. Strings, numbers and None are compared by
    value, tuples by their items, and all other arguments by identity.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cache = _Kept(size, grows)
        _ALL.append(cache)

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs:
                raise TypeError("pass all arguments by position")
            key = _key(args)
            entry = cache.get(key)
            if entry is not None:
                result: R = entry[-1]
                return result
            result = function(*args, **kwargs)
            cache.put(key, (*args, result))
            return result

        return cached

    return decorate


def resize(services: int) -> None:
    """Set the number of services for which results are cached.

    All services are reconciled one after another. A cache that is slightly too small would drop each result just before it
    is needed, so that every pass would compute all results again.
    """
    _Kept.times = max(1, -(-services // SERVICES))


def forget_unused() -> Iterator[None]:
    """Drop every cached result that was not used since the previous call, such as manifests of deleted services.

    Each step of the iterator does a part of the work, because there may be tens of thousands of results.
    """
    for cache in _ALL:
        yield from cache.turn()


def count_results() -> int:
    """Return the number of cached results."""
    return sum(len(cache.young) + len(cache.old) for cache in _ALL)


class _Kept:
    """A cache of results, ordered by their last use. Each entry contains the result of a call and also its arguments. The
    arguments are kept so that no other object can get the `id()` of an argument while the result is cached.
    """

    times = 1
    """Factor by which the sizes of growing caches are multiplied."""

    def __init__(self, size: int, grows: bool) -> None:
        self._size, self._grows = size, grows
        # An OrderedDict would take 80 bytes more for each entry.
        self.young: dict[Hashable, tuple[Any, ...]] = {}
        self.old: dict[Hashable, tuple[Any, ...]] = {}
        """Results that were not used since the last call of `turn`."""

    def get(self, key: Hashable) -> tuple[Any, ...] | None:
        found = self.young.pop(key, None)
        if found is None:
            found = self.old.pop(key, None)
        if found is not None:
            self.young[key] = found
        return found

    def put(self, key: Hashable, entry: tuple[Any, ...]) -> None:
        self.young[key] = entry
        most = self._size * (self.times if self._grows else 1)
        for _ in range(2):  # a cache whose size was reduced shrinks step by step
            if len(self.young) + len(self.old) > most:
                entries = self.old or self.young
                # Several at once, because it takes long to find the first entry of a dict from which many were removed.
                for oldest in [*islice(entries, 1 + len(entries) // 1000)]:
                    del entries[oldest]

    def turn(self) -> Iterator[None]:
        while self.old:
            self.old.popitem()
            yield
        self.old, self.young = self.young, {}


_ALL: list[_Kept] = []


def _key(values: tuple[Any, ...]) -> Hashable:
    """Return the cache key for the arguments of a call. A pass needs more than a hundred keys, so values are handled
    without a function call where possible; most values are strings.
    """
    parts: list[Hashable] = []
    for value in values:
        if value is None or isinstance(value, str):
            parts.append(value)
        elif isinstance(value, tuple):
            parts.append(_key(value))
        elif isinstance(value, int):
            parts.append((type(value), value))
        else:
            parts.append(id(value))  # numbers are tuples, so no argument has the same key
    return tuple(parts)
