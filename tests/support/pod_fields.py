"""Writes ome_operator/api/data/pod_fields.json: `python -m tests.support.pod_fields`.

The table is derived from the installed package `kubernetes`. The operator and `ome lint` read the table instead of that
package, because importing the package takes longer than checking a file should.
"""

import json
import re
from pathlib import Path

from kubernetes.client import models

FILE = Path(__file__).parents[2] / "ome_operator/api/data/pod_fields.json"
ROOTS = ("V1PodSpec", "V1ObjectMeta")


QUANTITIES = frozenset({"limits", "requests", "overhead", "sizeLimit", "divisor"})
"""Fields of pods whose values are quantities. The package types them as strings."""
_SCALARS = {"str": "string", "int": "integer", "bool": "boolean"}


def text() -> str:
    """Return the content of the file: type -> name of each field -> form of its value (`pod_fields.form`)."""
    found: dict[str, dict[str, str]] = {}
    left = list(ROOTS)
    while left:
        name = left.pop()
        if name in found:
            continue
        model = getattr(models, name)
        types = {field: model.openapi_types[attribute] for attribute, field in model.attribute_map.items()}
        found[name] = {field: _form(field, type_) for field, type_ in types.items()}
        left += [inner for type_ in types.values() if (inner := _inner(type_))]
    plain = {_plain(name): fields for name, fields in found.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(dict(sorted(plain[name].items())))}" for name in sorted(plain))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _form(field: str, type_: str) -> str:
    """Return the form of a value, from the package's notation such as `list[V1Container]` and `dict[str, str]`."""
    outer = "[]" if type_.lower().startswith("list[") else "{}" if type_.lower().startswith("dict") else ""
    inner = re.sub(r"^(?:list\[|dict[\[(]str, )(.*)[\])]$", r"\1", type_, flags=re.IGNORECASE)
    if field in QUANTITIES:
        return f"{outer}quantity"
    return outer + (_plain(name) if (name := _inner(type_)) else _SCALARS.get(inner, ""))


def _inner(type_: str) -> str:
    """Return the class in a type such as `list[V1Container]`; "" for scalars and for maps whose keys users choose."""
    inside = re.fullmatch(r"(?:[Ll]ist\[)?((?:[A-Z]\w*)?V1[A-Z]\w+)\]?", type_)
    return inside[1] if inside else ""


def _plain(name: str) -> str:
    return re.sub(r"^(Core)?V1", "", name)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
