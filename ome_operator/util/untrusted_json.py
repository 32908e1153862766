"""Parse untrusted JSON: a response, a result or a file next to weights may contain any value."""

from typing import Any

PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Exceptions that parsing untrusted JSON raises; RecursionError for JSON as deep as the API server accepts."""


def text(value: Any) -> str:
    """Return a string; raise ValueError for any other value."""
    if not isinstance(value, str):
        raise ValueError("it is not a string")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """Return a list of strings, which may be absent."""
    return tuple(map(text, value or ()))


def numbers(value: Any) -> tuple[int, ...]:
    """Return a list of whole numbers; raise ValueError for any other value."""
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise ValueError("it is not a list of numbers")
    return tuple(value)
