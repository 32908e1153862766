"""The error of `ome plan` for a request without an answer, and suggestions for misspelled names."""

import difflib
from collections.abc import Iterable

from ome_operator.errors import OmeError


class PlanRefused(OmeError):
    """An error that explains why `ome plan` has no answer. Its message names the closest supported value if there is one."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a clause for the end of a message. It contains the known name that is closest to `word`, or all known names
    if no name is similar.
    """
    names = list(known)
    found = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1, cutoff=0.4)
    if found:
        return f"the closest known name is {next(name for name in names if name.lower() == found[0])}"
    return f"the known names are {', '.join(names)}"
