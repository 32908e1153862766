"""The interface for validating a revision before it is stored, and while it is the target of a rollout.

The rules of `ome lint` implement this interface. They are in a higher layer, so the core does not import them. The function
that applies them is passed as `Deps.judge`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ome_operator.api import AcceleratorClass, InferenceService, Model, Runtime
from ome_operator.api.well_known import WellKnown
from ome_operator.core.reasons import Reason


class RenderedComponent(NamedTuple):
    """The rendered pods of a component of a revision: prefill, decode, engine or router."""

    component: str
    title: str
    """Name of the component in messages: prefill, decode, engine or router."""
    size: int
    """Number of pods per group."""
    pods: tuple[Mapping[str, Any], ...]
    """Pod template of rank 0, followed by the pod template of the other ranks if there are any."""


class RevisionUnderTest(NamedTuple):
    """A revision together with the objects from which it was made."""

    service: InferenceService
    revision: str
    inputs: Mapping[str, Any]
    parts: tuple[RenderedComponent, ...]
    runtime: Runtime | None
    model: Model | None
    """The model whose weights the revision contains; None if that is not the current model."""
    accelerators: Mapping[str, AcceleratorClass]
    well_known: WellKnown
    refusals_only: bool = False
    """Whether the caller needs only `ValidationResult.refused`. Only the rules that refuse a revision are then applied,
    which take a small part of the time of all rules."""


class Objection(NamedTuple):
    """A reason why the rollout of a revision must not start."""

    rule: str
    """ID of the violated rule. The annotation `ome.io/lint-ignore` with this ID skips the rule."""
    says: str
    """Description of the mistake, without its place in the object and without the remedy."""
    sentence: str
    """Description of the mistake, its place, and the remedy."""


class ValidationResult(NamedTuple):
    """The result of validating a revision."""

    advice: tuple[str, ...] = ()
    refused: tuple[Objection, ...] = ()
    reason: str = Reason.NO_EFFECT
    """Reason of the condition Advice: the worst severity among `advice`."""


Validator = Callable[[RevisionUnderTest], ValidationResult]


def accept_all(_: RevisionUnderTest) -> ValidationResult:
    """Accept every revision without applying any rule. Commands that only render a service use this function in place of the
    rules.
    """
    return ValidationResult()
