"""Tests of the open parts of a pod spec: valid YAML is accepted unchanged, and an error is one message with the path."""

from typing import Any

import pytest

from ome_operator.core.podspec.canonical import canonical_pod
from ome_operator.core.podspec.compose import compose
from ome_operator.core.podspec.merge import merge
from ome_operator.core.podspec.validate import first_mistake
from ome_operator.core.render import pod_template
from tests.support import parts
from tests.unit.core.render.test_pod_template import CONTEXT

_FIELDS = ("env", "ports", "args", "command", "resources", "volumes", "limits", "name")
FREE = dict.fromkeys(_FIELDS, "x") | {"sizeLimit": "1024Mi"}
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
    "an image as a volume": {"volumes": [{"name": "v", "image": {"reference": "registry/weights:1"}}]},
    "options of a name server": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}},
}


@pytest.mark.parametrize("case", VALID)
def test_valid_pod_fields_are_accepted_unchanged(case: str) -> None:
    written = VALID[case]
    assert first_mistake(written, "spec.engine") == ""
    assert merge({}, written) == merge(written, written) == written
    assert canonical_pod(written) == (written, ())


@pytest.mark.parametrize("case", VALID)
def test_valid_pod_fields_are_rendered_unchanged(case: str) -> None:
    engine = {"runner": parts.container(), **VALID[case]}
    for runtime, written in ((engine, {}), ({"runner": parts.container()}, engine)):
        spec = pod_template.leader(CONTEXT, compose("engine", {"engineConfig": runtime}, written))["spec"]
        for field, value in VALID[case].items():
            if isinstance(value, list):  # the model's volume is added at the end
                assert spec[field][: len(value)] == value
            elif field != "affinity":
                assert spec[field] == value
            else:
                (kind,) = value
                assert spec[field][kind].keys() == value[kind].keys()
                assert kind == "nodeAffinity" or spec[field][kind] == value[kind]  # the model's nodes are added there


TEXT = "write a string; put quotes around numbers, true and false"
GRACE = "at.terminationGracePeriodSeconds must be a whole number"
AMOUNT = 'write an amount such as 8, "500m" or "80Gi"'
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "probe": ({"readinessProbe": "x"}, "at.readinessProbe must be a map"),
    "handler": ({"livenessProbe": {"httpGet": "x"}}, "at.livenessProbe.httpGet must be a map"),
    "start-up": ({"startupProbe": {"exec": ["x"]}}, "at.startupProbe.exec must be a map"),
    "variable's name": ({"env": [{"name": {}}]}, f"at.env[0].name is {{}}: {TEXT}"),
    "volume's name": ({"volumes": [{"name": ["a"]}]}, f'at.volumes[0].name is ["a"]: {TEXT}'),
    "mount": ({"volumeMounts": [{"name": "a", "mountPath": 5}]}, f"at.volumeMounts[0].mountPath is 5: {TEXT}"),
    "protocol": ({"ports": [{"containerPort": 80, "protocol": []}]}, f"at.ports[0].protocol is []: {TEXT}"),
    "port": ({"ports": [{"containerPort": {"a": 1}}]}, "at.ports[0].containerPort must be a whole number"),
    "spread": (
        {"topologySpreadConstraints": [{"topologyKey": []}]},
        f"at.topologySpreadConstraints[0].topologyKey is []: {TEXT}",
    ),
    "claim": ({"resources": {"claims": [{"name": []}]}}, f"at.resources.claims[0].name is []: {TEXT}"),
    "name": ({"name": 5}, f"at.name is 5: {TEXT}"),
    "below an unknown list": ({"x": [{"env": [{"name": []}]}]}, f"at.x[0].env[0].name is []: {TEXT}"),
    "wishes for nodes": (
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": 5}}},
        "at.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution must be a list of maps",
    ),
    "needs of nodes": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
        "at.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution must be a map",
    ),
    "what a toleration compares": (
        {"tolerations": [{"operator": [None]}]},
        "at.tolerations[0].operator is [null]: write a string; put quotes around numbers, true and false",
    ),
    "fields of nodes": (
        {"affinity": {"nodeAffinity": {"preferred": [{"matchFields": [{"operator": "In"}]}]}}},
        "at.affinity.nodeAffinity.preferred[0].matchFields[0] must be a map with a key",
    ),
    "values of labels": (
        {"topologySpreadConstraints": [{"labelSelector": {"matchExpressions": [{"key": "a", "values": "b"}]}}]},
        "at.topologySpreadConstraints[0].labelSelector.matchExpressions[0].values must be a list of strings",
    ),
    "needs of pods": (
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
        "at.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution must be a list of maps",
    ),
    "value": (
        {"env": [{"name": "A", "value": {"a": 1}}]},
        'at.env[0].value is {"a":1}: write a string, a number, true or false',
    ),
    "grace that int() refuses": ({"terminationGracePeriodSeconds": "²"}, GRACE),
    "grace without end": ({"terminationGracePeriodSeconds": "9" * 5000}, GRACE),
    "amount": ({"resources": {"limits": {"cpu": "1e9999999"}}}, f'at.resources.limits.cpu is "1e9999999": {AMOUNT}'),
    "long amount": ({"overhead": {"cpu": "9" * 5000}}, f'at.overhead.cpu is "{"9" * 56}...: {AMOUNT}'),
    "no amount": ({"resources": {"requests": {"memory": {}}}}, f"at.resources.requests.memory is {{}}: {AMOUNT}"),
    "size": (
        {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "big"}}]},
        f'at.volumes[0].emptyDir.sizeLimit is "big": {AMOUNT}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_invalid_pod_field_gives_one_sentence(case: str) -> None:
    written, sentence = WRONG[case]
    assert first_mistake(written, "at") == sentence


def test_variable_values_may_be_strings_numbers_or_booleans() -> None:
    assert first_mistake({"env": [{"name": "A", "value": one} for one in ("x", 1, 0.5, True, None)]}, "at") == ""
