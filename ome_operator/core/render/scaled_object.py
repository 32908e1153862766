"""Render the autoscalers of a service, including the ScaledObjects with which KEDA scales its roles, and give advice about
ScaledObjects.

KEDA creates a HorizontalPodAutoscaler for each ScaledObject. KEDA and the HorizontalPodAutoscaler change only the number in
the RoleScale.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta, scaling
from ome_operator.core.resolve.scaling import ReplicaPolicy
from ome_operator.util.memoize import memoize_by_identity

EXCLUDED_LABELS = "scaledobject.keda.sh/hpa-excluded-labels"
"""Annotation that lists the labels which KEDA does not copy to its HorizontalPodAutoscaler. If KEDA copied the labels of
the operator, the HorizontalPodAutoscaler would look as if the operator had created it."""
FAILURES = 3
"""Number of consecutive failed reads of a trigger after which the default fallback applies."""
RESOURCE_TRIGGERS = ("cpu", "memory")
"""Types of triggers for which KEDA has no fallback."""


def autoscalers(owner: meta.Owner, scaled: Mapping[str, ReplicaPolicy], *, keda: bool) -> list[Manifest]:
    """Return the autoscalers of the components `scaled`, which have a RoleScale. `keda` states whether the operator creates
    ScaledObjects.
    """
    made = [scaling.autoscaler(owner, name, one) for name, one in scaled.items() if one.autoscaled]
    return [*made, *(scaled_object(owner, name, one) for name, one in scaled.items() if keda and one.scaled_by_keda)]


@memoize_by_identity(1024)
def scaled_object(owner: meta.Owner, component: str, policy: ReplicaPolicy) -> Manifest:
    """Return the ScaledObject with which KEDA scales the RoleScale of a role."""
    name, labels = names.component(owner.name, component), meta.labels(owner.name, component)
    spec: Manifest = {
        "scaleTargetRef": {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "name": name},
        "minReplicaCount": policy.low,
        "maxReplicaCount": policy.high,
        "triggers": [_named(one, name) for one in policy.keda.triggers],
        **dict(policy.keda.more),
    }
    if "fallback" not in spec and (kept := _fallback(policy)):
        spec["fallback"] = kept
    made = meta.manifest(owner, "keda.sh/v1alpha1", "ScaledObject", name, labels, {"spec": spec})
    made["metadata"]["annotations"] = {EXCLUDED_LABELS: ",".join(labels)}
    return made


def _named(trigger: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a trigger with %s in its query replaced by the name of the RoleScale, as OME does."""
    metadata = trigger.get("metadata")
    if not isinstance(metadata, dict) or "query" not in metadata:
        return trigger
    return {**trigger, "metadata": {**metadata, "query": metadata["query"].replace("%s", name)}}


def _fallback(policy: ReplicaPolicy) -> Manifest | None:
    """Return the default fallback, which keeps the present number of groups while KEDA cannot read a trigger; None if the
    role gets no fallback.

    A role with minReplicas 0 gets no fallback. Its triggers may read metrics of its own engines, which are missing while the
    role has no groups, so a fallback would scale the role up again. Without a fallback, KEDA also keeps the present number
    of groups.
    """
    if not policy.low or all(one.get("type") in RESOURCE_TRIGGERS for one in policy.keda.triggers):
        return None
    return {"failureThreshold": FAILURES, "replicas": policy.low, "behavior": "currentReplicasIfHigher"}


def advice(owner: meta.Owner, component: str, policy: ReplicaPolicy, *, enabled: bool) -> Iterator[str]:
    """Yield advice about a component whose autoscaler class is KEDA but which gets no ScaledObject. `enabled` states whether
    the operator creates ScaledObjects.
    """
    if policy.scaler != "keda":
        return
    name, field = names.component(owner.name, component), f"spec.{component}"
    if policy.low >= policy.high:
        yield f"class KEDA scales nothing for {component}: {field}.maxReplicas has to be greater than minReplicas"
    elif policy.keda.incomplete:
        yield (
            f"no ScaledObject is created for {component}: kedaConfig needs promServerAddress, customPromQuery and "
            "scalingThreshold"
        )
    elif not policy.keda.triggers:
        yield (
            f"no ScaledObject is created for {component}, because it has no trigger: write "
            f"{field}.autoscaler.keda.triggers, or create a ScaledObject that refers to RoleScale {name}"
        )
    elif not enabled:
        yield (
            f"class KEDA has no effect for {component} and its size stays, because this operator creates no ScaledObjects: "
            f"install KEDA and set keda.enabled of the chart, or create a ScaledObject that refers to RoleScale {name} "
            "(docs/scaling.md)"
        )
