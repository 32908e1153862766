"""Arbitrary JSON, and valid objects with some changed places, for tests of parsers."""

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.deep import MOST

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["", "1Gi", "5", "-1", "²", "\x1b[2J\n", "\ud800", "2026-01-01T00:00:00Z", "hf://a/b", "In", "x" * 5000]
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


class Deep(NamedTuple):
    """Stands for this number of nested maps in generated JSON, because hypothesis could not print such deep maps when a test
    fails.
    """

    levels: int


ANY = VALUES | st.sampled_from([100, 1_000, MOST]).map(Deep)


def real(value: Any) -> Any:
    """Return the value with the nested maps in place of `Deep`."""
    if isinstance(value, Deep):
        return _nested(value.levels)
    if isinstance(value, dict):
        return {key: real(inner) for key, inner in value.items()}
    return [real(inner) for inner in value] if isinstance(value, list) else value


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def dumped(value: Any) -> bytes:
    """Return the value as JSON, whatever its depth."""
    if isinstance(value, Deep):
        return b'{"a":' * value.levels + b"1" + b"}" * value.levels
    if isinstance(value, dict):
        return b"{" + b",".join(json.dumps(key).encode() + b":" + dumped(inner) for key, inner in value.items()) + b"}"
    return b"[" + b",".join(map(dumped, value)) + b"]" if isinstance(value, list) else json.dumps(value).encode()


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in an object. Only levels down to which users usually write are included."""
    if len(at) > 15:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


@st.composite
def broken_objects(draw: st.DrawFn, whole: list[Any], values: st.SearchStrategy[Any] = ANY) -> Any:
    """Return a strategy that generates these objects with some values missing or replaced by any JSON value, and with some
    added fields.
    """
    made = copy.deepcopy(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 3))):
        if not (found := list(places(made))):
            break
        *above, last = draw(st.sampled_from(found))
        holder = made
        for key in above:
            holder = holder[key]
        if isinstance(holder, dict) and draw(st.booleans()):
            holder.pop(last)
            holder |= draw(st.dictionaries(st.text(max_size=5), values, max_size=1))
        else:
            holder[last] = draw(values)
    return made


TEXTS = (
    st.none() | st.text(max_size=20) | st.sampled_from(["-1", "²", "True", "2026-01-01T00:00:00Z", "\x1b[2J\n", "x" * 5000])
)


@st.composite
def typed(draw: st.DrawFn, whole: Any) -> Any:
    """Return a strategy that generates the object in which some values are null, empty, or replaced by another value of
    the same type. These are the only changes that an API server accepts in an object with a schema.
    """
    made = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 4))):
        *above, last = draw(st.sampled_from(list(places(made))))
        holder = made
        for key in above:
            holder = holder[key]
        if isinstance(holder[last], str):
            holder[last] = draw(TEXTS)
        elif isinstance(holder[last], int) and not isinstance(holder[last], bool):
            holder[last] = draw(st.none() | st.integers(-(2**31), 2**31))
        elif isinstance(holder, dict):
            holder[last] = None if draw(st.booleans()) else type(holder[last])()
    return made


def with_declared(parse: Callable[[], Any], *errors: type[Exception]) -> None:
    """Call the parser. Exceptions of the types `errors`, which the parser declares, are ignored; all others propagate and
    fail the test.
    """
    with contextlib.suppress(*errors):
        parse()
