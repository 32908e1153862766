"""Compare the ResourceQuotas of a namespace with a rollout: what the new pods need, and what the old pods release.

A dry run cannot answer this question: it counts the new pod in addition to all existing pods, so a namespace whose quota is
exactly as large as its service would refuse every edit of the service.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator.core.placement.demand import HOST_PORT, requests
from ome_operator.quantity import units

_BARE = ("cpu", "memory", "ephemeral-storage")
"""Names of resources for which a quota may write NAME instead of `requests.NAME`."""
_SHOWN = 3
"""Largest number of insufficient ResourceQuotas that a message lists."""


class Usage(NamedTuple):
    """The amounts by which one object increases the used amounts of ResourceQuotas."""

    amounts: tuple[tuple[str, int], ...]
    """For each resource that a quota can limit: its name in the quota, and the amount in the units of `quantity.units`."""
    pod: bool = False
    """Whether the object is a pod. Quotas with scopes count only pods."""
    best_effort: bool = False
    """Whether the pod requests no CPU and no memory, and has no limits of either."""
    priority: str = ""
    """Name of the PriorityClass of the pod; "" if the pod names no PriorityClass."""


class QuotaChange(NamedTuple):
    """The objects that a rollout creates and removes, each with their number."""

    additional_usage: tuple[tuple[Usage, int], ...] = ()
    goes: tuple[tuple[Usage, int], ...] = ()


def of_pod(spec: Mapping[str, Any]) -> Usage:
    """Return the amounts that a pod with this spec uses of ResourceQuotas, computed as the API server does."""
    limits = requests({**spec, **_only("limits", spec)})
    asked = [(name, amount) for name, amount in requests(spec) if not name.startswith(HOST_PORT)]
    bounds = [(name, amount) for name, amount in limits if not name.startswith(HOST_PORT)]
    amounts = {f"requests.{name}": amount for name, amount in asked if name != "pods"}
    amounts |= {f"limits.{name}": amount for name, amount in bounds if name != "pods"}
    sized = any(name in ("cpu", "memory") for name, _ in (*asked, *bounds))
    pods = {"pods": 1, "count/pods": 1}
    return Usage(tuple(sorted({**amounts, **pods}.items())), True, not sized, str(spec.get("priorityClassName") or ""))


def of_workload(plural: str) -> Usage:
    """Return the amounts that a workload of the API group `apps` uses of ResourceQuotas, such as 1 of
    `count/statefulsets.apps`. `plural` is the plural name of its kind.
    """
    return Usage(((f"count/{plural}.apps", 1),))


def shortage(quotas: Iterable[Mapping[str, Any]], change: QuotaChange) -> str:
    """Return a text that names the ResourceQuotas that do not suffice for the objects that a rollout creates, once the
    objects that it removes are gone; "" if all suffice.

    The available amount of a resource is `hard - used`, plus what the removed objects release.
    """
    messages = [line for quota in quotas for line in _short(quota, change)]
    more = [f"{len(messages) - _SHOWN} more"] if len(messages) > _SHOWN else []
    return "; ".join([*messages[:_SHOWN], *more])


def _short(quota: Mapping[str, Any], change: QuotaChange) -> Iterable[str]:
    spec, status = quota.get("spec") or {}, quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    comes, goes = (_total(spec, side) for side in change)
    for resource, limit in sorted(hard.items()):
        name = _name(resource)
        kind = name.partition(".")[2]
        wanted, released, taken = comes[name], goes[name], units(kind, used.get(resource, "0"))
        left = units(kind, limit) - taken + released
        if wanted > left:
            yield (
                f"ResourceQuota {quota['metadata']['name']} has too little left: the new revision needs "
                f"{_amount(kind, wanted)} {resource}, but only {_amount(kind, max(0, left))} would be available (hard "
                f"{limit}, used {used.get(resource, '0')}, of which the old revision releases "
                f"{_amount(kind, released)})"
            )


def _total(spec: Mapping[str, Any], side: Iterable[tuple[Usage, int]]) -> Counter[str]:
    total = Counter[str]()
    for usage, number in side:
        if _counts(spec, usage):
            total.update({name: amount * number for name, amount in usage.amounts})
    return total


def _name(resource: str) -> str:
    """Return the name under which `Usage.amounts` contains a resource that a quota names."""
    return f"requests.{resource}" if resource in _BARE or resource.startswith("hugepages-") else resource


def _amount(kind: str, amount: int) -> str:
    return f"{amount}m" if kind == "cpu" and amount % 1000 else str(amount // 1000 if kind == "cpu" else amount)


def _counts(spec: Mapping[str, Any], usage: Usage) -> bool:
    """Return whether a quota counts an object, according to the scopes of the quota. An unknown scope is assumed not to
    match.
    """
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(usage.pod and _in_scope(scope, usage) for scope in scopes)


def _in_scope(scope: Mapping[str, Any], usage: Usage) -> bool:
    name, operator, values = scope.get("scopeName"), scope.get("operator"), scope.get("values") or ()
    if name == "PriorityClass":
        if operator in ("In", "NotIn"):
            return bool((usage.priority in values) == (operator == "In"))
        return bool(usage.priority) == (operator == "Exists")
    return {"NotTerminating": True, "BestEffort": usage.best_effort, "NotBestEffort": not usage.best_effort}.get(
        str(name), False
    )


def _only(part: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod spec whose containers request the amounts that `spec` states in the field `part`, which is `limits` or
    `requests`.
    """
    out: dict[str, Any] = {}
    for field in ("containers", "initContainers"):
        out[field] = [
            {**container, "resources": {"requests": (container.get("resources") or {}).get(part) or {}}}
            for container in spec.get(field) or ()
        ]
    out["resources"] = {"requests": (spec.get("resources") or {}).get(part) or {}}
    return out
