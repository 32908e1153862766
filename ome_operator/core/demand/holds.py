"""The reasons why a service does not get the size that its demand needs, or gets it later."""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Any

from ome_operator.core.demand.facts import COMPONENT_OF, GROUPS, PREFILL


class HoldReason(StrEnum):
    """Reasons why a service does not have the size that its demand needs, or does not have it yet."""

    INVALID = "Invalid"
    FROZEN = "Frozen"
    SCHEDULED_ZERO = "ScheduledZero"
    UNDONE = "Undone"
    UNHEARD = "Unheard"
    UNKNOWN = "Unknown"
    UNMEASURED = "Unmeasured"
    UNREACHABLE = "Unreachable"
    MAXIMUM = "Maximum"
    BUDGET = "Budget"
    NO_ROOM = "NoRoom"
    CAPPED = "Capped"
    FIRST_STEP = "FirstStep"
    STARTING = "Starting"
    BUSY = "Busy"
    HOLE = "Hole"
    LATE = "Late"
    ERRORS = "Errors"
    COOL_DOWN = "CoolDown"
    CAP = "Cap"
    PLANNED = "Planned"


SURPLUS = (
    HoldReason.STARTING,
    HoldReason.BUSY,
    HoldReason.HOLE,
    HoldReason.LATE,
    HoldReason.ERRORS,
    HoldReason.COOL_DOWN,
    HoldReason.CAP,
    HoldReason.PLANNED,
)
"""Reasons why a service keeps more groups than its demand needs. With any other reason, the service may have too few
groups or no groups."""

HOLDS: dict[str, str] = {
    HoldReason.INVALID: "The spec does not allow the operator to scale the service with its demand. Nothing changes.",
    HoldReason.FROZEN: "The service is frozen or paused. Nothing changes.",
    HoldReason.SCHEDULED_ZERO: "The schedule lets the service have no groups now, and no request has arrived for ten "
    "minutes. The groups come back when the scheduled time ends.",
    HoldReason.UNDONE: "Somebody has undone the last decision with `ome scale SERVICE --undo`. The service keeps the "
    "previous size until somebody runs `ome scale SERVICE --resume`.",
    HoldReason.UNHEARD: "The operator does not read the load from the routers, because its option `router-watch` is 0: set "
    "it to 5 (only possible inside the cluster). Nothing changes.",
    HoldReason.UNKNOWN: "The latest readings of the load are missing or older than 20 s. Nothing changes.",
    HoldReason.UNMEASURED: "The lengths of requests or the speed of the groups are not known yet. `ome plan` has "
    "no prediction with which a group meets the targets, and no requests have waited in a group for a whole minute. The "
    "numbers of groups do not change.",
    HoldReason.UNREACHABLE: "A request that does not wait is already slower than the target, so no number of groups meets "
    "it. The numbers of groups do not change.",
    HoldReason.MAXIMUM: "The demand needs more groups than the maximum of a role.",
    HoldReason.BUDGET: "The demand needs more GPUs than the budget.",
    HoldReason.NO_ROOM: "The cluster has no nodes for the groups that the demand needs.",
    HoldReason.CAPPED: "The demand needs more groups or routers, but the number of changes within this hour has reached its "
    "limit (`changesPerHour`). Groups are added only to a role that has fewer than its minimum.",
    HoldReason.FIRST_STEP: "The demand may need more groups, but the speed of a group is known from a single measurement. "
    "The number of groups that serve is therefore at most doubled. The new groups then show "
    "whether the demand needs more.",
    HoldReason.STARTING: "Fewer groups would be enough, but a group is still starting.",
    HoldReason.BUSY: "Fewer groups would be enough, but a rollout, a recycle, a move or a drain is in progress.",
    HoldReason.HOLE: "Fewer groups would be enough, but readings of the load are missing within the last ten minutes.",
    HoldReason.LATE: "Fewer groups would be enough, but too many requests miss the target now.",
    HoldReason.ERRORS: "Fewer groups would be enough, but the share of failed requests rises.",
    HoldReason.COOL_DOWN: "Fewer groups would be enough, but they have not been enough for long enough yet, or the last "
    "change is too recent.",
    HoldReason.CAP: "Fewer groups would be enough, but the number of changes within this hour has reached its limit.",
    HoldReason.PLANNED: "Fewer groups would be enough according to `ome plan`, or to measurements from before the "
    "groups changed, but the speed of the present groups was not measured.",
}
"""Maps each reason to a human-readable text that states its meaning."""


class Limit(Enum):
    """What sets the maximum number of groups of a role of the class Demand."""

    MAX_REPLICAS = auto()
    """The field maxReplicas."""
    UNSET = auto()
    """No field sets a maximum: maxReplicas is not set, so the class Demand does not scale the role."""
    BY_HAND = auto()
    """The number that somebody has written to the RoleScale."""


_NO_LIMITS: Mapping[str, Limit] = {}


def describe_hold(hold: str, at_maximum: Any = None, limits: Mapping[str, Limit] = _NO_LIMITS) -> str:
    """Return the human-readable text that states the meaning of a reason; "" for "" and for an unknown reason.

    For `HoldReason.MAXIMUM` the text names each role that needs more groups, and what to change. `at_maximum` is the
    field `atMaximum` of `status.scaling`, which people may have edited, and `limits` maps the components that have the class
    Demand to what limits them.
    """
    stored = at_maximum if hold == HoldReason.MAXIMUM and isinstance(at_maximum, Mapping) else {}
    most = {role: stored[role] for role in GROUPS if type(stored.get(role)) is int}
    if not most:
        return HOLDS.get(hold, "")
    words = " ".join(_maximum(role, number, COMPONENT_OF[role], limits) for role, number in most.items())
    return (
        f"{words} The number of decode groups is limited to those that the prefill groups can keep busy."
        if PREFILL in most
        else words
    )


def _maximum(role: str, number: int, component: str, limits: Mapping[str, Limit]) -> str:
    limit = limits.get(component)
    if limit is Limit.MAX_REPLICAS:
        return (
            f"The demand needs more {role} groups than the maximum of {role}, which is {number}: raise "
            f"spec.{component}.maxReplicas."
        )
    beyond = f"The demand needs more {role} groups than the service has ({number}), and"
    if limit is Limit.UNSET:
        return f"{beyond} {role} has no maximum, so it is not scaled: set spec.{component}.maxReplicas."
    if limit is Limit.BY_HAND:
        return f"{beyond} somebody has set this number in its RoleScale: run `ome scale SERVICE --resume`."
    return (
        f"{beyond} {role} is not scaled with the demand: add groups, or write Demand into spec.{component}.autoscaler.class."
    )
