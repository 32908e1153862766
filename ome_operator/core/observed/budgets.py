"""Find PodDisruptionBudgets of other clients that select pods of a service.

The API server does not evict a pod that two budgets select: it answers 500, and `kubectl drain` ends (decisions 14).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys

SHOWN = 3
"""Number of budgets that a sentence names."""


class Budget(NamedTuple):
    """A PodDisruptionBudget of another client, in the namespace of a service."""

    name: str
    selector: Mapping[str, Any] | None
    """The label selector of the budget as JSON; None if it is not set."""


class PodLabels(NamedTuple):
    """The labels of the pods of several workloads that differ only in the number of their group."""

    component: str
    labels: Mapping[str, str]
    """The labels without the number of the group."""
    groups: frozenset[str]


def budget(body: Mapping[str, Any]) -> Budget:
    """Return the PodDisruptionBudget whose JSON is `body`."""
    return Budget((body.get("metadata") or {}).get("name") or "", (body.get("spec") or {}).get("selector"))


def second_budgets(budgets: Iterable[Budget], manifests: Iterable[Mapping[str, Any]], namespace: str) -> Iterator[str]:
    """Yield a sentence for each component whose pods are selected by budgets of other clients. `manifests` are the
    objects of the service.
    """
    found: dict[str, list[str]] = {}
    budgets = tuple(budgets)
    templates = _templates(manifests) if budgets else []
    for one in budgets:
        for component in sorted({each.component for each in templates if _selects(one.selector, each)}):
            found.setdefault(component, []).append(one.name)
    for component, names in found.items():
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        plural = len(names) > 1
        yield (
            f"PodDisruptionBudget{'s' if plural else ''} {shown} also select{'' if plural else 's'} pods of {component}, "
            "for which the operator has a budget already. Kubernetes evicts no pod that has two budgets, so each drain of "
            f"its node fails. Exclude pods with the label {keys.MANAGED_BY}={keys.MANAGER} from the selector, or run "
            f"`kubectl delete pdb {names[0]} -n {namespace}`"
        )


def _templates(manifests: Iterable[Mapping[str, Any]]) -> list[PodLabels]:
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], set[str]] = {}
    for manifest in manifests:
        if manifest["kind"] not in ("StatefulSet", "Deployment"):
            continue
        labels = dict(manifest["spec"]["template"]["metadata"]["labels"])
        group = labels.pop(keys.GROUP_INDEX, "")
        groups.setdefault((labels[keys.COMPONENT], tuple(sorted(labels.items()))), set()).add(group)
    return [PodLabels(component, dict(labels), frozenset(found)) for (component, labels), found in groups.items()]


def _selects(selector: Mapping[str, Any] | None, template: PodLabels) -> bool:
    """Return whether a label selector selects a pod of a template. A selector that is not set selects nothing, and an
    empty selector selects every pod.
    """
    if selector is None:
        return False
    plain = dict(selector.get("matchLabels") or {})
    group = plain.pop(keys.GROUP_INDEX, None)
    groups = template.groups if group is None else template.groups & {group}
    if not groups or any(template.labels.get(key) != value for key, value in plain.items()):
        return False
    expressions = selector.get("matchExpressions") or ()
    return any(
        all(_meets(one, {**template.labels, keys.GROUP_INDEX: number}) for one in expressions) for number in sorted(groups)
    )


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key"), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(str(key)) in values
        case "NotIn":
            return labels.get(str(key)) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
