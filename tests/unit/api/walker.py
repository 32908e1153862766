"""A strict check of an object against a structural schema, which works like strict field validation of an API server."""

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
OPEN = "x-kubernetes-preserve-unknown-fields"
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def errors(value: Any, schema: Json, at: str = "") -> Iterator[str]:
    """Yield the errors of the value. CEL rules are not evaluated."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{at}: {value!r} is neither a number nor a text"
        return
    if kind := schema.get("type"):
        if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
            yield f"{at}: {value!r} is no {kind}"
            return
    elif OPEN not in schema:
        yield f"{at}: the schema has no type"
    yield from _bounds(value, schema, at)
    if isinstance(value, dict):
        yield from _fields(value, schema, at)
    if isinstance(value, list):
        for i, one in enumerate(value):
            yield from errors(one, schema["items"], f"{at}[{i}]")


def _fields(value: Json, schema: Json, at: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}.{name}: missing"
    for name, one in value.items():
        below = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if below is not None:
            yield from errors(one, below, f"{at}.{name}")
        elif not schema.get(OPEN):
            yield f"{at}.{name}: unknown"


def _bounds(value: Any, schema: Json, at: str) -> Iterator[str]:
    size = len(value) if isinstance(value, str | list) else value
    low = schema.get("minimum", schema.get("minLength", schema.get("minItems")))
    high = schema.get("maximum", schema.get("maxLength", schema.get("maxItems")))
    if (low is not None and size < low) or (high is not None and size > high):
        yield f"{at}: {value!r} is out of bounds"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: {value!r} does not match {schema['pattern']}"


def nodes(schema: Json, at: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every subschema with its path."""
    yield at, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{at}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{at}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{at}{{}}")
