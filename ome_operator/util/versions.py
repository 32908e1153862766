"""Compare versions."""

import re

_DIGITS = 18
"""Largest number of digits of a number. A longer number is read as a number that is larger than all shorter numbers."""


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text, in order, so that versions can be compared: (0, 5, 23) for `v0.5.23`. Text between the
    numbers, such as `rc` or `post`, is ignored.
    """
    return tuple(int(number) if len(number) <= _DIGITS else 10**_DIGITS for number in re.findall(r"\d+", text))
