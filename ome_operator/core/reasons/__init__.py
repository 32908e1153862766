"""Names of conditions, and a record for every reason of a condition.

A reason is defined only once, in the module of its family. Events, `ome status`, `ome explain`, `ome ui` and
docs/troubleshooting.md (`python -m ome_operator.describe.page`) read the records.
"""

from collections.abc import Mapping

from ome_operator.core.reasons.benchmarks import BenchmarkReasons
from ome_operator.core.reasons.catalog import CatalogReasons
from ome_operator.core.reasons.conditions import (
    ADVICE,
    ANOTHER,
    COMPLETE,
    COMPONENTS,
    CONDITION,
    DECODER_READY,
    DRIFTED,
    ENGINE_READY,
    FOLLOWS_DEMAND,
    FROZEN,
    MODEL_READY,
    MOVED,
    NODES_AGREE,
    NOTHING,
    ORDER,
    PREFLIGHT,
    READY,
    RECONCILING,
    RECOVERED,
    ROLLED_OUT,
    ROUTER_INTACT,
    ROUTER_READY,
    RUNTIME_READY,
    SCALED,
    STALLED,
    TRANSFERS_WORK,
    ReasonedMessage,
)
from ome_operator.core.reasons.demand import DemandReasons
from ome_operator.core.reasons.good import GoodReasons
from ome_operator.core.reasons.inputs import InputReasons
from ome_operator.core.reasons.moves import MoveReasons
from ome_operator.core.reasons.pods import PodReasons
from ome_operator.core.reasons.record import ORDINARY, POD, Kstatus, ReasonRecord, RolloutStage, State
from ome_operator.core.reasons.recovery import RecoveryReasons
from ome_operator.core.reasons.rollouts import ObjectReasons, RolloutReasons

__all__ = [
    "ADVICE",
    "ANOTHER",
    "COMPLETE",
    "COMPONENTS",
    "CONDITION",
    "DECODER_READY",
    "DRIFTED",
    "ENGINE_READY",
    "FAMILIES",
    "FOLLOWS_DEMAND",
    "FROZEN",
    "MODEL_READY",
    "MOVED",
    "NODES_AGREE",
    "NOTHING",
    "ORDER",
    "ORDINARY",
    "POD",
    "PREFLIGHT",
    "READY",
    "REASONS",
    "RECONCILING",
    "RECOVERED",
    "ROLLED_OUT",
    "ROUTER_INTACT",
    "ROUTER_READY",
    "RUNTIME_READY",
    "SCALED",
    "STALLED",
    "TRANSFERS_WORK",
    "Kstatus",
    "Reason",
    "ReasonRecord",
    "ReasonedMessage",
    "RolloutStage",
    "State",
    "record_of",
]

FAMILIES: Mapping[str, type] = {
    "What the service needs": InputReasons,
    "Its pods": PodReasons,
    "Groups that failed": RecoveryReasons,
    "Groups that move": MoveReasons,
    "Objects": ObjectReasons,
    "Rollouts": RolloutReasons,
    "Scaling with the demand": DemandReasons,
    "Models, runtimes and accelerator classes": CatalogReasons,
    "BenchmarkJobs": BenchmarkReasons,
    "Nothing to do": GoodReasons,
}
"""Maps each heading in docs/troubleshooting.md to the class that contains the reasons listed under the heading."""


class Reason(
    InputReasons,
    PodReasons,
    RecoveryReasons,
    MoveReasons,
    ObjectReasons,
    RolloutReasons,
    DemandReasons,
    CatalogReasons,
    BenchmarkReasons,
    GoodReasons,
):
    """All reasons by name, such as `Reason.WAITING_FOR_ROOM`."""


REASONS: Mapping[str, ReasonRecord] = {
    record.word: record
    for family in FAMILIES.values()
    for record in vars(family).values()
    if isinstance(record, ReasonRecord)
}
"""Maps the word of each reason to its record. Conditions can also contain words without a record, which come from the
kubelet, the scheduler or the API server."""


def record_of(word: str) -> ReasonRecord:
    """Return the record of a reason. For a word of Kubernetes that has no record, return the record of a state that
    requires action.
    """
    return REASONS.get(word) or ReasonRecord(word, of=(), kstatus=Kstatus.IN_PROGRESS, meaning="")
