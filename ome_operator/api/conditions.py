"""Conditions and other parts that the statuses of several kinds share."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec, list_map


class Condition(Spec):
    """One thing that is true, false or not known yet, with the reason in a word and in a sentence."""

    type: Annotated[str, Field(max_length=316)]
    """Name of the condition."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: str | None = None
    """The reason in a word."""
    message: str | None = None
    """The reason in sentences, and what to do."""
    severity: str | None = None
    """Empty when it matters for readiness, else Info or Warning."""
    last_transition_time: str | None = None
    """When the status changed last."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


Conditions = Annotated[list[Condition], list_map("type")]


class User(Spec):
    """A service that uses the object."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


Users = Annotated[list[User], ATOMIC]
