"""The admission decision about a gang that waits for nodes, in the form in which a pass over the service receives it."""

from typing import Any, NamedTuple


class GangAdmission(NamedTuple):
    """The admission decision for a gang that waits for nodes (core/placement/admission.py)."""

    sure: bool | None = None
    """True if the gang is admitted to a placement attempt and probably fits on the nodes; False if it is admitted
    although it probably does not fit; None if it is not admitted."""
    rivals: tuple[Any, ...] = ()
    """The claims (`core/placement/claims.py:Claim`) of other services that compete for nodes."""
    waits: str = ""
    """What the gang waits for, now or after its placement attempt, as a text that completes "waits for …"; "" if it does not
    wait."""
    held: str = ""
    """A text that names the services whose pods hold nodes that pods of the gang could take. It is set only while pods of
    the gang find no node; "" if nothing is known."""
    coming: bool = False
    """Whether an autoscaler reported that it creates nodes for the gang's pods."""
    pressed: bool = False
    """Whether another gang that waits would fit on the nodes if this gang released its nodes."""
    gives_way: frozenset[tuple[str, int]] | None = None
    """The groups of the service that hold nodes without serving and have to release these nodes now for other services. The
    set is empty if no group has to release nodes, or if nothing was decided yet. It is None if the claim of the service
    contains no groups that hold nodes without serving."""


NO_ADMISSION = GangAdmission()
