"""Parse untrusted JSON. A response, a result or a file next to weights may contain any value."""

from typing import Any

PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Exceptions that parsing untrusted JSON may raise. Python raises RecursionError for JSON as deep as the API server
accepts."""


def text(value: Any) -> str:
    """Return `value` if it is a string. Raises ValueError for any other value."""
    if not isinstance(value, str):
        raise ValueError("it is not a string")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """Return a tuple of the strings in a list; () if `value` is None. Raises an exception of PARSE_ERRORS for any other
    value.
    """
    return tuple(map(text, value or ()))


def numbers(value: Any) -> tuple[int, ...]:
    """Return a tuple of the whole numbers in a list. Raises ValueError for any other value."""
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise ValueError("it is not a list of numbers")
    return tuple(value)
