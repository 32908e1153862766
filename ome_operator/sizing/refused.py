"""What a person is told when a question has no answer."""

import difflib
from collections.abc import Iterable

from ome_operator.errors import OmeError


class PlanRefused(OmeError):
    """Why there is no answer: a sentence, with the nearest that is known."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The nearest that is known, for the end of a sentence; all that are known where none is near."""
    names = list(known)
    found = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1, cutoff=0.4)
    if found:
        return f"the nearest that is known is {next(name for name in names if name.lower() == found[0])}"
    return f"known are {', '.join(names)}"
