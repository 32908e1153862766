"""Tests that a page is read object by object, and that invalid pages raise the usual error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.util.json_pages import ITEM, members
from tests.support.deep import nested

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.text(), VALUES), st.none() | st.lists(VALUES), st.sampled_from([None, 2]))
def test_page_members_equal_the_decoded_page(around: dict[str, Any], items: list[Any] | None, indent: int | None) -> None:
    page = {**around, "items": items}
    found = list(members(json.dumps(page, indent=indent).encode()))
    assert [value for name, value in found if name is ITEM] == (items or [])
    assert {name: value for name, value in found if name is not ITEM} == (
        around | {"items": None} if items is None else around
    )


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"items": [', '{"items": [{}', '{"items": [{} {}]}', '{"items": [],}', '{"a" 1}', '{"a": 1} x'],
)
def test_invalid_page_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(members(text.encode()))


def test_complete_objects_of_a_truncated_page_are_returned() -> None:
    found = members(b'{"items": [{"a": 1}, {"b"')
    assert next(found) == (ITEM, {"a": 1})
    with pytest.raises(ValueError, match=r"."):
        next(found)


def test_deeply_nested_page_raises_recursion_error() -> None:
    with pytest.raises(RecursionError):
        list(members(b'{"items": [' + nested({}, 100_000) + b"]}"))
