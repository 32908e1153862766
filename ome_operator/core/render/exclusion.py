"""Exclude nodes from the placement of a group's pods. The exclusion is added when the StatefulSets of the group are made.
The revision and its stored templates do not contain it (docs/bad-nodes.md).
"""

from collections.abc import Mapping
from typing import Any

from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.objects import Manifest

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def exclude_nodes(spec: Mapping[str, Any], nodes: Exclusion) -> Manifest:
    """Return the pod spec `spec`, extended so that its pods are not placed on the nodes `nodes`.

    Terms of node affinity are alternatives, so each of them gets the exclusion. A term without expressions matches no node,
    and stays as it is. The nodes are excluded by name, because the label `kubernetes.io/hostname` may differ from the name.
    The API permits a single name in each expression.
    """
    affinity = spec.get("affinity") or {}
    about = affinity.get("nodeAffinity") or {}
    required = about.get(_REQUIRED) or {}
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    terms = [_with(term, others) for term in required.get("nodeSelectorTerms") or ()] or [{"matchFields": others}]
    chosen = {**about, _REQUIRED: {**required, "nodeSelectorTerms": terms}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": chosen}}


def _with(term: Mapping[str, Any], others: list[Manifest]) -> Manifest:
    if not (term.get("matchFields") or term.get("matchExpressions")):
        return dict(term)
    return {**term, "matchFields": [*(term.get("matchFields") or ()), *others]}
