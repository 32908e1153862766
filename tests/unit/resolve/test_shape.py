"""What stands in the open parts of a pod spec: valid YAML passes as it is, and what is wrong is one sentence with its path."""

from typing import Any

import pytest

from ome_operator.render import pod
from ome_operator.resolve.compose import compose
from ome_operator.resolve.merge import merge
from ome_operator.resolve.shape import wrong
from ome_operator.resolve.tidy import tidy
from tests.support import parts
from tests.unit.render.test_pod import CONTEXT

FREE = dict.fromkeys(("env", "ports", "args", "command", "resources", "volumes", "limits", "name"), "x") | {"sizeLimit": "1024Mi"}
"""Names of a pod's fields, as the keys of a map whose keys people choose."""
PEERS = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": FREE}}]
CLAIM = {"metadata": {"labels": FREE, "annotations": FREE}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
VALID: dict[str, dict[str, Any]] = {
    "pods are kept apart": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": PEERS}}},
    "pods are kept together": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": PEERS}}},
    "pods are rather kept apart": {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": PEERS[0]}]
            }
        }
    },
    "nodes": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "env", "operator": "Exists"}]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
            }
        }
    },
    "keys of a node selector": {"nodeSelector": FREE},
    "keys of labels that spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": FREE}}
        ]
    },
    "keys of a CSI volume": {"volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": FREE}}]},
    "keys of a claim's metadata": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM}}]},
    "options of a name server": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}},
}


@pytest.mark.parametrize("case", VALID)
def test_what_is_valid_passes_as_it_is(case: str) -> None:
    written = VALID[case]
    assert wrong(written, "spec.engine") == ""
    assert merge({}, written) == merge(written, written) == written
    assert tidy(written) == (written, ())


@pytest.mark.parametrize("case", VALID)
def test_what_is_valid_is_rendered_as_it_is(case: str) -> None:
    engine = {"runner": parts.container(), **VALID[case]}
    for runtime, written in ((engine, {}), ({"runner": parts.container()}, engine)):
        spec = pod.leader(CONTEXT, compose("engine", {"engineConfig": runtime}, written))["spec"]
        for field, value in VALID[case].items():
            if isinstance(value, list):  # the model's volume comes behind
                assert spec[field][: len(value)] == value
            elif field != "affinity":
                assert spec[field] == value
            else:
                (kind,) = value
                assert spec[field][kind].keys() == value[kind].keys() and ("node" in kind or spec[field][kind] == value[kind])
