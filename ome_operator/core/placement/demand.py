"""The requirements of a pod on a node, as a small value that is equal for all pods with the same requirements.

The value covers what the filters of the scheduler check on an empty node. A requirement that is not modeled is assumed to
be met.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.objects import Manifest, Taint
from ome_operator.quantity import units
from ome_operator.util.memoize import memoize_by_identity

HOST_PORT = "host port "
"""Prefix of the name of the resource that models a host port. Each node has exactly one of each host port."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NODE_NAME = "metadata.name"
"""The only field of a node that a term of node affinity can select by (`matchFields`)."""
_HOSTNAME = "kubernetes.io/hostname"
_OF_A_POD = frozenset({keys.GROUP_INDEX, keys.POD_INDEX, keys.TEMPLATE, "statefulset.kubernetes.io/pod-name"})
"""Labels that pods get only when they are created. A label selector on such a label cannot be evaluated before."""
_OF_A_WHOLE_POD = ("cpu", "memory", "hugepages-")
"""Names (or prefixes of names) of the resources that `spec.resources` of a pod may request in place of its containers."""


class Expression(NamedTuple):
    """A requirement on a label, or on the name, of a node."""

    key: str
    operator: str
    values: tuple[str, ...]

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a node meet the requirement. A requirement whose operator Kubernetes does not define
        (yet) is assumed to be met.
        """
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        if self.operator in ("Exists", "DoesNotExist"):
            return (value is not None) == (self.operator == "Exists")
        if self.operator in ("Gt", "Lt"):
            return _compared(value, self.operator, self.values)
        return True

    def __str__(self) -> str:
        if self.operator == "In":
            return f"{self.key}={self.values[0]}" if len(self.values) == 1 else f"{self.key} in ({', '.join(self.values)})"
        if self.operator == "NotIn" and self.key == _NODE_NAME:
            return f"a name other than {', '.join(self.values)}"
        if self.operator == "NotIn":
            return f"{self.key} not in ({', '.join(self.values)})"
        sign = {"Gt": " > ", "Lt": " < "}.get(self.operator)
        return f"{self.key}{sign}{', '.join(self.values)}" if sign else f"the label {self.key}"


class Term(NamedTuple):
    """A node selector term: expressions, all of which a node has to meet."""

    labels: tuple[Expression, ...]
    name: tuple[Expression, ...]

    def is_met(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node with the name `name` and the labels `labels` meets the term. A term without expressions
        matches no node.
        """
        for each in self.labels:  # a loop, because the method is called for thousands of nodes
            if not each.is_met(labels):
                return False
        return bool(self.labels or self.name) and all(each.is_met({each.key: name}) for each in self.name)


class Toleration(NamedTuple):
    """A toleration of a pod."""

    key: str
    operator: str
    value: str
    effect: str

    def matches_taint(self, taint: Taint) -> bool:
        """Return whether the toleration matches this taint. A toleration whose operator Kubernetes does not define (yet) is
        assumed to match.
        """
        if self.effect not in ("", taint.effect):
            return False
        if self.key != taint.key:
            return not self.key and self.operator == "Exists"
        return self.operator not in ("", "Equal") or self.value == taint.value


class Demand(NamedTuple):
    """The requirements of a pod on a node."""

    selector: tuple[Expression, ...] = ()
    """Expressions, all of which the labels of a node have to meet."""
    terms: tuple[Term, ...] = ()
    """Terms of node affinity, of which a node has to meet at least one; () if the pod has no node affinity."""
    tolerations: tuple[Toleration, ...] | None = ()
    """The tolerations of the pod. None if they are unknown; in this case no taint excludes the pod."""
    requests: tuple[tuple[str, int], ...] = ()
    """The requested amount of each resource, in `quantity.units`."""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the pod tolerates this taint.

        The API server may add a toleration for each requested resource (admission plugin ExtendedResourceToleration), so a
        taint named like a requested resource excludes no pod.
        """
        if self.tolerations is None or any(taint.key == name for name, _ in self.requests):
            return True
        return any(each.matches_taint(taint) for each in self.tolerations)

    def without(self, nodes: Exclusion) -> "Demand":
        """Return the requirements of the same pod if it must not be placed on `nodes`
        (`core/render/exclusion.py:exclude_nodes`).
        """
        if not nodes:
            return self
        other = Expression(_NODE_NAME, "NotIn", nodes)
        terms = tuple(term._replace(name=(*term.name, other)) if any(term) else term for term in self.terms)
        return self._replace(terms=terms or (Term((), (other,)),))


@memoize_by_identity(1024)
def demand(template: Manifest, weights: bool) -> Demand:
    """Return the requirements of the pods of a template on a node. If `weights` is false, the requirement that the node
    holds the weights of the model is left out.

    Queues and other schedulers change selectors, tolerations and amounts by their own rules. For pods that name a queue or
    another scheduler, only the label requirements of the template are returned.
    """
    spec = template["spec"]
    selector = tuple(Expression(key, "In", (str(value),)) for key, value in sorted((spec.get("nodeSelector") or {}).items()))
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    terms = [_term(each, weights) for each in required.get("nodeSelectorTerms") or ()]
    alternatives = () if None in terms else tuple(each for each in terms if each is not None)
    if placed_by_other(template):
        return Demand(selector, alternatives, None)
    known = not spec.get("runtimeClassName")  # a RuntimeClass may add tolerations
    return Demand(selector, alternatives, tuple(_tolerations(spec)) if known else None, requests(spec))


def placed_by_other(template: Manifest) -> bool:
    """Return whether a queue or another scheduler places the pods of a template."""
    return scheduled_elsewhere(template) or keys.KUEUE_LABEL in _labels(template)


def scheduled_elsewhere(template: Manifest) -> bool:
    """Return whether another scheduler, or a queue that has its own scheduler, binds the pods of a template to nodes.
    Kueue only decides when the default scheduler may bind them.
    """
    scheduler = template["spec"].get("schedulerName") or "default-scheduler"
    return scheduler != "default-scheduler" or keys.VOLCANO_LABEL in _labels(template)


def _labels(template: Manifest) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


def requests(spec: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the amounts that a pod requests from a node, by resource, computed as the scheduler does.

    The requested amount is the larger of two amounts, plus the overhead of the RuntimeClass. The first is the sum over all
    containers and sidecars. The second is the largest sum over an init container and the sidecars that started before it. If
    the pod itself requests a resource (`spec.resources`), this amount takes the place of both.
    """
    beside: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside += _asked(container)
            before |= beside
        else:
            before |= beside + _asked(container)
    together = beside + Counter()
    for container in spec.get("containers") or ():
        together += _asked(container)
    total = together | before
    whole = _asked(spec)
    total.update({name: whole[name] - total[name] for name in whole if name.startswith(_OF_A_WHOLE_POD)})
    total += Counter({name: units(name, value) for name, value in (spec.get("overhead") or {}).items()})
    total["pods"] = 1
    total.update(dict.fromkeys(set(_host_ports(spec)), 1))
    return tuple(sorted((name, amount) for name, amount in total.items() if amount > 0))


def never_share_node(first: Manifest, second: Manifest, namespace: str) -> bool:
    """Return whether pods of the two templates never share a node, because of the anti-affinity of either template."""
    return _avoids(first, second, namespace) or _avoids(second, first, namespace)


def _avoids(who: Manifest, whom: Manifest, namespace: str) -> bool:
    affinity = (who["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    labels = (whom.get("metadata") or {}).get("labels") or {}
    return any(_about(term, labels, namespace) for term in affinity.get(_REQUIRED) or ())


def _about(term: Mapping[str, Any], labels: Mapping[str, str], namespace: str) -> bool:
    """Return whether a term of pod anti-affinity certainly matches pods with the labels `labels` in the namespace
    `namespace`, and thus keeps them off the node of the pod that has the term.
    """
    selector, spaces = term.get("labelSelector"), term.get("namespaces") or (namespace,)
    unknown = any(term.get(name) for name in ("namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"))
    if term.get("topologyKey") != _HOSTNAME or selector is None or unknown or namespace not in spaces:
        return False
    return all(each.key not in _OF_A_POD and each.is_met(labels) for each in expressions(selector))


def expressions(selector: Mapping[str, Any]) -> list[Expression]:
    """Return the requirements of a label selector on the labels of a pod."""
    asked = [Expression(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    return [*asked, *map(_expression, selector.get("matchExpressions") or ())]


def _asked(container: Mapping[str, Any]) -> Counter[str]:
    """Return the requests of a container, by resource. If a container sets only the limit of a resource, the limit is the
    request.
    """
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Counter({name: units(name, value) for name, value in amounts.items()})


def _host_ports(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number and port.get("hostIP") in (None, "", "0.0.0.0"):
                yield f"{HOST_PORT}{number}/{port.get('protocol') or 'TCP'}"


def _term(term: Mapping[str, Any], weights: bool) -> Term | None:
    """Return a term of node affinity. If `weights` is false, the requirements that the node has the weights are left out; if
    the term has no other requirements, every node meets it, and the result is None.
    """
    labels = tuple(map(_expression, term.get("matchExpressions") or ()))
    kept = tuple(each for each in labels if weights or not each.key.startswith(keys.MODEL_LABEL_PREFIX))
    name = tuple(map(_expression, term.get("matchFields") or ()))
    return None if labels and not (kept or name) else Term(kept, name)


def _expression(expression: Mapping[str, Any]) -> Expression:
    return Expression(
        expression.get("key") or "", expression.get("operator") or "", tuple(map(str, expression.get("values") or ()))
    )


def _tolerations(spec: Mapping[str, Any]) -> Iterable[Toleration]:
    for toleration in spec.get("tolerations") or ():
        yield Toleration(*(toleration.get(part) or "" for part in Toleration._fields))


def _compared(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    if not (value and values and _NUMBER.fullmatch(value) and _NUMBER.fullmatch(values[0])):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
