"""Compare versions."""

import re


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text, in order, so that versions can be compared: (0, 5, 23) for `v0.5.23`. Text between the
    numbers, such as `rc` or `post`, is ignored.
    """
    return tuple(int(number) for number in re.findall(r"\d+", text))
