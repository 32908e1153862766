"""Text of strangers for a terminal: what would move its cursor, hide something or forge a line is made visible."""

import json
import logging
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Controls, marks of writing direction and the like, and ends of lines, by Unicode's categories."""


def visible(text: str, keep: str = "") -> str:
    """A line: escapes and ends of lines as symbols (␛, ␤), whatever else nobody sees as its number; `keep` stays."""
    if text.isprintable():
        return text
    return "".join(item if item.isprintable() or item in keep else _symbol(item) for item in text)


def document(value: Any, indent: int | None = None) -> str:
    """A document that a program reads exactly: a terminal obeys some characters that JSON may hold as they are."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def everywhere(value: T) -> T:
    """The same value with every text in it visible: records, tuples, lists and maps."""
    return _everywhere(value)  # type: ignore[no-any-return]


def _everywhere(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value) if type(value) is str else value  # an enumeration is ours
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_everywhere, value))
    if isinstance(value, list | tuple | frozenset | set):
        return type(value)(map(_everywhere, value))
    if isinstance(value, Mapping):
        return {_everywhere(key): _everywhere(inner) for key, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: _everywhere(getattr(value, item.name)) for item in fields(value) if item.init})
    return value


def _symbol(item: str) -> str:
    if item == "\n":
        return "␤"
    if item < " ":
        return chr(0x2400 + ord(item))
    if item == "\x7f":
        return "␡"
    if unicodedata.category(item) not in _UNSEEN:  # blanks of other widths, and letters of a newer Unicode
        return item
    return f"\\u{ord(item):04x}" if ord(item) < 0x10000 else f"\\U{ord(item):08x}"


class Visible(logging.Formatter):
    """Log lines for people. A message is one line; only tracebacks, which are ours, have several."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Without what the message could do to a terminal."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """A traceback ends with words of whoever was read."""
        return visible(super().formatException(ei), keep="\n\t")
