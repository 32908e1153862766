"""Make untrusted text safe for a terminal. Characters that move the cursor, hide text or forge a line become visible."""

import json
import logging
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, format characters such as marks of writing direction, and line ends."""


def make_visible(text: str, keep: str = "") -> str:
    """Return the text as one line. Escape characters and line ends are replaced by symbols (␛, ␤), and other invisible
    characters by their code. Characters in `keep` are not replaced.
    """
    if text.isprintable():
        return text
    return "".join(item if item.isprintable() or item in keep else _symbol(item) for item in text)


def document(value: Any, indent: int | None = None) -> str:
    """Return `value` as a JSON document. Characters that affect terminals are escaped, although JSON does not require it,
    so that programs still read the exact value.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def make_all_visible(value: T) -> T:
    """Return the value with all its strings made visible by `make_visible`. Strings in records, tuples, lists and maps are
    included.
    """
    return _everywhere(value)  # type: ignore[no-any-return]


def _everywhere(value: Any) -> Any:
    if isinstance(value, str):
        return make_visible(value) if type(value) is str else value  # the strings of an enumeration are safe
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
    if unicodedata.category(item) not in _UNSEEN:  # blanks of other widths, and letters of newer versions of Unicode
        return item
    return f"\\u{ord(item):04x}" if ord(item) < 0x10000 else f"\\U{ord(item):08x}"


class VisibleFormatter(logging.Formatter):
    """A formatter that writes log lines for people. A message is one line; only tracebacks have several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message without characters that affect a terminal."""
        return make_visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Return the traceback, whose last line may contain untrusted text."""
        return make_visible(super().formatException(ei), keep="\n\t")
