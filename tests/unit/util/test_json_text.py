"""Tests that msgspec is used only where it writes the text of the standard encoder."""

import json
from typing import Any

import msgspec
import pytest

from ome_operator.util.json_text import encode_like_dumps

_ENCODER = msgspec.json.Encoder()


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", ['a"b\\c', "\x00\x1f\n\t/", {"a": [1, True, None, "b"], "": {}}, 2**70, -(2**70), 0.5, 1.0]
)
def test_the_text_is_that_of_the_standard_encoder(value: Any) -> None:
    assert encode_like_dumps(value, _ENCODER) == json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("value", ["\x7f", "é", {"\u2028": 1}, "\ud800", {(1, 2): 3}, object(), deep(100_000)])
def test_other_values_are_left_to_the_standard_encoder(value: Any) -> None:
    assert encode_like_dumps(value, _ENCODER) is None
