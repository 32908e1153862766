"""Cache results of pure functions by the identity of their arguments.

Parsed objects and rendered manifests are never changed in place, so that a result stays valid for the objects that it was
made from. Hashing or comparing the objects would cost as much as calculating the result again.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

SERVICES = 500
"""The number of services for which the sizes of caches are chosen, in the middle of a rollout."""
P = ParamSpec("P")
R = TypeVar("R")


def memoize_by_identity(size: int, *, grows: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a pure function of positional arguments, so that the last `size` results are kept.

    If `grows`, the cache is larger for many services (`resize`). Strings, numbers and None are compared by value, tuples by
    their items, and all other arguments by identity.
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
                result: R = entry[1]
                return result
            result = function(*args, **kwargs)
            cache.put(key, (args, result))
            return result

        return cached

    return decorate


def resize(services: int) -> None:
    """Set the number of services whose results are kept.

    All services are reconciled in turn. A cache that is slightly too small would drop each result just before it is needed,
    so that every pass would calculate everything again.
    """
    _Kept.times = max(1, -(-services // SERVICES))


def forget_unused() -> Iterator[None]:
    """Drop every result that was not used since the previous call, such as manifests of deleted services.

    The work is done in steps of the iterator, because there may be tens of thousands of results.
    """
    for cache in _ALL:
        yield from cache.turn()


def count_results() -> int:
    """Return the number of kept results."""
    return sum(len(cache.young) + len(cache.old) for cache in _ALL)


class _Kept:
    """Arguments and results in order of their last use. The arguments are kept with the result: while they exist, no other
    object can have their id.
    """

    times = 1
    """Factor for the sizes of growing caches."""

    def __init__(self, size: int, grows: bool) -> None:
        self._size, self._grows = size, grows
        self.young: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()
        self.old: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()
        """Results that were not used since the last call of `turn`."""

    def get(self, key: Hashable) -> tuple[Any, Any] | None:
        found = self.young.get(key)
        if found is not None:
            self.young.move_to_end(key)
        elif (found := self.old.pop(key, None)) is not None:
            self.young[key] = found
        return found

    def put(self, key: Hashable, found: tuple[Any, Any]) -> None:
        self.young[key] = found
        most = self._size * (self.times if self._grows else 1)
        for _ in range(2):  # a cache whose size was reduced shrinks step by step
            if len(self.young) + len(self.old) > most:
                (self.old or self.young).popitem(last=False)

    def turn(self) -> Iterator[None]:
        while self.old:
            self.old.popitem()
            yield
        self.old, self.young = self.young, OrderedDict()


_ALL: list[_Kept] = []


def _key(values: tuple[Any, ...]) -> Hashable:
    """Return the cache key of arguments. A pass needs more than a hundred keys; most values are strings, which need no
    function call.
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
            parts.append((object, id(value)))
    return tuple(parts)
