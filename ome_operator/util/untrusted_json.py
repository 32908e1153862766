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
    """Return the list of strings `value` as a tuple; () if `value` is None. Raises one of the exceptions in `PARSE_ERRORS`
    for any other value.
    """
    return tuple(map(text, value or ()))


def numbers(value: Any) -> tuple[int, ...]:
    """Return the list of whole numbers `value` as a tuple. Raises ValueError for any other value."""
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise ValueError("it is not a list of numbers")
    return tuple(value)
