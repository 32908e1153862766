"""The last start of a group, by parts."""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec


class StartPart(Spec):
    """A part of the start of a group."""

    name: str
    """scheduled, volumes, init, image, imports, weights, cache, graphs, engine, warmup, probe, listed or firstToken."""
    seconds: float
    """Seconds of the part, for the rank that took longest."""
    rank: int | None = None
    """The rank that took longest; unset if the group has a single pod, and for parts that only the leader reports."""


class GroupStart(Spec):
    """The last start of a group, from the creation of its first pod or the restart of its leader's container until its
    leader was ready. Unknown parts are left out.
    """

    time: str
    """Time at which the leader was ready."""
    seconds: float
    """Seconds until the leader was ready."""
    parts: Annotated[list[StartPart] | None, ATOMIC, Field(max_length=16)] = None
    """Seconds of each known part in order, each for its slowest rank, so they do not add up exactly."""
