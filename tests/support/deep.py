"""Objects with as many nested levels as the API server accepts. The JSON encoder of some Python versions cannot write such
objects, so they are assembled as text.
"""

import json
from collections.abc import Mapping
from typing import Any

MOST = 10_000
"""Maximum number of levels of an object that the API server accepts."""
HERE = "DEEP"
"""Placeholder in a body that `filled` replaces by nested maps."""


def filled(text: bytes, levels: int) -> bytes:
    """Return the JSON with each placeholder replaced by this number of nested maps."""
    return text.replace(f'"{HERE}"'.encode(), b'{"a":' * levels + b"1" + b"}" * levels)


def nested(body: Mapping[str, Any], levels: int) -> bytes:
    """Return the JSON of a body whose `spec.z` has this number of nested maps."""
    return filled(json.dumps({**body, "spec": {**(body.get("spec") or {}), "z": HERE}}).encode(), levels)
