"""RoleScale: the number of groups of one role, which autoscalers and users set (decisions 4)."""

from ome_operator.api.base import Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.objects import Object
from ome_operator.api.values import Count


class RoleScaleSpec(Spec):
    """The desired number of groups over all revisions. The operator sets it once, at creation."""

    replicas: Count | None = None
    """Desired number of groups."""


class RoleScaleStatus(Spec):
    """The actual number of groups."""

    replicas: int | None = None
    """Number of groups."""
    ready_replicas: int | None = None
    """Number of groups whose pods are all ready."""
    selector: str | None = None
    """Label selector of the leader pods of the role, in all revisions."""
    conditions: Conditions | None = None
    """The condition Ready, and Reconciling while it is not True."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class RoleScale(Object[RoleScaleSpec]):
    """A parsed RoleScale."""

    KINDS = ("RoleScale",)
    SPEC = RoleScaleSpec
