"""Types of rules and of their findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ome_operator.lint.subject import Subject


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """The service does not start, or it answers wrongly."""
    WARNING = "warning"
    """The service runs, but wastes resources or breaks under load."""
    NOTE = "note"
    """Something could not be checked."""


class AutomaticFix(NamedTuple):
    """An automatic fix, which replaces an argument by another text."""

    old: str
    new: str


class Location(NamedTuple):
    """The object and the field in which a setting is written or has to be written."""

    object: str
    """Kind and name of the object."""
    field: str


class RuleHit(NamedTuple):
    """One violation of a rule."""

    place: Location
    says: str
    """A statement of what is wrong, as a sentence without its full stop."""
    remedy: str
    """The instruction that corrects the mistake, as an imperative sentence without capital letter and full stop."""
    fix: AutomaticFix | None = None


Check = Callable[[Subject], Iterator[RuleHit]]


@dataclass(frozen=True)
class Rule:
    """A check of a service, with its explanation."""

    id: str
    severity: Severity
    title: str
    ignored: str
    """A statement of what happens if the finding is ignored."""
    evidence: str
    """The source of the rule: a place in the engine's source code, a report, or a measurement."""
    check: Check


class Finding(NamedTuple):
    """A hit together with its rule and the service in which it was found."""

    rule: Rule
    service: str
    """Namespace and name of the service; "" for a runtime that is checked without a service."""
    hit: RuleHit


def rule(id: str, severity: Severity, title: str, *, ignored: str, evidence: str) -> Callable[[Check], Rule]:
    """Return a decorator that turns a check function into a Rule."""
    return lambda check: Rule(id, severity, title, ignored, evidence, check)
