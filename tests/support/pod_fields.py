"""Writes ome_operator/api/data/pod_fields.json: `python -m tests.support.pod_fields`.

The table is that of the installed package `kubernetes`, whose import takes longer than a check of a file should.
"""

import json
import re
from pathlib import Path

from kubernetes.client import models

FILE = Path(__file__).parents[2] / "ome_operator/api/data/pod_fields.json"
ROOTS = ("V1PodSpec", "V1ObjectMeta")


def text() -> str:
    """Return the content of the file: type -> name of each field -> type of its value, or "" for a value without fields."""
    found: dict[str, dict[str, str]] = {}
    left = list(ROOTS)
    while left:
        name = left.pop()
        if name in found:
            continue
        model = getattr(models, name)
        found[name] = {field: _inner(model.openapi_types[attribute]) for attribute, field in model.attribute_map.items()}
        left += filter(None, found[name].values())
    plain = {_plain(name): {field: _plain(type_) for field, type_ in fields.items()} for name, fields in found.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(dict(sorted(plain[name].items())))}" for name in sorted(plain))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _inner(type_: str) -> str:
    """Return the class in a type such as `list[V1Container]`; "" for scalars and for maps whose keys users choose."""
    inside = re.fullmatch(r"(?:[Ll]ist\[)?((?:[A-Z]\w*)?V1[A-Z]\w+)\]?", type_)
    return inside[1] if inside else ""


def _plain(name: str) -> str:
    return re.sub(r"^(Core)?V1", "", name)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
