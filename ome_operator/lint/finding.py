"""Rules and what they find."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ome_operator.lint.subject import Subject


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """It does not start, or it answers wrongly."""
    WARNING = "warning"
    """It runs, and does less than it could, or breaks under load."""
    NOTE = "note"
    """What could not be checked."""


class Fix(NamedTuple):
    """An argument that becomes others."""

    old: str
    new: str


class Location(NamedTuple):
    """Where it stands."""

    object: str
    """Kind and name."""
    field: str


class Hit(NamedTuple):
    """What a rule found."""

    place: Location
    says: str
    """What is there, as a sentence without its full stop."""
    remedy: str
    """What to do, as a sentence without its full stop."""
    fix: Fix | None = None


Check = Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """What is looked for."""

    id: str
    severity: Severity
    title: str
    ignored: str
    """What happens to whoever ignores it."""
    evidence: str
    """How that is known: a place in the engine's source, a report, a measurement."""
    check: Check


class Finding(NamedTuple):
    """A hit of a rule in a service."""

    rule: Rule
    service: str
    """Namespace and name; "" for a runtime by itself."""
    hit: Hit


def rule(id: str, severity: Severity, title: str, *, ignored: str, evidence: str) -> Callable[[Check], Rule]:
    """Make a rule of the function that looks for it."""
    return lambda check: Rule(id, severity, title, ignored, evidence, check)
