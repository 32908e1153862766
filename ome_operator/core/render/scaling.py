"""Render the disruption budgets, RoleScales and HorizontalPodAutoscalers of a service."""

from collections.abc import Iterator

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.core.resolve.scaling import ReplicaPolicy
from ome_operator.quantity import share_of
from ome_operator.util.memoize import memoize_by_identity
from ome_operator.util.wording import count

PERCENT = 80
"""Default target utilization of a HorizontalPodAutoscaler, in percent, if scaleTarget is unset."""


@memoize_by_identity(4096)
def budget(owner: meta.Owner, component: str, revision: str, allowed: int) -> Manifest:
    """Return the disruption budget for all pods of one role of one revision. `allowed` is the number of pods that may be
    missing at the same time.

    Budgets must not overlap, because a pod with two budgets cannot be evicted at all (decisions 14).
    """
    selector = meta.labels(owner.name, component, revision)
    spec = {
        "maxUnavailable": allowed,
        "selector": {"matchLabels": selector},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    name = names.budget(owner.name, component, revision)
    return meta.manifest(owner, "policy/v1", "PodDisruptionBudget", name, selector, {"spec": spec})


def allowed_disruptions(policy: ReplicaPolicy, groups: int) -> int:
    """Return the number of pods of a role that may be evicted at the same time; 1 by default.

    The user's values count groups, and the eviction of one pod stops one group. Percentages are rounded up, as the API
    server does for budgets.
    """
    if policy.max_unavailable is not None:
        return share_of(policy.max_unavailable, groups, up=True)
    if policy.min_available is not None:
        return max(0, groups - share_of(policy.min_available, groups, up=True))
    return 1


def role_scale(owner: meta.Owner, component: str, replicas: int) -> Manifest:
    """Return the RoleScale of a role as it is created. Afterwards only autoscalers and users change its spec (decisions
    4).
    """
    name = names.component(owner.name, component)
    body = {"spec": {"replicas": replicas}}
    return meta.manifest(owner, keys.API_VERSION, "RoleScale", name, meta.labels(owner.name, component), body)


def role_scale_status(owner: meta.Owner, component: str, groups: int, ready: int) -> Manifest:
    """Return the status of a RoleScale: `groups`, the number of existing groups, `ready`, the number of ready groups, and
    the label selector with which autoscalers find the leaders of all revisions.
    """
    selector = meta.requirement(meta.leaders(owner.name, component))
    return {"replicas": groups, "readyReplicas": ready, "selector": selector}


def with_status(owner: meta.Owner, component: str, status: Manifest) -> Manifest:
    """Return a manifest with which the status `status` of a RoleScale is applied."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "RoleScale",
        "metadata": {"name": names.component(owner.name, component), "namespace": owner.namespace},
        "status": status,
    }


@memoize_by_identity(1024)
def autoscaler(owner: meta.Owner, component: str, policy: ReplicaPolicy) -> Manifest:
    """Return the HorizontalPodAutoscaler that scales the RoleScale of a role. Its minimum is at least 1, because a
    HorizontalPodAutoscaler cannot scale up from zero.
    """
    name = names.component(owner.name, component)
    spec: Manifest = {
        "scaleTargetRef": {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "name": name},
        "minReplicas": max(1, policy.low),
        "maxReplicas": policy.high,
        "metrics": policy.hpa.get("metrics") or [_resource_metric(policy)],
    }
    if policy.hpa.get("behavior"):
        spec["behavior"] = policy.hpa["behavior"]
    labels = meta.labels(owner.name, component)
    return meta.manifest(owner, "autoscaling/v2", "HorizontalPodAutoscaler", name, labels, {"spec": spec})


def _resource_metric(policy: ReplicaPolicy) -> Manifest:
    target = {"type": "Utilization", "averageUtilization": policy.scale_target or PERCENT}
    return {"type": "Resource", "resource": {"name": policy.scale_metric or "cpu", "target": target}}


def advice(
    owner: meta.Owner,
    component: str,
    policy: ReplicaPolicy,
    groups: int,
    asked: int | None = None,
    *,
    moves: bool = False,
) -> list[str]:
    """Return advice about the requested scaling and disruption budget of a component.

    `groups` is the effective number of groups; `asked` is the number in the spec of the RoleScale, None if there is no
    RoleScale. `moves` is true if groups of the service move, so that its budgets allow no eviction.
    """
    sentences = []
    if moves and (policy.min_available is not None or policy.max_unavailable is not None):
        sentences.append(
            f"minAvailable and maxUnavailable of {component} have no effect together with spec.moves, because the "
            "disruption budgets then allow no eviction, and the operator removes groups itself (docs/moves.md)"
        )
    if groups and not moves and allowed_disruptions(policy, groups) == 0:
        sentences.append(
            f"the disruption budget of {component} allows no eviction at {count(groups, 'group')}, so a drain of its node "
            "never finishes: lower minAvailable or raise maxUnavailable"
        )
    if policy.waits:
        sentences.append(
            f"the autoscaler of spec.{component} had no effect in earlier versions of the operator. The operator creates "
            f"it with the next edit of the service. The autoscaler then changes the number of {component} between "
            f"{policy.low} and {policy.high}"
        )
        return sentences
    name = names.component(owner.name, component)
    sentences += _autoscaler_advice(component, policy)
    plural = "routers" if component == keys.ROUTER else "groups"
    if asked is not None and asked != groups:
        sentences.append(
            f"RoleScale {name} asks for {asked} {plural}, but spec.{component} has minReplicas {policy.low} and "
            f"maxReplicas {max(policy.high, policy.low)}: {groups} are used"
        )
    return sentences


def _autoscaler_advice(component: str, policy: ReplicaPolicy) -> Iterator[str]:
    """Yield advice about a HorizontalPodAutoscaler that is rendered with a poor metric, or that cannot be rendered."""
    field = f"spec.{component}"
    if policy.low >= policy.high or policy.scaler not in ("hpa", ""):
        return
    if policy.scaler == "":  # manual scaling (docs/scaling.md)
        if policy.scale_target:
            yield (f"{field}.scaleTarget has no effect without scaleMetric: set {field}.scaleMetric, or remove scaleTarget")
    elif not policy.autoscaled:
        yield (
            f"{field}.scaleMetric {policy.scale_metric} cannot be read by a HorizontalPodAutoscaler, so no "
            "HorizontalPodAutoscaler is created and nothing scales automatically: set autoscaler.hpa.metrics, or "
            "autoscaler.class KEDA or External (docs/scaling.md)"
        )
    elif policy.low == 0:
        yield (
            f"{field}.minReplicas is 0, but a HorizontalPodAutoscaler cannot scale up from zero: run kubectl scale to "
            "leave zero"
        )
    if policy.autoscaled and not policy.scale_metric and not policy.hpa.get("metrics"):
        yield (
            f"{field} names no metric, so its HorizontalPodAutoscaler reads the CPU usage, which does not reflect the load "
            f"of GPUs: set {field}.scaleMetric or {field}.autoscaler.hpa.metrics (docs/scaling.md)"
        )
