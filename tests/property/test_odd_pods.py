"""Whatever users write in the open parts of a pod spec, it is refused with a message or placement can process it."""

from typing import Any

from hypothesis import example, given

from ome_operator.core.placement.demand import demand, never_share_node
from ome_operator.core.podspec.validate import first_mistake
from tests.support.odd_json import VALUES, broken_objects

TERMS = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
LIMITS = {"limits": {"cpu": "1", "nvidia.com/gpu": 8}, "requests": {"memory": "1Gi"}}
SPEC: dict[str, Any] = {
    "schedulerName": "default-scheduler",
    "runtimeClassName": "",
    "hostNetwork": True,
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "value": "b", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {**TERMS, "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "namespaces": ["ns"],
                    "labelSelector": {"matchLabels": {"a": "b"}, **TERMS},
                }
            ]
        },
    },
    "resources": LIMITS,
    "overhead": {"cpu": "1"},
    "initContainers": [{"name": "a", "restartPolicy": "Always", "resources": LIMITS}],
    "containers": [
        {"name": "a", "resources": LIMITS, "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "", "protocol": "TCP"}]}
    ],
}


@example({**SPEC, "tolerations": [{"operator": [None]}]})
@given(broken_objects([SPEC], VALUES))
def test_accepted_pod_spec_can_be_processed_by_placement(spec: dict[str, Any]) -> None:
    if not first_mistake(spec, "at"):
        template, well = {"spec": spec}, {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
        assert {demand(template, True), demand(template, False)}
        assert never_share_node(template, well, "ns") in (True, False) and never_share_node(well, template, "ns") in (
            True,
            False,
        )
