"""Conditions and other parts of the status that several kinds share."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec, list_map


class Condition(Spec):
    """A condition of the object: true, false or unknown, with a reason and a message."""

    type: Annotated[str, Field(max_length=316)]
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: str | None = None
    """The reason as a CamelCase word."""
    message: str | None = None
    """The reason in sentences, and what to do."""
    severity: str | None = None
    """Empty if the condition matters for readiness, else Info or Warning."""
    last_transition_time: str | None = None
    """Time of the last change of the status."""
    observed_generation: int | None = None
    """Generation of the spec that the condition describes."""


Conditions = Annotated[list[Condition], list_map("type")]


class User(Spec):
    """A service that uses the object."""

    namespace: str
    """Namespace of the service."""
    name: str
    """Name of the service."""


Users = Annotated[list[User], ATOMIC]


class Waves(Spec):
    """Progress of the rollout of the object's last edit to the services that use the object, in waves."""

    generation: int
    """Generation of the object that contains the edit."""
    state: Literal["Rolling", "Baking", "Stopped", "Complete"]
    """Rolling: the services of a wave are being updated. Baking: the wave is complete, and the next wave has not begun.
    Stopped: a service failed. Complete: all services have the edit."""
    wave: int
    """Number of the current wave, from 1."""
    waves: int
    """Number of waves."""
    size: int
    """Number of services that have the edit when this wave ends, including those of earlier waves."""
    services: int
    """Number of services that the edit changes or has changed."""
    done: int
    """Number of services to which the edit has been rolled out completely."""
    rolling: int
    """Number of services that are being updated, or have lost a group after they were complete."""
    waiting: int
    """Number of services whose update has not begun."""
    failed: int
    """Number of services that did not become complete with the edit in time, or rejected it."""
    failed_services: Users | None = None
    """Services that failed, at most 10."""
    holding_services: Users | None = None
    """Services that are being updated, at most 10. The first are those that lack a claim, a quota or a node that the edit
    does not name."""
    bakes_until: str | None = None
    """Time at which the next wave begins, if the current wave is complete."""
