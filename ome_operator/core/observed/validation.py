"""The interface for validating a revision before it is stored, and while it is the target.

The rules of `ome lint` implement it. They are in a higher layer, so the core does not import them: `Deps` provides the
function.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ome_operator.api import AcceleratorClass, InferenceService, Model, Runtime
from ome_operator.api.well_known import WellKnown


class RenderedComponent(NamedTuple):
    """A component of a revision, or its router."""

    component: str
    title: str
    """prefill, decode, engine or router."""
    size: int
    """Pods per group."""
    pods: tuple[Mapping[str, Any], ...]
    """Pod template of rank 0, and of the other ranks if there are any."""


class RevisionUnderTest(NamedTuple):
    """A revision together with the objects from which it was made."""

    service: InferenceService
    revision: str
    inputs: Mapping[str, Any]
    parts: tuple[RenderedComponent, ...]
    runtime: Runtime | None
    model: Model | None
    """The model whose weights the revision has; None if it is not the current model."""
    accelerators: Mapping[str, AcceleratorClass]
    well_known: WellKnown


class Objection(NamedTuple):
    """A reason why a revision must not start."""

    rule: str
    """ID of the rule, with which the annotation `ome.io/lint-ignore` overrides it."""
    says: str
    """What is wrong."""
    sentence: str
    """What is wrong, with the location and what to do."""


class ValidationResult(NamedTuple):
    """The result of validating a revision."""

    advice: tuple[str, ...] = ()
    refused: tuple[Objection, ...] = ()


Validator = Callable[[RevisionUnderTest], ValidationResult]


def accept_all(_: RevisionUnderTest) -> ValidationResult:
    """Accept every revision, for commands that only render a service."""
    return ValidationResult()
