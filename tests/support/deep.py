"""Objects of as many levels as the API server takes, which no encoder of Python can write on every version."""

import json
from collections.abc import Mapping
from typing import Any

MOST = 10_000
"""Levels of an object that the API server takes."""
HERE = "DEEP"
"""What stands in a body where `filled` puts maps."""


def filled(text: bytes, levels: int) -> bytes:
    """JSON with so many maps in each other wherever it says HERE."""
    return text.replace(f'"{HERE}"'.encode(), b'{"a":' * levels + b"1" + b"}" * levels)


def nested(body: Mapping[str, Any], levels: int) -> bytes:
    """JSON of a body whose `spec.z` has so many maps in each other."""
    return filled(json.dumps({**body, "spec": {**(body.get("spec") or {}), "z": HERE}}).encode(), levels)
