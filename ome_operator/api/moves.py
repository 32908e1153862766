"""Settings of moves: whether groups leave nodes that will go away after other groups have taken their place."""

from typing import Literal

from ome_operator.api.base import Spec
from ome_operator.api.values import Duration


class Moves(Spec):
    """Groups leave a node that is tainted, or that `ome move` names, after other groups have taken their place. If unset,
    nothing is moved, and an eviction stops a group. If it is set, the disruption budgets of the service allow no eviction.
    """

    on_cordon: bool | None = None
    """Whether groups leave nodes that are only cordoned, too; false if unset."""
    timeout: Duration | None = None
    """How long a replacement may wait for free nodes; "30m" if unset."""
    without_replacement: Literal["Stay", "Go"] | None = None
    """What happens after the timeout. Stay (default): the group stays and serves, and a drain of its node waits. Go: the
    group finishes its requests and ends."""
