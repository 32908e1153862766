"""RoleScale: the number of groups of one role, which autoscalers and people write (decisions 4)."""

from ome_operator.api.base import Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.objects import Object
from ome_operator.api.values import Count


class RoleScaleSpec(Spec):
    """How many groups are wanted, over all revisions. The operator sets it once, at creation."""

    replicas: Count | None = None
    """Wanted groups."""


class RoleScaleStatus(Spec):
    """How many there are."""

    replicas: int | None = None
    """Groups."""
    ready_replicas: int | None = None
    """Groups whose every pod is ready."""
    selector: str | None = None
    """Selects the leaders of the role, of every revision."""
    conditions: Conditions | None = None
    """Not written."""
    observed_generation: int | None = None
    """Not written."""


class RoleScale(Object[RoleScaleSpec]):
    """A parsed RoleScale."""

    KINDS = ("RoleScale",)
    SPEC = RoleScaleSpec
