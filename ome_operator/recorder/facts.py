"""Facts as JSON and back, by the types of their fields: what a file says is checked, whoever wrote it."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ome_operator.errors import OmeError

_PLAIN = (str, int, float, bool)
_LARGEST = 2**63


class Unreadable(OmeError):
    """A sentence: what in a recording is not what it should be."""


def plain(value: Any) -> Any:
    """A fact as JSON data. Fields that have their defaults are left out, so facts of an older version can be read."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        defaults: Mapping[str, Any] = type(value)._field_defaults  # type: ignore[attr-defined]
        found = ((name, getattr(value, name)) for name in value._fields)
        return {name: plain(inner) for name, inner in found if name not in defaults or defaults[name] != inner}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value))
    return list(map(plain, value)) if isinstance(value, list | tuple) else str(value) if isinstance(value, str) else value


def read(type_: Any, data: Any, where: str) -> Any:
    """A value of this type. Raises Unreadable with `where` for anything else."""
    if type_ is Any:
        return data
    if type_ in _PLAIN:
        return _simple(type_, data, where)
    origin, parts = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        if data is None and NoneType in parts:
            return None
        return read(next(part for part in parts if part is not NoneType), data, where)
    if origin is None and hasattr(type_, "_fields"):
        return _record(type_, data, where)
    if origin is tuple:
        return _row(parts, data, where)
    if origin is frozenset:
        return frozenset(read(parts[0], inner, f"{where}[]") for inner in _list(data, where))
    if origin is not None and issubclass(origin, Mapping):
        table = _map(data, where)
        return {key: read(parts[1], inner, f"{where}.{key}") for key, inner in table.items()}
    raise TypeError(f"no fact has the type {type_}")


def _simple(type_: type, data: Any, where: str) -> Any:
    fits = isinstance(data, type_) or (type_ is float and isinstance(data, int))
    if not fits or (isinstance(data, bool) and type_ is not bool) or (isinstance(data, int) and abs(data) > _LARGEST):
        raise Unreadable(f"{where} is no {_NAMES[type_]}")
    return data


_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def _record(type_: Any, data: Any, where: str) -> Any:
    table, hints = _map(data, where), _hints(type_)
    if lacks := [name for name in type_._fields if name not in table and name not in type_._field_defaults]:
        raise Unreadable(f"{where} has no {lacks[0]}")
    return type_(**{name: read(hints[name], table[name], f"{where}.{name}") for name in type_._fields if name in table})


def _row(parts: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    row = _list(data, where)
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(read(parts[0], inner, f"{where}[{number}]") for number, inner in enumerate(row))
    if len(row) != len(parts):
        raise Unreadable(f"{where} has {len(row)} values, and should have {len(parts)}")
    return tuple(
        read(part, inner, f"{where}[{number}]") for number, (part, inner) in enumerate(zip(parts, row, strict=True))
    )


def _map(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise Unreadable(f"{where} is no map")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise Unreadable(f"{where} is no list")
    return data


@cache
def _hints(type_: Any) -> dict[str, Any]:
    return get_type_hints(type_)
