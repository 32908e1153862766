"""Remember results of pure functions by the identity of what they were given.

Parsed objects and rendered manifests are never changed in place, so a result holds for the very objects that it was made
from. Looking at them closer (hashing, comparing) would cost as much as making the result again.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def memoize_by_identity(size: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator for a pure function of positional arguments that keeps the last `size` results.

    Texts, numbers and None count by value, tuples by their items, everything else by identity.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # The arguments are kept beside the result: while they live, nothing else can have their id.
        kept: OrderedDict[Hashable, tuple[Any, R]] = OrderedDict()

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs:
                raise TypeError("give all arguments by position")
            key = _key(args)
            found = kept.get(key)
            if found is not None:
                kept.move_to_end(key)
                return found[1]
            result = function(*args, **kwargs)
            kept[key] = args, result
            if len(kept) > size:
                kept.popitem(last=False)
            return result

        return cached

    return decorate


def _key(value: Any) -> Hashable:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return type(value), value
    if isinstance(value, tuple):
        return tuple(_key(one) for one in value)
    return object, id(value)
