"""For every reason of the table in `ome_operator.core.reasons`, and for each condition in which it can occur: an object with
this condition, as the operator writes it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ome_operator.core.reasons import (
    ADVICE,
    ANOTHER,
    COMPLETE,
    COMPONENTS,
    DRIFTED,
    FROZEN,
    POD,
    READY,
    REASONS,
    Kstatus,
    Reason,
    ReasonRecord,
)
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.conditions import Condition

EARLY = datetime(2026, 1, 1)
WHEN_TRUE = {ADVICE, ANOTHER, FROZEN, *DRIFTED.values()}
"""Types of conditions that exist only while they are True."""


def bodies() -> Iterator[tuple[ReasonRecord, str, dict[str, Any]]]:
    """Yield (reason, condition, object) for every reason and each of its conditions, as the operator writes them. For a
    service whose pods wait there are two objects: one that is not Ready, and one that is Ready because another revision
    serves.
    """
    for record in REASONS.values():
        for type_ in record.of:
            if type_ == POD:
                continue
            status = True if record.is_good or type_ in WHEN_TRUE else None if record == "NodesUnknown" else False
            found = Condition(type_, status, record, "said")
            others = [found]
            if type_ in (*COMPONENTS, "ModelReady", "RuntimeReady") and not record.is_good:
                yield record, type_, body([found, Condition(READY, False, record, "said")])
            if type_ not in (READY, COMPLETE):
                others.append(Condition(READY, True, Reason.SERVING, "it serves"))
            yield record, type_, body(others)


def body(conditions: list[Condition]) -> dict[str, Any]:
    """Return an object with these conditions."""
    said = cond.format_conditions(conditions, (), 1, EARLY)
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "svc", "namespace": "team", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": said},
    }


def expected(record: ReasonRecord, type_: str) -> Kstatus:
    """Return how kstatus must read an object that has the reason in a condition of this type."""
    if type_ == FROZEN or (type_ == "ModelReady" and record == "NodesUnknown"):
        return Kstatus.CURRENT  # such an object is complete, unless another condition says something else
    return record.read_as if type_ == READY else record.kstatus
