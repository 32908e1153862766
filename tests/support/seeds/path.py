"""Paths to places in data, such as `spec.ports[port=80].targetPort`."""

import re
from typing import Any

_STEP = re.compile(r"([^.\[\]]+)|\[([^\]=]+)=([^\]]*)\]|\[(\d+)\]")


def at(data: Any, path: str) -> Any:
    """Return the value at the path; None if there is none.

    A step is a key, `[number]`, or `[key=text]`, the first entry of a list with that text. Applied to a map, `[key=text]`
    selects the entry with the key `text`, which may contain dots.
    """
    for name, key, text, number in _STEP.findall(path):
        if name:
            data = data.get(name) if isinstance(data, dict) else getattr(data, name, None)
        elif number:
            data = data[int(number)] if isinstance(data, list | tuple) and int(number) < len(data) else None
        elif isinstance(data, dict):
            data = data.get(text)
        else:
            data = next((entry for entry in data or () if str(entry.get(key)) == text), None)
        if data is None:
            return None
    return data
