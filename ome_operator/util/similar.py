"""Find the name that a user probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_MOST_COMPARED = 2_000
"""Maximum number of names that are compared, because the comparison of all names of a large catalog takes seconds."""


def similar(name: str, names: Iterable[str]) -> str:
    """Return the most similar of some names, or "" if none is similar. Upper and lower case do not differ."""
    return next(iter(get_close_matches(name.lower(), islice(names, _MOST_COMPARED), 1, 0.75)), "")


def meant(name: str, names: Iterable[str]) -> str:
    """Return a question about the most similar name, to which a remedy in lower case is appended; "" if none is similar."""
    found = similar(name, names)
    return f"did you mean {found}? Otherwise " if found else ""
