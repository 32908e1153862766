"""Find invalid fields of the class Demand (docs/demand.md), each with a sentence that states what to write instead."""

from collections.abc import Iterator, Mapping

from ome_operator import keys, quantity
from ome_operator.api import InferenceService
from ome_operator.api.scaling import DemandPolicy
from ome_operator.core.demand.estimate import BOUNDS
from ome_operator.core.demand.facts import GROUPS
from ome_operator.core.resolve.scaling import ReplicaPolicy
from ome_operator.core.rollout.applied import COMPONENT_OF, demand_policy

_FIELD = "spec.scalingPolicy.demand"


def problem(service: InferenceService, policies: Mapping[str, ReplicaPolicy], gpus: Mapping[str, int]) -> str:
    """Return why a service of the class Demand cannot be scaled with its demand, and what to do; "" if it can. `gpus` has
    the GPUs of a group of each component, and is empty if they are unknown.
    """
    policy = demand_policy(service)
    if policy is None:
        return f"autoscaler.class Demand needs targets: set {_FIELD}"
    missing = [f"spec.{name}" for name in (keys.DECODER, keys.ROUTER) if getattr(service.spec, name) is None]
    if missing:
        return (
            f"autoscaler.class Demand needs prefill, decode and routers: add {' and '.join(missing)}, or use another class"
        )
    return _target(policy) or _budget(policy, policies, gpus)


def _target(policy: DemandPolicy) -> str:
    if quantity.seconds(policy.time_to_first_token) < BOUNDS[0]:
        return (
            f"{_FIELD}.timeToFirstToken is {policy.time_to_first_token}, but SGLang does not count how many requests were "
            f"faster than {BOUNDS[0]:g} s, so a shorter target counts as always missed: write {1000 * BOUNDS[0]:.0f}ms "
            "or more"
        )
    if quantity.seconds(policy.time_between_tokens) <= 0:
        return (
            f"{_FIELD}.timeBetweenTokens is {policy.time_between_tokens}, which no group can meet: write a time such as 50ms"
        )
    return ""


def _budget(policy: DemandPolicy, policies: Mapping[str, ReplicaPolicy], gpus: Mapping[str, int]) -> str:
    names = [COMPONENT_OF[role] for role in GROUPS]
    pair = sum(max(1, policies[name].low) * gpus.get(name, 0) for name in names if name in policies)
    if policy.gpu_budget is None or policy.gpu_budget >= pair:
        return ""
    return (
        f"{_FIELD}.gpuBudget is {policy.gpu_budget}, but the smallest size of the service needs {pair} GPUs: raise "
        "gpuBudget, or lower minReplicas"
    )


def advice(service: InferenceService, policies: Mapping[str, ReplicaPolicy]) -> Iterator[str]:
    """Yield sentences about fields of the class Demand that have no effect."""
    policy = demand_policy(service)
    scaled = {name: one for name, one in policies.items() if one.demand}
    for name, one in scaled.items():
        if not one.scaled:
            yield (
                f"spec.{name} has the autoscaler class Demand, but its maxReplicas is not above its minReplicas, so its "
                "number never changes: raise maxReplicas"
            )
    if policy is None:
        return
    if not scaled:
        yield (
            f"{_FIELD} has no effect without a component of the class Demand: write spec.{keys.DECODER}.autoscaler.class: "
            "Demand"
        )
        return
    for number, peak in enumerate(policy.schedule or ()):
        minimum = {name: getattr(peak.minimum, name) or 0 for name in (keys.ENGINE, keys.DECODER)}
        if not any(minimum.values()):
            yield f"{_FIELD}.schedule[{number}].minimum is empty, so the time has no effect: write minimum.{keys.ENGINE}"
        for name, groups in minimum.items():
            if name in scaled and groups > scaled[name].high:
                yield (
                    f"{_FIELD}.schedule[{number}].minimum.{name} is {groups}, but spec.{name}.maxReplicas is "
                    f"{scaled[name].high}, which is used: raise maxReplicas"
                )
