"""The part of the status of an InferenceService about roles without groups, and how they came back."""

from typing import Annotated, Literal

from ome_operator.api.base import ATOMIC_MAP, Spec


class Wake(Spec):
    """How a service came back after a role had no groups."""

    time: str | None = None
    """Time of the request or of the change that brought the service back."""
    by: Literal["Request", "Scale"] | None = None
    """Request: a request arrived. Scale: the RoleScale was changed, for example by `ome wake`."""
    served_after_seconds: float | None = None
    """Seconds from `time` until the service could answer requests."""
    first_token_after_seconds: float | None = None
    """Seconds from `time` until the numbers of an engine first showed tokens, which is up to 20 s after the token. Unset
    without telemetry, or while no request was completed."""


class ZeroStatus(Spec):
    """State of a service whose roles have, or had, no groups."""

    since: str | None = None
    """Time since which a role has no groups; unset while every role has groups."""
    groups: Annotated[dict[str, int] | None, ATOMIC_MAP] = None
    """Last number of groups by component, with which the service comes back."""
    wake: Wake | None = None
