"""The admission decision about a gang that waits for nodes, in the form in which a pass over the service receives it."""

from typing import Any, NamedTuple


class GangAdmission(NamedTuple):
    """The admission decision for a gang that waits for nodes (core/placement/admission.py)."""

    sure: bool | None = None
    """Whether the gang probably fits, if it is admitted to a placement attempt now; None if it is not admitted."""
    rivals: tuple[Any, ...] = ()
    """The claims (`core/placement/claims.py:Claim`) of other services that compete for nodes."""
    waits: str = ""
    """Text that follows "waits for": what the gang waits for, now or after its attempt; "" if it does not wait."""
    held: str = ""
    """Which services hold nodes that pods of the gang could take, while some of these pods find no node; "" if unknown."""
    coming: bool = False
    """Whether an autoscaler reported that it creates nodes for the gang's pods."""
    pressed: bool = False
    """Whether another gang that waits would fit on the nodes if this gang released its nodes."""
    gives_way: frozenset[tuple[str, int]] | None = None
    """Groups that hold nodes without serving, and that have to release their nodes now for other services; empty if none has
    to, or while this is not decided. None if the claim of the service contains no groups that hold nodes without serving."""


NO_ADMISSION = GangAdmission()
