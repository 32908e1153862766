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


class Waves(Spec):
    """How far the last edit of the object has come over the services that it changes."""

    generation: int
    """The generation that the edit made."""
    state: Literal["Rolling", "Baking", "Stopped", "Complete"]
    """Rolling: a wave is on its way; Baking: it is whole, and the next waits; Stopped: a service failed; Complete: all have
    the edit.
    """
    wave: int
    """The wave that it is, from 1."""
    waves: int
    """Number of waves."""
    size: int
    """Services that are reached when this wave ends, those of the waves before included."""
    services: int
    """Services that the edit changes or has changed."""
    done: int
    """Those that are whole with it."""
    rolling: int
    """Those that are on their way, or have lost a group since they were whole."""
    waiting: int
    """Those that have not begun."""
    failed: int
    """Those that did not become whole with it in time, or rejected it."""
    failed_services: Users | None = None
    """Their names, at most 10."""
    bakes_until: str | None = None
    """When the next wave begins, while this wave is whole."""
