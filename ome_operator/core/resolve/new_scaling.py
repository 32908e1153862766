"""Delay the effect of autoscaler settings that had no effect in earlier versions of the operator, so that an upgrade alone
scales nothing.

The status stores the generation of the service that an earlier version had already reconciled with such settings. The
settings have an effect as soon as the generation differs, which is after the next edit of the spec.
"""

from collections.abc import Mapping

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.resolve.scaling import ReplicaPolicy

FIELD = "scalingIgnoredAt"
"""Field of the status with the generation of the spec in which the settings have no effect; 0 if they have an effect in
every generation; unset if the service does not use such settings."""


def uses_new_scaling(component: str, policy: ReplicaPolicy) -> bool:
    """Return whether the operator creates an autoscaler for a component that earlier versions did not create: the autoscaler
    of a router, or a ScaledObject.
    """
    return policy.waits or policy.scaled_by_keda or (component == keys.ROUTER and policy.autoscaled)


def ignored_generation(service: InferenceService, policies: Mapping[str, ReplicaPolicy]) -> int | None:
    """Return the value of the status field `FIELD`; None if the service uses no settings that had no effect in earlier
    versions.

    If the stored status describes the present generation and does not contain the field, an earlier version has reconciled
    this generation.
    """
    if not any(uses_new_scaling(component, policy) for component, policy in policies.items()):
        return None
    stored = service.status.get(FIELD)
    if isinstance(stored, int):
        return stored
    return service.generation if service.status.get("observedGeneration") == service.generation else 0


def mark_waiting_autoscalers(service: InferenceService, policies: Mapping[str, ReplicaPolicy]) -> dict[str, ReplicaPolicy]:
    """Return the policies by component, in which `waits` is true for each autoscaler that is not created before the next
    edit of the service.
    """
    ignored = ignored_generation(service, policies)
    if not ignored or ignored != service.generation:
        return dict(policies)
    return {name: one._replace(waits=uses_new_scaling(name, one)) for name, one in policies.items()}
