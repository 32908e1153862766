"""Tests that a result is cached for the very objects from which it was computed."""

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ome_operator.util import memoize
from ome_operator.util.memoize import memoize_by_identity


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    memoize.resize(0)


def forget_unused() -> None:
    for _ in memoize.forget_unused():
        pass


def counted(size: int = 8) -> tuple[Any, list[Any]]:
    """Return a cached function, and the list of its calls."""
    calls: list[Any] = []

    @memoize_by_identity(size)
    def function(*args: Any) -> Any:
        calls.append(args)
        return [*args]

    return function, calls


def test_result_is_cached_for_the_identical_object_only() -> None:
    function, calls = counted()
    data: dict[str, int] = {}
    assert function(data, "a") is function(data, "a")
    assert function({}, "a") is not function(data, "a")
    assert len(calls) == 2


def test_scalars_and_tuples_are_compared_by_value() -> None:
    class Owner(NamedTuple):
        name: str
        data: dict[str, int]

    function, calls = counted()
    data = {"a": 1}
    assert function(Owner("x" * 3, data), 1) is function(Owner("xxx", data), 1)
    function(Owner("xxx", {"a": 1}), 1)
    assert len(calls) == 2


def test_cache_keys_distinguish_types_and_identities() -> None:
    function, calls = counted()
    data = {"a": 1}
    for value in (1, True, "1", None, data, id(data)):
        function(value)
    assert len(calls) == 6


def test_new_object_at_a_reused_address_is_computed_again() -> None:
    function, _ = counted(4)
    for number in range(200):
        assert function({"n": number}) == [{"n": number}]
        gc.collect(0)


def test_cache_size_is_limited_and_the_oldest_result_is_dropped() -> None:
    function, calls = counted(2)
    for name in ("a", "b", "a", "c", "a", "b"):
        function(name)
    assert calls == [("a",), ("b",), ("c",), ("b",)]


def test_cache_grows_with_the_number_of_services() -> None:
    """Each cache has space for all services. A cache that is slightly too small for objects that are used in turn would
    never find any of them.
    """
    function, calls = counted(2)
    memoize.resize(2 * memoize.SERVICES)
    names = ["a", "b", "c", "d"]
    for name in names * 3:
        function(name)
    assert calls == [(name,) for name in names]


def test_cache_shrinks_gradually_when_services_are_deleted() -> None:
    function, calls = counted(2)
    memoize.resize(2 * memoize.SERVICES)
    for name in ("a", "b", "c", "d"):
        function(name)
    before = memoize.count_results()
    memoize.resize(memoize.SERVICES)
    function("e")
    assert memoize.count_results() == before - 1
    function("f")
    assert memoize.count_results() == before - 2
    function("g")
    assert memoize.count_results() == before - 2 and len(calls) == 7


def test_cache_without_growth_keeps_its_size() -> None:
    memoize.resize(2 * memoize.SERVICES)
    calls = []
    function = memoize_by_identity(1, grows=False)(calls.append)
    for name in ("a", "b", "a"):
        function(name)
    assert calls == ["a", "b", "a"]


def test_memoized_function_does_not_cache_errors() -> None:
    calls = []

    @memoize_by_identity(2)
    def fails(value: str) -> None:
        calls.append(value)
        raise ValueError(value)

    for _ in range(2):
        with pytest.raises(ValueError):
            fails("x")
    assert len(calls) == 2


def test_keyword_arguments_are_refused() -> None:
    function, _ = counted()
    with pytest.raises(TypeError):
        function(a=1)


def test_unused_result_is_dropped_at_the_second_cleanup() -> None:
    function, calls = counted()
    function("used"), function("unused")
    for _ in range(3):
        forget_unused()
        function("used")
    function("unused")
    assert calls == [("used",), ("unused",), ("unused",)]


def test_unused_results_are_dropped_first() -> None:
    function, calls = counted(2)
    function("a"), function("b")
    forget_unused()
    function("b"), function("c"), function("b")
    assert calls == [("a",), ("b",), ("c",)]
