"""Reasons of services that are scaled with their demand (docs/demand.md)."""

from ome_operator.core.reasons.conditions import FOLLOWS_DEMAND
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, State

_OF, _CURRENT = (FOLLOWS_DEMAND,), Kstatus.CURRENT


class DemandReasons:
    """States of the autoscaler of the class Demand. A service serves in each of them."""

    FOLLOWED = ReasonRecord(
        "Followed", of=_OF, kstatus=_CURRENT, state=State.READY,
        meaning="the service has at least the groups that its demand needs. If it has more, `ome scale NAME` shows why "
                "they stay",
    )  # fmt: skip
    DEMAND_IGNORED = ReasonRecord(
        "DemandIgnored", of=_OF, kstatus=_CURRENT,
        meaning="the spec does not allow the operator to scale the service with its demand, so its size stays",
        remedy="correct the field that the message names",
    )  # fmt: skip
    DEMAND_UNMET = ReasonRecord(
        "DemandUnmet", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="the demand needs more groups than maximum, budget, nodes or the limit of changes permit, or no number of "
                "groups meets the target",
        remedy="`ome scale NAME` shows what limits the size: raise `maxReplicas`, `gpuBudget` or `changesPerHour`, add "
               "nodes, or change the target",
    )  # fmt: skip
    DEMAND_UNKNOWN = ReasonRecord(
        "DemandUnknown", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="readings of the load of routers or engines are missing, so the size stays",
        remedy="`ome scale NAME` shows which readings are missing. They need `--enable-metrics` of SGLang, the registry "
               "of the routers, and the operator's option `router-watch` ([telemetry](telemetry.md))",
    )  # fmt: skip
    DEMAND_UNMEASURED = ReasonRecord(
        "DemandUnmeasured", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="`ome plan` has no prediction for the service, and no requests have waited for a whole minute yet. The "
                "speed of a group is therefore unknown, and no number changes",
        remedy="nothing: the speed is measured when requests wait for the first time. Until then, `minReplicas` must "
               "suffice. `ome scale NAME` shows why there is no prediction",
    )  # fmt: skip
    DEMAND_FIRST_STEP = ReasonRecord(
        "DemandFirstStep", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="the demand may need more groups, but the speed of a group is known from a single measurement, so the "
                "number of groups is at most doubled",
        remedy="nothing: the new groups show whether the demand needs more. With `mode: Recommend`, add the groups "
               "yourself",
    )  # fmt: skip
    DEMAND_FROZEN = ReasonRecord(
        "DemandFrozen", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="the service is frozen or paused, so its size does not follow the demand",
        remedy="nothing: the size follows the demand again when the freeze or the pause ends",
    )  # fmt: skip
    DEMAND_UNDONE = ReasonRecord(
        "DemandUndone", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="somebody has undone the last decision with `ome scale NAME --undo`; the service keeps the previous size "
                "and does not follow its demand",
        remedy="`ome scale NAME --resume`",
    )  # fmt: skip
    SCALED_BY_HAND = ReasonRecord(
        "ScaledByHand", of=_OF, kstatus=_CURRENT, state=State.WAITING,
        meaning="somebody has set the number of a RoleScale by hand, and this number applies instead of the demand",
        remedy="`ome scale NAME --resume`",
    )  # fmt: skip
    RECOMMENDED = ReasonRecord(
        "Recommended", of=_OF, kstatus=_CURRENT, state=State.READY,
        meaning="the demand needs another size, and the mode is Recommend, so nothing changes. `ome scale NAME` shows the "
                "size and the reason; `mode: Apply` lets the operator use the size",
    )  # fmt: skip
