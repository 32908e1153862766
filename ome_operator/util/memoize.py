"""Remember results of pure functions by the identity of what they were given.

Parsed objects and rendered manifests are never changed in place, so a result holds for the very objects that it was made
from. Looking at them closer (hashing, comparing) would cost as much as making the result again.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

SERVICES = 500
"""The sizes of caches are for so many services, in the middle of a rollout."""
P = ParamSpec("P")
R = TypeVar("R")


def memoize_by_identity(size: int, *, grows: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator for a pure function of positional arguments that keeps the last `size` results; more where there are many
    services (`fit`), if it grows.

    Texts, numbers and None count by value, tuples by their items, everything else by identity.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept = _Kept(size, grows)
        _ALL.append(kept)

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs:
                raise TypeError("give all arguments by position")
            key = _key(args)
            found = kept.get(key)
            if found is not None:
                result: R = found[1]
                return result
            result = function(*args, **kwargs)
            kept.put(key, (args, result))
            return result

        return cached

    return decorate


def fit(services: int) -> None:
    """Keep results of so many services. All have a pass in turn: a cache that is a little too small for them drops each
    result right before it is asked for, and every pass makes everything anew.
    """
    _Kept.times = max(1, -(-services // SERVICES))


def forget_unused() -> Iterator[None]:
    """Drop every result that nobody has asked for since the time before: manifests of services that are gone. In pieces,
    for there may be tens of thousands.
    """
    for kept in _ALL:
        yield from kept.turn()


def held() -> int:
    """How many results are kept."""
    return sum(len(kept.young) + len(kept.old) for kept in _ALL)


class _Kept:
    """Arguments and results, those that were asked for last at the end. The arguments are kept beside the result: while they
    live, nothing else can have their id.
    """

    times = 1
    """How many times their sizes those hold that grow."""

    def __init__(self, size: int, grows: bool) -> None:
        self._size, self._grows = size, grows
        self.young: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()
        self.old: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()
        """Those that nobody has asked for since the last turn."""

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
        for _ in range(2):  # a cache that may hold less than before gets there bit by bit
            if len(self.young) + len(self.old) > most:
                (self.old or self.young).popitem(last=False)

    def turn(self) -> Iterator[None]:
        while self.old:
            self.old.popitem()
            yield
        self.old, self.young = self.young, OrderedDict()


_ALL: list[_Kept] = []


def _key(values: tuple[Any, ...]) -> Hashable:
    """A pass asks for a hundred and more: most values are texts, and no function is called for them."""
    found: list[Hashable] = []
    for value in values:
        if value is None or isinstance(value, str):
            found.append(value)
        elif isinstance(value, tuple):
            found.append(_key(value))
        elif isinstance(value, int):
            found.append((type(value), value))
        else:
            found.append((object, id(value)))
    return tuple(found)
