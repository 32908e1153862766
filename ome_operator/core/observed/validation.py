"""What is asked of a revision before it is stored, and while it is the target.

The rules of `ome lint` answer. They lie above the core, which does not import them: they come with `Deps`.
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
    """Pods of a group."""
    pods: tuple[Mapping[str, Any], ...]
    """Template of rank 0, and of the other ranks where there are some."""


class Asked(NamedTuple):
    """A revision with what is known of it."""

    service: InferenceService
    revision: str
    inputs: Mapping[str, Any]
    parts: tuple[RenderedComponent, ...]
    runtime: Runtime | None
    model: Model | None
    """The model whose weights the revision has; None where it is another than today's."""
    accelerators: Mapping[str, AcceleratorClass]
    well_known: WellKnown


class Objection(NamedTuple):
    """Why a revision must not start."""

    rule: str
    """Its id, with which the annotation `ome.io/lint-ignore` overrides it."""
    says: str
    """What is wrong."""
    sentence: str
    """The same with where it stands and what to do."""


class Verdict(NamedTuple):
    """What is said of a revision."""

    advice: tuple[str, ...] = ()
    refused: tuple[Objection, ...] = ()


Judge = Callable[[Asked], Verdict]


def silent(_: Asked) -> Verdict:
    """Where nobody looks, as in the commands that ask what would be made."""
    return Verdict()
