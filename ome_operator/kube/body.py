"""Encode the bodies of requests."""

import json
import re
from typing import Any

import msgspec

from ome_operator.util.json_text import encode_like_dumps

_ENCODER = msgspec.json.Encoder()
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON may contain unescaped, but YAML does not allow or reads as the end of a line."""


def encoded(body: Any) -> bytes:
    """Return the body as JSON that has the same meaning as YAML, because the API server parses an apply as YAML, which
    has no surrogate pairs.

    Output of engines and arguments of users may contain any character. A lone surrogate, which is not a character, becomes
    U+FFFD.
    """
    found = encode_like_dumps(body, _ENCODER)
    if found is not None and b"null" not in found:  # a null may be NaN or infinity
        return found
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return _NOT_IN_YAML.sub(_escaped, text).encode()


def _escaped(found: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= found[0] <= "\udfff" else f"\\u{ord(found[0]):04x}"
