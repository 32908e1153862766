"""Find the name that a user probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nlargest
from itertools import islice, pairwise

_MOST_COMPARED = 2_000
"""Maximum number of names that are compared, because tenants create as many objects as they want."""
_NEAREST = 5
"""Number of names that are compared thoroughly: those that share most pairs of neighboring characters with the name."""
_LONGEST = 64
"""Maximum number of leading characters of a name that are compared. The time of a comparison grows with the square of this
number.
"""
_SHARE = 0.75
"""Minimum share of equal characters of two similar names."""


def most_similar(name: str, names: Iterable[str]) -> str:
    """Return the most similar of some names, or "" if none is similar. Upper and lower case do not differ."""
    word = name[:_LONGEST].lower()
    pairs = set(pairwise(word))

    def shared(other: str) -> float:
        return len(pairs.intersection(pairwise(other[:_LONGEST]))) / (len(word) + min(len(other), _LONGEST))

    if not pairs:
        return ""
    compared = (other for other in islice(names, _MOST_COMPARED) if _of_similar_length(word, other))
    nearest = {other[:_LONGEST]: other for other in nlargest(_NEAREST, compared, key=shared)}
    return next((nearest[found] for found in get_close_matches(word, nearest, 1, _SHARE)), "")


def _of_similar_length(word: str, other: str) -> bool:
    """Return whether two names may be similar according to their lengths."""
    lengths = len(word), min(len(other), _LONGEST)
    return 2 * min(lengths) >= _SHARE * sum(lengths)


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return a text such as `did you mean NAME? Otherwise `, which precedes a remedy in lower case; "" if no name is
    similar.
    """
    found = most_similar(name, names)
    return f"did you mean {found}? Otherwise " if found else ""
