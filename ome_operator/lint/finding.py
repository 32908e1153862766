"""Types of rules and of their findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ome_operator.lint.subject import Subject


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    """The service does not start, or it answers wrongly."""
    WARNING = "warning"
    """The service runs, but wastes resources or breaks under load."""
    NOTE = "note"
    """Something could not be checked."""


class Fix(NamedTuple):
    """An automatic fix: an argument is replaced by another text."""

    old: str
    new: str


class Location(NamedTuple):
    """The object and the field where a setting is written, or should be."""

    object: str
    """Kind and name."""
    field: str


class Hit(NamedTuple):
    """One violation of a rule."""

    place: Location
    says: str
    """What is wrong, as a sentence without its full stop."""
    remedy: str
    """What to do, as an imperative sentence without capital letter and full stop."""
    fix: Fix | None = None


Check = Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """A check of a service, with its explanation."""

    id: str
    severity: Severity
    title: str
    ignored: str
    """What happens if the finding is ignored."""
    evidence: str
    """How this is known: a place in the engine's source, a report, or a measurement."""
    check: Check


class Finding(NamedTuple):
    """A hit together with its rule and the service."""

    rule: Rule
    service: str
    """Namespace and name; "" for a runtime that is checked by itself."""
    hit: Hit


def rule(id: str, severity: Severity, title: str, *, ignored: str, evidence: str) -> Callable[[Check], Rule]:
    """Turn the function that performs the check into a Rule. Used as a decorator."""
    return lambda check: Rule(id, severity, title, ignored, evidence, check)
