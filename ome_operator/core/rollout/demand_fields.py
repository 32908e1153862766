"""Find fields of the class Demand (docs/demand.md) that are invalid or have no effect, each with a sentence that states what
to write instead.
"""

from collections.abc import Iterator, Mapping

from ome_operator import keys, quantity
from ome_operator.api import InferenceService
from ome_operator.api.scaling import DemandPolicy, GroupsByComponent, Peak
from ome_operator.core.demand.estimate import BOUNDS
from ome_operator.core.demand.facts import COMPONENT_OF, GROUPS
from ome_operator.core.demand.task import APPLY
from ome_operator.core.demand.undo import Size, size_of
from ome_operator.core.resolve.scaling import ReplicaPolicy
from ome_operator.core.rollout.applied import demand_policy

_FIELD = "spec.scalingPolicy.demand"
_GROUPS = tuple(COMPONENT_OF[role] for role in GROUPS)
"""The components that have groups."""
_NO_GPUS: Mapping[str, int] = {}


def problem(service: InferenceService, policies: Mapping[str, ReplicaPolicy], gpus: Mapping[str, int]) -> str:
    """Return why a service of the class Demand cannot be scaled with its demand, and what to do; "" if it can be scaled.
    `policies` maps each component to its replica policy. `gpus` maps each component to the number of GPUs of one of its
    groups; it is empty if the numbers are unknown.
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
            f"faster than {BOUNDS[0]:g} s, so a shorter target is treated as always missed: write {1000 * BOUNDS[0]:.0f}ms "
            "or more"
        )
    if quantity.seconds(policy.time_between_tokens) <= 0:
        return (
            f"{_FIELD}.timeBetweenTokens is {policy.time_between_tokens}, which no group can meet: write a time such as 50ms"
        )
    return ""


def _budget(policy: DemandPolicy, policies: Mapping[str, ReplicaPolicy], gpus: Mapping[str, int]) -> str:
    needed = _gpus(gpus, {name: policies[name].low for name in _GROUPS if name in policies})
    if policy.gpu_budget is None or policy.gpu_budget >= needed:
        return ""
    return (
        f"{_FIELD}.gpuBudget is {policy.gpu_budget}, but the smallest size of the service needs {needed} GPUs: raise "
        "gpuBudget, or lower minReplicas"
    )


def _gpus(gpus: Mapping[str, int], groups: Mapping[str, int]) -> int:
    """Return the number of GPUs of a service with the numbers of groups in `groups`; each role is counted with at least one
    group. `gpus` is the number of GPUs of one group of each component.
    """
    return sum(max(1, number) * gpus.get(name, 0) for name, number in groups.items())


def undone_size(service: InferenceService) -> Size | None:
    """Return the size that somebody went back to with `ome scale --undo`, and that the service keeps; None if there is no
    such size. With the mode Recommend the operator changes no size, so there is nothing to keep.
    """
    policy = demand_policy(service)
    written = service.annotations.get(keys.SCALED_BACK) or ""
    return size_of(written) if written and policy is not None and policy.mode == APPLY else None


def advice(
    service: InferenceService, policies: Mapping[str, ReplicaPolicy], gpus: Mapping[str, int] = _NO_GPUS
) -> Iterator[str]:
    """Yield sentences about fields of the class Demand that have no effect, or that contradict other fields. `policies` and
    `gpus` have the same meaning as in `problem`.
    """
    policy = demand_policy(service)
    scaled = {name: one for name, one in policies.items() if one.demand}
    if service.annotations.get(keys.SCALED_BACK) and (not scaled or undone_size(service) is None):
        yield (
            f"the annotation {keys.SCALED_BACK} has no effect: it needs the class Demand, {_FIELD}.mode Apply, and a value "
            "that `ome scale --undo` has written. Remove it"
        )
    for name, one in scaled.items():
        if one.unbounded:
            yield (
                f"spec.{name}.maxReplicas is not set, so the class Demand does not scale {name}: write "
                f"spec.{name}.maxReplicas"
            )
        elif not one.is_scaled:
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
    yield from _late(policy)
    yield from _routers(policy, policies)
    yield from _spare(policy, policies)
    for number, peak in enumerate(policy.schedule or ()):
        yield from _peak(f"{_FIELD}.schedule[{number}].minimum", peak, policies)
        yield from _rest(f"{_FIELD}.schedule[{number}].minimum", peak, policies)
    yield from _beyond_budget(policy, policies, gpus)


def _late(policy: DemandPolicy) -> Iterator[str]:
    """Yield a sentence about a target for the first token that is longer than the histogram of SGLang can show."""
    if quantity.seconds(policy.time_to_first_token) > BOUNDS[-1]:
        yield (
            f"{_FIELD}.timeToFirstToken is {policy.time_to_first_token}, but SGLang does not count how many requests were "
            f"slower than {BOUNDS[-1]:g} s, so it is treated as {BOUNDS[-1]:g} s: write {BOUNDS[-1]:g}s or less"
        )


def _routers(policy: DemandPolicy, policies: Mapping[str, ReplicaPolicy]) -> Iterator[str]:
    router = policies.get(keys.ROUTER)
    if router is None:
        return
    if router.demand and router.is_scaled and policy.requests_per_router is None:
        yield (
            f"spec.{keys.ROUTER} has the autoscaler class Demand, but the number of routers never changes without "
            f"{_FIELD}.requestsPerRouter: set it"
        )
    if not router.demand and policy.requests_per_router is not None:
        yield _unscaled(f"{_FIELD}.requestsPerRouter", keys.ROUTER)


def _spare(policy: DemandPolicy, policies: Mapping[str, ReplicaPolicy]) -> Iterator[str]:
    """Yield a sentence for each role with spare groups that does not follow the demand. Also yield a sentence for each role
    that always has its maximum number of groups. This is the case if the spare groups, together with the one group that
    every demand needs, reach the maximum.
    """
    written = {name: groups for name, groups in _numbers(policy.spare).items() if groups and name in policies}
    for name, groups in written.items():
        if not policies[name].demand:
            yield _unscaled(f"{_FIELD}.spare.{name}", name)
        elif policies[name].is_scaled and groups + 1 >= policies[name].high:
            yield (
                f"{_FIELD}.spare.{name} is {groups}, but spec.{name}.maxReplicas is {policies[name].high}, so the service "
                "always has the maximum: lower spare, or raise maxReplicas"
            )


def _peak(field: str, peak: Peak, policies: Mapping[str, ReplicaPolicy]) -> Iterator[str]:
    """Yield sentences about an entry of the schedule whose minimum is not used. `field` is the path of the minimum of the
    entry `peak`. Roles that do not exist, or whose bounds are equal, are left out, because other functions yield sentences
    about them.
    """
    if not peak.minimum.dump():
        yield f"{field} is empty, so the time has no effect: write {field}.{keys.ENGINE}"
    written = {name: groups for name, groups in _numbers(peak.minimum).items() if groups and name in policies}
    asked = {name: groups for name, groups in written.items() if policies[name].demand and policies[name].is_scaled}
    for name, groups in written.items():
        if not policies[name].demand:
            yield _unscaled(f"{field}.{name}", name)
        elif name in asked and groups > policies[name].high:
            yield (
                f"{field}.{name} is {groups}, but spec.{name}.maxReplicas is {policies[name].high}, which is used: raise "
                "maxReplicas"
            )
    if asked and all(groups <= policies[name].low for name, groups in asked.items()):
        yield f"{field} has no effect, because none of its numbers is above minReplicas: raise it, or remove the entry"


def _rest(field: str, peak: Peak, policies: Mapping[str, ReplicaPolicy]) -> Iterator[str]:
    """Yield a sentence about an entry `peak` of the schedule whose minimum is 0, if the service keeps its groups despite
    this minimum. `field` is the path of the minimum.
    """
    written = {name: getattr(peak.minimum, name) for name in _GROUPS}
    if 0 not in written.values():
        return
    if {*written.values()} != {0}:
        yield f"{field} is 0 for one role only, which has no effect: write 0 for {' and '.join(_GROUPS)}, or remove it"
        return
    kept = [f"spec.{name}" for name, one in policies.items() if name in _GROUPS and (one.low or not one.demand)]
    if kept:
        yield (
            f"{field} is 0, but {' and '.join(kept)} {'keeps its' if len(kept) == 1 else 'keep their'} groups: write "
            f"minReplicas: 0 and autoscaler.class: Demand for {' and '.join(kept)}"
        )


def _beyond_budget(policy: DemandPolicy, policies: Mapping[str, ReplicaPolicy], gpus: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence about each field that asks for a size of the service that needs more GPUs than `gpuBudget`.
    `policies` are the replica limits and `gpus` the GPUs of a group, by component.
    """
    if policy.gpu_budget is None or _budget(policy, policies, gpus):
        return
    bounds = {name: policies[name] for name in _GROUPS if name in policies}
    spare = _numbers(policy.spare)
    asked = {
        f"{_FIELD}.spare": {name: min(one.high, max(1, one.low) + spare[name] * one.demand) for name, one in bounds.items()}
    }
    for number, peak in enumerate(policy.schedule or ()):
        minimum = _numbers(peak.minimum)
        size = {name: max(one.low, min(one.high, minimum[name] * one.demand)) for name, one in bounds.items()}
        asked[f"{_FIELD}.schedule[{number}].minimum"] = size
    for field, groups in asked.items():
        if (needed := _gpus(gpus, groups)) > policy.gpu_budget:
            yield (
                f"with {field}, the smallest size of the service needs {needed} GPUs, but gpuBudget is "
                f"{policy.gpu_budget}, which is kept: raise gpuBudget"
            )


def _numbers(groups: GroupsByComponent | None) -> dict[str, int]:
    return {name: (getattr(groups, name) or 0) if groups is not None else 0 for name in _GROUPS}


def _unscaled(field: str, component: str) -> str:
    return (
        f"{field} has no effect, because spec.{component} does not have the autoscaler class Demand: write "
        f"spec.{component}.autoscaler.class: Demand"
    )
