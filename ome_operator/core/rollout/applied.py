"""The numbers of groups that the autoscaler of the class Demand has decided, which are stored in the status of the service.

After the creation of a RoleScale, the operator writes the number of the RoleScale only to remove all groups of a service, or
to create them again (decisions 4). This autoscaler therefore stores its numbers in `status.scaling.applied`. A number that
somebody has written to a RoleScale takes precedence. When a stored number no longer applies, because the class or the mode
was changed, the RoleScale is deleted and created again with the present number of groups. Otherwise the old number of the
RoleScale could remove groups.
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import names
from ome_operator.api import InferenceService
from ome_operator.api.scaling import DemandPolicy
from ome_operator.core.demand.task import APPLY
from ome_operator.core.observed.objects import Child
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.scaling import ReplicaPolicy


def demand_policy(service: InferenceService) -> DemandPolicy | None:
    """Return `spec.scalingPolicy.demand` of a service. Return None if the field is not set."""
    return service.spec.scaling_policy.demand if service.spec.scaling_policy is not None else None


def role_scale(snapshot: Snapshot, component: str) -> Child | None:
    """Return the RoleScale of a component; None if it does not exist, or if it belongs to an owner other than the service. A
    RoleScale without an owner is returned, because the service is about to adopt it.
    """
    service = snapshot.service
    found = snapshot.observed.children.get(("RoleScale", names.component(service.name, component)))
    return found if found is not None and found.owner in ("", service.uid) else None


def set_by_hand(scale: Child) -> bool:
    """Return whether somebody has changed the number of a RoleScale since the operator last wrote the number. The operator
    writes the number when it creates the RoleScale, removes all groups of the service, or creates them again. The
    generation of the RoleScale shows whether it was changed, because only a change of the spec increases the generation.
    """
    return scale.generation > 1 and scale.generation != scale.woken


def by_hand(snapshot: Snapshot, component: str) -> bool:
    """Return whether somebody has set the number of the RoleScale of a component."""
    scale = role_scale(snapshot, component)
    return scale is not None and set_by_hand(scale)


def stored_groups(status: Mapping[str, Any]) -> dict[str, int]:
    """Return `scaling.applied` of a stored status, which people may have edited."""
    scaling = status.get("scaling")
    numbers = scaling.get("applied") if isinstance(scaling, Mapping) else None
    known = numbers.items() if isinstance(numbers, Mapping) else ()
    return {name: value for name, value in known if type(value) is int and value >= 0}


def applied_groups(snapshot: Snapshot, component: str) -> int | None:
    """Return the number of groups that the class Demand has decided for a component. Return None if the class has decided
    no number, or if somebody has set the number of the RoleScale. Also return None for a stored 0, because a 0 was
    copied from a RoleScale that requested no groups, and the number of this RoleScale changes when the service is woken.
    """
    return None if by_hand(snapshot, component) else stored_groups(snapshot.service.status).get(component) or None


def demand_applies(service: InferenceService, policy: ReplicaPolicy) -> bool:
    """Return whether the numbers that the class Demand decides are applied to a component with this policy."""
    asked = demand_policy(service)
    return policy.demand and policy.is_scaled and asked is not None and asked.mode == APPLY


def is_overridden(snapshot: Snapshot, component: str, policy: ReplicaPolicy) -> bool:
    """Return whether a component has the number of groups that somebody has written to its RoleScale, instead of the number
    that the class Demand decides.
    """
    return demand_applies(snapshot.service, policy) and by_hand(snapshot, component)


def is_outdated(snapshot: Snapshot, component: str, policy: ReplicaPolicy, groups: int) -> bool:
    """Return whether the RoleScale of a component has to be created again: the stored number that the class Demand decided
    no longer applies, and the number of the RoleScale is not `groups`, the number of groups that the component should have.
    """
    scale = role_scale(snapshot, component)
    ended = applied_groups(snapshot, component) is not None and not demand_applies(snapshot.service, policy)
    return ended and scale is not None and not scale.deleting and scale.replicas != groups


def kept_groups(snapshot: Snapshot, policies: Mapping[str, ReplicaPolicy], groups: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers in `status.scaling.applied` that have to stay stored although they no longer apply, by component.
    These are the numbers of components whose RoleScale does not have the desired number of groups yet, and of components of
    the class Demand without a maximum. `groups` is the desired number of groups by component.
    """
    found = {}
    for component, number in stored_groups(snapshot.service.status).items():
        policy, scale = policies.get(component), role_scale(snapshot, component)
        if policy is not None and policy.unbounded:
            found[component] = number
            continue
        if (
            policy is None
            or not policy.is_scaled
            or demand_applies(snapshot.service, policy)
            or by_hand(snapshot, component)
        ):
            continue
        if scale is None or scale.deleting or scale.replicas != groups[component]:
            found[component] = number
    return found
