"""Versions of formats and frameworks, compared as OME compares them: the runtime's version stands on the left.

A runtime that says `GreaterThanOrEqual` 4.57.1 serves what older releases saved: its own version has to be greater than
the model's, or equal.
"""

import re
from typing import NamedTuple

_RELEASE = re.compile(r"(?P<prefix>v?)(?P<major>\d+)(\.(?P<minor>\d+)(\.(?P<patch>\d+)(?P<rest>\D.*)?)?)?")
SAID = {"GreaterThan": "older than ", "GreaterThanOrEqual": "up to "}
"""Operator of a runtime -> what it means for the version of a model."""


class ParsedVersion(NamedTuple):
    """A version in its parts."""

    numbers: tuple[int, int, int]
    """Parts that are not written are 0."""
    rest: str
    """What follows the three numbers, such as `.dev0`, `-preview` or `+cu126`; "" for an official release."""
    form: tuple[str, int]
    """The prefix (`v` or none) and how many numbers are written."""


def release(text: str) -> ParsedVersion | None:
    """A version, None for a text that is none."""
    found = _RELEASE.fullmatch(text)
    if found is None:
        return None
    written = [int(found[name]) for name in ("major", "minor", "patch") if found[name] is not None]
    major, minor, patch = written + [0] * (3 - len(written))
    return ParsedVersion((major, minor, patch), found["rest"] or "", (found["prefix"], len(written)))


def ordered(left: str, right: str) -> bool:
    """Whether one of two versions can be called greater: both are official releases, written in the same form."""
    first, second = release(left), release(right)
    return bool(first and second and not first.rest and not second.rest and first.form == second.form)


def holds(operator: str | None, runtime: str, model: str) -> bool:
    """Whether a runtime for the version `runtime` serves a model of the version `model`.

    Where no order is known, an operator asks for equality with a version that is no official release, and refuses two
    versions of unlike form: `4.57` and `4.48.3` say nothing about each other.
    """
    left, right = release(runtime), release(model)
    if left is None or right is None:
        return runtime == model
    if operator not in SAID or left.rest or right.rest:
        return (left.numbers, left.rest) == (right.numbers, right.rest)
    if not ordered(runtime, model):
        return False
    return left.numbers > right.numbers if operator == "GreaterThan" else left.numbers >= right.numbers
