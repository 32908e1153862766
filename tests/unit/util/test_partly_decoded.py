"""Tests of objects whose spec and managed fields are decoded later."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator.util.json_limits import PARTIAL_DECODERS, decode_json, decode_remaining
from tests.unit.util.test_json_limits import OBJECTS, TREES, outcome


@settings(max_examples=500)
@given(OBJECTS | TREES, st.booleans())
def test_parts_that_are_decoded_later_are_the_same(value: Any, plain: bool) -> None:
    def whole(found: Any) -> Any:
        return (
            decode_remaining(found) if isinstance(found, dict) and isinstance(found.get("metadata") or {}, dict) else found
        )

    text = json.dumps(value, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    wanted = outcome(json.loads, text)
    assert outcome(lambda text: whole(decode_json(text, PARTIAL_DECODERS.item)), text) == wanted
    event = b'{"object":' + text + b',"type":"ADDED"}'
    assert outcome(lambda event: whole(decode_json(event, PARTIAL_DECODERS.event)["object"]), event) == wanted
