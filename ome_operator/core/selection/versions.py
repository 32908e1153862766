"""Compare versions of formats and frameworks in the same way as OME, with the runtime's version on the left side.

`GreaterThanOrEqual` 4.57.1 of a runtime accepts models that older releases saved: the runtime's version has to be greater
than or equal to the model's version.
"""

import re
from typing import NamedTuple

_RELEASE = re.compile(r"(?P<prefix>v?)(?P<major>\d{1,18})(\.(?P<minor>\d{1,18})(\.(?P<patch>\d{1,18})(?P<rest>\D.*)?)?)?")
UNORDERED = {"GreaterThan": "older than ", "GreaterThanOrEqual": "up to "}
"""Maps each operator of a runtime's version to its meaning for the version of a model, as a part of a message."""


class ParsedVersion(NamedTuple):
    """A version, split into its parts."""

    numbers: tuple[int, int, int]
    """Major, minor and patch number; missing numbers are 0."""
    rest: str
    """The text after the three numbers, such as `.dev0`, `-preview` or `+cu126`; "" for an official release."""
    form: tuple[str, int]
    """(prefix, count): the prefix `v` or "", and how many numbers the text contains."""


def release(text: str) -> ParsedVersion | None:
    """Return the parts of a version; None if the text is not a version."""
    match = _RELEASE.fullmatch(text)
    if match is None:
        return None
    written = [int(match[name]) for name in ("major", "minor", "patch") if match[name] is not None]
    major, minor, patch = written + [0] * (3 - len(written))
    return ParsedVersion((major, minor, patch), match["rest"] or "", (match["prefix"], len(written)))


def are_comparable(left: str, right: str) -> bool:
    """Return whether two versions can be ordered: both are official releases of the same form."""
    first, second = release(left), release(right)
    return bool(first and second and not first.rest and not second.rest and first.form == second.form)


def accepts_version(operator: str | None, runtime: str, model: str) -> bool:
    """Return whether a runtime with the version `runtime` accepts a model with the version `model`.

    Without an ordering operator, or if one of the versions is not an official release, the versions have to be equal. An
    ordering operator rejects two versions of different form: `4.57` and `4.48.3` cannot be compared.
    """
    left, right = release(runtime), release(model)
    if left is None or right is None:
        return runtime == model
    if operator not in UNORDERED or left.rest or right.rest:
        return (left.numbers, left.rest) == (right.numbers, right.rest)
    if not are_comparable(runtime, model):
        return False
    return left.numbers > right.numbers if operator == "GreaterThan" else left.numbers >= right.numbers
