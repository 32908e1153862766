"""Convert facts to JSON and back according to the types of their fields. The contents of a file are validated, because
they are untrusted.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ome_operator.errors import OmeError

_PLAIN = (str, int, float, bool)
_LARGEST = 2**63


class UnreadableRecording(OmeError):
    """Raised for an invalid recording. The text names the invalid part."""


def fact_json(value: Any) -> Any:
    """Return a fact as JSON. A field of a named tuple is left out if it has its default value; `convert` then inserts the
    default.
    """
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        defaults: Mapping[str, Any] = type(value)._field_defaults  # type: ignore[attr-defined]
        values = ((name, getattr(value, name)) for name in value._fields)
        return {name: fact_json(inner) for name, inner in values if name not in defaults or defaults[name] != inner}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: fact_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): fact_json(inner) for key, inner in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(fact_json, value))
    return (
        list(map(fact_json, value)) if isinstance(value, list | tuple) else str(value) if isinstance(value, str) else value
    )


def convert(type_: Any, data: Any, location: str) -> Any:
    """Return `data` converted to the type `type_`. Raises UnreadableRecording, with the path `location`, if `data` has
    another type.
    """
    if type_ is Any:
        return data
    if type_ in _PLAIN:
        return _simple(type_, data, location)
    origin, parts = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        if data is None and NoneType in parts:
            return None
        return convert(next(part for part in parts if part is not NoneType), data, location)
    if origin is None and hasattr(type_, "_fields"):
        return _record(type_, data, location)
    if origin is tuple:
        return _row(parts, data, location)
    if origin is frozenset:
        return frozenset(convert(parts[0], inner, f"{location}[]") for inner in _list(data, location))
    if origin is not None and issubclass(origin, Mapping):
        table = _map(data, location)
        return {key: convert(parts[1], inner, f"{location}.{key}") for key, inner in table.items()}
    raise TypeError(f"facts do not have the type {type_}")


def _simple(type_: type, data: Any, location: str) -> Any:
    fits = isinstance(data, type_) or (type_ is float and isinstance(data, int))
    if not fits or (isinstance(data, bool) and type_ is not bool) or (isinstance(data, int) and abs(data) > _LARGEST):
        raise UnreadableRecording(f"{location} is not {_NAMES[type_]}")
    return data


_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _record(type_: Any, data: Any, location: str) -> Any:
    table, hints = _map(data, location), _hints(type_)
    if missing := [name for name in type_._fields if name not in table and name not in type_._field_defaults]:
        raise UnreadableRecording(f"{location} has no {missing[0]}")
    return type_(
        **{name: convert(hints[name], table[name], f"{location}.{name}") for name in type_._fields if name in table}
    )


def _row(parts: tuple[Any, ...], data: Any, location: str) -> tuple[Any, ...]:
    row = _list(data, location)
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(convert(parts[0], inner, f"{location}[{number}]") for number, inner in enumerate(row))
    if len(row) != len(parts):
        raise UnreadableRecording(f"{location} has {len(row)} values instead of {len(parts)}")
    return tuple(
        convert(part, inner, f"{location}[{number}]") for number, (part, inner) in enumerate(zip(parts, row, strict=True))
    )


def _map(data: Any, location: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise UnreadableRecording(f"{location} is not a map")
    return data


def _list(data: Any, location: str) -> list[Any]:
    if not isinstance(data, list):
        raise UnreadableRecording(f"{location} is not a list")
    return data


@cache
def _hints(type_: Any) -> dict[str, Any]:
    return get_type_hints(type_)
