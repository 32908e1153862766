"""Write the RoleScales of a service whose groups a schedule removes and creates again (docs/demand.md).

The class Demand stores its numbers of groups in `status.scaling.applied`. If a stored number is 0, the number of the
RoleScale applies instead (`applied.applied_groups`). To remove all groups, the operator therefore writes 0 to the RoleScales
first. It also sets the annotation that a wake sets, so that the 0 is not mistaken for a number that a person has set. A
later reconciliation reads these RoleScales and stores 0 as the applied numbers. From then on, any number above 0 in a
RoleScale creates the groups again, whoever has written it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.reconcile.plan import Patch
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.scaling import ReplicaPolicy
from ome_operator.core.rollout import zero
from ome_operator.core.rollout.applied import demand_applies, set_by_hand, stored_groups


def sizes_before(snapshot: Snapshot) -> tuple[int, int] | None:
    """Return the numbers of prefill and decode groups that a service gets again after the schedule has set its RoleScales to
    zero. Return None if the RoleScales are not zero, or if somebody else has set them to zero.
    """
    scales = [zero.role_scale(snapshot, role) for role in zero.ROLES]
    if any(scale is None or scale.replicas for scale in scales) or not any(_rests(snapshot, role) for role in zero.ROLES):
        return None
    prefill, decode = (zero.groups_when_woken(zero.stored_zero(snapshot.service), role) for role in zero.ROLES)
    return prefill, decode


def _rests(snapshot: Snapshot, role: str) -> bool:
    """Return whether the schedule has set the RoleScale of a role to zero. The annotation of a wake proves this, because a
    wake itself never writes a 0.
    """
    scale = zero.role_scale(snapshot, role)
    return scale is not None and scale.replicas == 0 and not set_by_hand(scale) and scale.generation == scale.woken


def writes(snapshot: Snapshot, policies: Mapping[str, ReplicaPolicy], *, goes: bool) -> tuple[Patch, ...]:
    """Return the changes of the RoleScales: 0 for a service whose groups have to be removed, and the decided number for a
    service that has groups again. A RoleScale that has changed since it was read, or whose number somebody has set, is not
    changed.

    `goes` states whether a fresh decision removes all groups. The stored decision does not suffice, because it may be hours
    old.
    """
    status, numbers = snapshot.service.status, dict[str, int]()
    for role, number in stored_groups(status).items():
        if number and role in zero.ROLES and role in policies and demand_applies(snapshot.service, policies[role]):
            numbers[role] = number
    if numbers and goes and is_stored(status.get("scaling")):
        return tuple(_written(snapshot, dict.fromkeys(numbers, 0)))
    return tuple(_written(snapshot, {role: number for role, number in numbers.items() if _rests(snapshot, role)}))


def is_stored(scaling: Mapping[str, Any] | None) -> bool:
    """Return whether `status.scaling` contains the decision that the service should have no groups."""
    return (scaling or {}).get("hold") == HoldReason.SCHEDULED_ZERO


def _written(snapshot: Snapshot, numbers: Mapping[str, int]) -> Iterator[Patch]:
    for role, number in numbers.items():
        scale = zero.role_scale(snapshot, role)
        if scale is not None and not set_by_hand(scale) and (number or not _rests(snapshot, role)):
            body = zero.written_by_wake(scale.generation, scale.replicas, number)
            body["metadata"]["resourceVersion"] = str(scale.version)
            yield Patch("RoleScale", scale.name, scale.uid, body)
