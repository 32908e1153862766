"""Careful reading of JSON that strangers write: an answer, a result, a file beside the weights may be anything."""

from typing import Any

UNREAD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading of JSON leads to that nobody of ours has written; the last where it is as deep as the API server allows."""


def text(value: Any) -> str:
    """A text, else ValueError."""
    if not isinstance(value, str):
        raise ValueError("it is no text")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts, which may be absent."""
    return tuple(map(text, value or ()))


def numbers(value: Any) -> tuple[int, ...]:
    """A list of whole numbers."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise ValueError("it is no list of numbers")
    return tuple(value)
